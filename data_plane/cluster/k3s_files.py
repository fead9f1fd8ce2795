"""The files of one K3s release, from a folder of the operator's, each held against its digest.

No host and no node fetches anything from the internet: we send what this folder holds
(https://docs.k3s.io/installation/airgap, 2026-11-20).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BINARY, INSTALLER, SUMS = "k3s", "install.sh", "SHA256SUMS"
_IMAGES = "k3s-airgap-images-"
VERSION = re.compile(r"v1\.[0-9]{1,3}\.[0-9]{1,3}\+[a-z0-9.]{1,32}")
"""How a release calls itself, such as `v1.36.3+k3s1`."""


class K3sFilesError(ValueError):
    """The folder cannot be used. The message says what to change."""


@dataclass(frozen=True, slots=True)
class K3sFile:
    path: Path
    sha256: str
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True, slots=True)
class K3sFiles:
    binary: K3sFile
    installer: K3sFile
    images: tuple[K3sFile, ...]
    """Archives of container images. Without them, nodes load images from the internet."""

    def all(self) -> tuple[K3sFile, ...]:
        return (self.binary, self.installer, *self.images)

    def digests(self) -> list[str]:
        """As scripts take them: of the binary, of the install script, then name and digest of each archive."""
        images = [word for file in self.images for word in (file.name, file.sha256)]
        return [self.binary.sha256, self.installer.sha256, *images]


def read(folder: Path) -> K3sFiles:
    """The files of a folder: `k3s`, `install.sh`, any `k3s-airgap-images-*`, and `SHA256SUMS`, which names them all.

    Raises K3sFilesError when one is missing, is not named, or has another digest.
    """
    sums = _sums(folder / SUMS)
    images = sorted(path for path in folder.glob(f"{_IMAGES}*"))
    return K3sFiles(
        _checked(folder / BINARY, sums),
        _checked(folder / INSTALLER, sums),
        tuple(_checked(path, sums) for path in images),
    )


def _sums(path: Path) -> Mapping[str, str]:
    """What `sha256sum` printed: a digest and a name in each line."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise K3sFilesError(
            f"{path} cannot be read ({error}); make it with: sha256sum k3s* install.sh > {SUMS}"
        ) from None
    words = [line.split() for line in lines if line.strip()]
    return {pair[1].lstrip("*"): pair[0] for pair in words if len(pair) == 2}


def _checked(path: Path, sums: Mapping[str, str]) -> K3sFile:
    if path.name not in sums:
        raise K3sFilesError(f"{path.parent / SUMS} does not name {path.name}")
    try:
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        size = path.stat().st_size
    except OSError as error:
        raise K3sFilesError(f"{path} cannot be read: {error}") from None
    if found != sums[path.name]:
        raise K3sFilesError(
            f"{path} has another digest than {SUMS} says: it is damaged, or of another release"
        )
    return K3sFile(path, found, size)
