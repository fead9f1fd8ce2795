"""Calls AWS KMS with boto3, in worker threads. Both halves of the key manager use it.

boto3's own retries are off: whoever asks decides whether to ask again, and a KMS that does not answer must not hold a
request for a minute.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from control_plane.domain.secret import MasterKey, kms_region
from control_plane.vault.errors import KeyManagerError, KeyManagerRefused, KeyManagerUnavailable, NotOpened

_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})
_NOT_OPENED = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_PASSES = frozenset(
    {"ThrottlingException", "LimitExceededException", "KMSInternalException", "DependencyTimeoutException"}
)
_SERVER_ERROR = 500


class Kms:
    """Clients of AWS KMS, one for each region. The credentials are found by boto3, as on every AWS host."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    async def call(self, master: MasterKey, operation: str, **arguments: object) -> dict[str, Any]:
        """Run one operation in the region of a master key. Raises KeyManagerError."""
        return await asyncio.to_thread(self._call, master, operation, arguments)

    def _call(self, master: MasterKey, operation: str, arguments: dict[str, object]) -> dict[str, Any]:
        try:
            ask: Callable[..., dict[str, Any]] = getattr(self._client(region(master)), operation)
            return ask(**arguments)
        except ClientError as error:
            raise _refusal(error, operation, master) from None
        except BotoCoreError as error:
            raise KeyManagerUnavailable(f"AWS KMS: {type(error).__name__} at {operation}") from None

    def _client(self, name: str) -> Any:
        with self._lock:  # Making a client is not safe in several threads, using one is.
            if name not in self._clients:
                self._clients[name] = boto3.client("kms", region_name=name, config=_CONFIG)
            return self._clients[name]


def region(master: MasterKey) -> str:
    """The region in the ARN of a key. Raises KeyManagerRefused for anything else."""
    found = kms_region(master)
    if found is None:
        raise KeyManagerRefused(f"{master[:120]!r} is not the ARN of a key in AWS KMS")
    return found


def _refusal(error: ClientError, operation: str, master: MasterKey) -> KeyManagerError:
    """What an answer means. AWS puts no key material into its messages; we repeat only its code."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    sentence = f"AWS KMS answers {code or status} to {operation} with {master}"
    if code in _NOT_OPENED:
        return NotOpened(sentence)
    if code in _PASSES or status >= _SERVER_ERROR:
        return KeyManagerUnavailable(sentence)
    return KeyManagerRefused(sentence)
