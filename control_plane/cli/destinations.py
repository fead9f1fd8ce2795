"""Where an export goes: a folder, or a bucket of S3 with the credentials of the person who runs the command.

Data files come first and the manifest last, so that whoever finds a manifest finds the files that it describes.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from control_plane.cli.errors import CliError, usage


class Destination(Protocol):
    def put(self, folder: str, files: Sequence[Path]) -> str:
        """Store these files below `folder`, in this order, and return where. Raises CliError."""
        ...


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, folder: str, files: Sequence[Path]) -> str:
        target = self._path / folder
        try:
            target.mkdir(parents=True, exist_ok=True)
            for file in files:
                # A file of another file system is copied, which can break off, and then renamed, which cannot.
                partial = target / f".{file.name}.partial"
                shutil.copyfile(file, partial)
                _on_disk(partial)
                partial.replace(target / file.name)
                _on_disk(target)  # So that no manifest survives a power failure that its files do not.
        except OSError as error:
            raise CliError(f"{target}: {error.strerror}.", code="file") from error
        return str(target)


def _on_disk(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket:
    def __init__(self, bucket: str, prefix: str, client: Any) -> None:
        self._bucket, self._prefix, self._client = bucket, prefix, client

    def put(self, folder: str, files: Sequence[Path]) -> str:
        # Its errors exist where it is installed, and this object is made only there.
        from boto3.exceptions import Boto3Error  # noqa: PLC0415 - boto3 is optional: see `_client`
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - the same

        target = "/".join(filter(None, (self._prefix, folder)))
        try:
            for file in files:
                self._client.upload_file(str(file), self._bucket, f"{target}/{file.name}")
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise CliError(f"s3://{self._bucket}/{target}: {error}", code="bucket") from None
        return f"s3://{self._bucket}/{target}"


def destination(text: str) -> Destination:
    """The destination of `--to`: a path, or `s3://BUCKET/PREFIX`."""
    if "://" not in text:
        return Folder(Path(text))
    parts = urlsplit(text)
    if parts.scheme != "s3" or not parts.netloc:
        raise usage(f"--to: {text!r} is neither a folder nor s3://BUCKET/PREFIX.")
    return Bucket(parts.netloc, parts.path.strip("/"), _client())


def _client() -> Any:
    try:
        import boto3  # noqa: PLC0415 - optional, and it takes a third of a second to load
    except ImportError:
        raise CliError(
            "S3 needs boto3. Install it with: pip install 'splitplane-cli[s3]'", code="bucket"
        ) from None
    return boto3.client("s3")
