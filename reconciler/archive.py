"""Where the audit log and the history of samples are written to: a port, and a folder. S3: `s3_archive.py`."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

LINES = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
JSON = "application/json"


class ArchiveError(Exception):
    """An object could not be stored, read or deleted; the message names no credential."""


class Archive(Protocol):
    async def put(self, key: str, body: bytes, content_type: str = LINES) -> None:
        """Store an object. The same key and bytes again change nothing. Raises ArchiveError."""
        ...

    async def get(self, key: str) -> bytes | None:
        """An object; None when there is none with this key. Raises ArchiveError."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Those that are not there are left out. Raises ArchiveError."""
        ...


OpenBucket = Callable[[str], Archive]


class FolderArchive:
    """A folder of the host, or one that several hosts share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, key: str, body: bytes, content_type: str = LINES) -> None:  # noqa: ARG002 - a file has none
        await self._do(self._put, key, body)

    async def get(self, key: str) -> bytes | None:
        try:
            return await asyncio.to_thread((self._folder / key).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArchiveError(f"{self._folder}: {error.strerror}") from None

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._do(self._delete, key)

    async def _do(self, what: Callable[..., None], *values: Any) -> None:
        try:
            await asyncio.to_thread(what, *values)
        except OSError as error:
            raise ArchiveError(f"{self._folder}: {error.strerror}") from None

    def _put(self, key: str, body: bytes) -> None:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever reads meanwhile finds the whole file or none, also while another replica writes the same one.
        partial = path.with_name(f".{path.name}.{token_hex(8)}.partial")
        try:
            partial.write_bytes(body)
            _on_disk(partial)
            partial.replace(path)
            _on_disk(path.parent)
        finally:
            partial.unlink(missing_ok=True)

    def _delete(self, key: str) -> None:
        path = self._folder / key
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._folder or any(folder.iterdir()):
                return
            folder.rmdir()


def _on_disk(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder: the rows that it was made of are deleted after that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
