"""An archive in S3.

boto3 runs in worker threads, with its own retries off: the next activation is the retry.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from reconciler.archive import LINES, ArchiveError

_CONFIG = Config(connect_timeout=2, read_timeout=30, retries={"total_max_attempts": 1})
_DELETED_AT_ONCE_MAX = 1_000
"""Of S3's DeleteObjects."""


class S3Archive:
    """A bucket, or what begins with a prefix there. boto3 finds credentials and region, as on every AWS host."""

    def __init__(self, bucket: str, client: Any = None, *, prefix: str = "") -> None:
        self._bucket = bucket
        self._client = client
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    async def put(self, key: str, body: bytes, content_type: str = LINES) -> None:
        await self._ask("put_object", Key=self._prefix + key, Body=body, ContentType=content_type)

    async def get(self, key: str) -> bytes | None:
        content: bytes | None = await self._ask("get_object", "NoSuchKey", Key=self._prefix + key)
        return content

    async def delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _DELETED_AT_ONCE_MAX):
            some = [{"Key": self._prefix + key} for key in keys[first : first + _DELETED_AT_ONCE_MAX]]
            answer = await self._ask("delete_objects", Delete={"Objects": some, "Quiet": True})
            for error in (answer or {}).get("Errors", ()):
                raise ArchiveError(f"S3 answers {error.get('Code')} to delete_objects in {self._bucket}")

    async def _ask(self, verb: str, missing: str | None = None, **values: Any) -> Any:
        """The answer of S3, or the object that it sends; None for the error code `missing`."""
        try:
            return await asyncio.to_thread(self._call, verb, values)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == missing:
                return None
            raise ArchiveError(f"S3 answers {code} to {verb} in {self._bucket}") from None
        except BotoCoreError as error:
            raise ArchiveError(f"S3: {type(error).__name__} at {verb} in {self._bucket}") from None

    def _call(self, verb: str, values: Any) -> Any:
        if self._client is None:
            self._client = boto3.client("s3", config=_CONFIG)
        answer = getattr(self._client, verb)(Bucket=self._bucket, **values)
        return answer["Body"].read() if "Body" in answer else answer
