"""Where exports of the audit log go: a port, and S3.

boto3 runs in worker threads, with its own retries off: the next activation is the retry.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_CONFIG = Config(connect_timeout=2, read_timeout=30, retries={"total_max_attempts": 1})


class ArchiveError(Exception):
    """An object could not be stored; the message names no credential."""


class Archive(Protocol):
    async def put(self, key: str, body: bytes) -> None:
        """Store an object. The same key and bytes again change nothing. Raises ArchiveError."""
        ...


OpenBucket = Callable[[str], Archive]


class S3Archive:
    """A bucket. The credentials and the region are found by boto3, as on every AWS host."""

    def __init__(self, bucket: str, client: Any = None) -> None:
        self._bucket = bucket
        self._client = client

    async def put(self, key: str, body: bytes) -> None:
        await asyncio.to_thread(self._put, key, body)

    def _put(self, key: str, body: bytes) -> None:
        try:
            if self._client is None:
                self._client = boto3.client("s3", config=_CONFIG)
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ContentType="application/x-ndjson"
            )
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise ArchiveError(f"S3 answers {code} to put_object in {self._bucket}") from None
        except BotoCoreError as error:
            raise ArchiveError(f"S3: {type(error).__name__} at put_object in {self._bucket}") from None
