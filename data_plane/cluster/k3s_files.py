"""The files of one K3s release, from a folder of the operator's, each held against its digest.

No host and no node fetches anything from the internet: we send what this folder holds
(https://docs.k3s.io/installation/airgap, 2026-11-20).
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from data_plane.cluster.objects.device_plugin import DevicePlugin

BINARY, INSTALLER, SUMS = "k3s", "install.sh", "SHA256SUMS"
_IMAGES = "k3s-airgap-images-"
DEVICE_PLUGIN, DEVICE_PLUGIN_ARCHIVE = "device-plugin.image", "device-plugin.tar"
_DEVICE_PLUGIN_FILES = "device-plugin*"
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
    """Archives of container images, at least one: nodes load none from the internet."""
    device_plugin: DevicePlugin | None = None
    """What makes GPUs allocatable; None when the operator leaves that to somebody else."""
    device_plugin_archive: K3sFile | None = None
    """Its image. Without it, nodes load it from the internet."""

    def of_server(self) -> "K3sFiles":
        """Without what nodes alone need."""
        return replace(self, device_plugin_archive=None)

    @property
    def archives(self) -> tuple[K3sFile, ...]:
        """All archives of images."""
        own = self.device_plugin_archive
        return self.images if own is None else (*self.images, own)

    def all(self) -> tuple[K3sFile, ...]:
        return (self.binary, self.installer, *self.archives)

    def digests(self) -> list[str]:
        """As scripts take them: of the binary, of the install script, then name and digest of each archive."""
        archives = [word for file in self.archives for word in (file.name, file.sha256)]
        return [self.binary.sha256, self.installer.sha256, *archives]


def read(folder: Path) -> K3sFiles:
    """The files of a folder: `k3s`, `install.sh`, `k3s-airgap-images-*`, and `SHA256SUMS`, which names them all.

    Where pods are to get GPUs by a device plugin of ours, `device-plugin.image` names its image by digest, and
    `device-plugin.tar` has it. Raises K3sFilesError when one is missing, is not named, or has another digest.
    """
    sums = _sums(folder / SUMS)
    images = sorted(path for path in folder.glob(f"{_IMAGES}*"))
    if not images:
        raise K3sFilesError(
            f"{folder} has no {_IMAGES}*, without which K3s would load its images from the internet; "
            "take the archive of the same release, such as k3s-airgap-images-amd64.tar.zst"
        )
    archive = _archive(folder, sums)
    return K3sFiles(
        _checked(folder / BINARY, sums),
        _checked(folder / INSTALLER, sums),
        tuple(_checked(path, sums) for path in images),
        _device_plugin(folder, sums, archive),
        archive,
    )


def _archive(folder: Path, sums: Mapping[str, str]) -> K3sFile | None:
    path = folder / DEVICE_PLUGIN_ARCHIVE
    return _checked(path, sums) if path.exists() else None


def _device_plugin(folder: Path, sums: Mapping[str, str], archive: K3sFile | None) -> DevicePlugin | None:
    """The device plugin that the folder names. An archive with another image would leave all nodes without GPUs."""
    path = folder / DEVICE_PLUGIN
    if not path.exists():
        if archive is not None:
            raise K3sFilesError(f"{archive.path} is there without {DEVICE_PLUGIN}, which names its image")
        return None
    _checked(path, sums)
    image = path.read_text(encoding="ascii", errors="replace").strip()
    try:
        made = DevicePlugin(image, is_at_hand=archive is not None)
    except ValueError as error:
        raise K3sFilesError(f"{path}: {error}") from None
    if archive is not None and image not in _images_in(archive.path):
        raise K3sFilesError(
            f"{archive.path} has no image with the name {image}; make it with: "
            f"ctr images pull {image} && ctr images export {DEVICE_PLUGIN_ARCHIVE} {image}"
        )
    return made


def _images_in(path: Path) -> list[str]:
    """The names by which containerd knows the images of an OCI archive, once it has imported it."""
    try:
        with tarfile.open(path) as archive:
            index = archive.extractfile("index.json")
            listed = json.load(index)["manifests"] if index is not None else []
        return [str(each["annotations"]["io.containerd.image.name"]) for each in listed]
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError):
        return []


def _sums(path: Path) -> Mapping[str, str]:
    """What `sha256sum` printed: a digest and a name in each line."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        names = "k3s* install.sh"
        if any(path.parent.glob(_DEVICE_PLUGIN_FILES)):
            names += f" {_DEVICE_PLUGIN_FILES}"
        raise K3sFilesError(
            f"{path} cannot be read ({error}); make it with: sha256sum {names} > {SUMS}"
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
