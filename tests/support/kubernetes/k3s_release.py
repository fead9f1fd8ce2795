"""The K3s that tests run: the stand-in, or the files of a real release that the environment names, each looked at first.

    K3S_BINARY    the program `k3s`
    K3S_IMAGES    the archive of its images for air gaps, `k3s-airgap-images-amd64.tar.zst`, of the same release
    K3S_INSTALL   its install script, https://get.k3s.io

What K3s reads as an archive it knows by the end of the name (pkg/agent/containerd of K3s), and an archive that it cannot
read is only a line in its log, after which pods wait for their images for ever.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes import parts

BINARY, IMAGES, INSTALL = "K3S_BINARY", "K3S_IMAGES", "K3S_INSTALL"
MINOR_MIN = 36
"""Of Kubernetes 1: the rule that places pods is a MutatingAdmissionPolicy (docs/clusters.md)."""
MAGIC = {
    ".tar": b"",
    ".tar.gz": b"\x1f\x8b",
    ".tgz": b"\x1f\x8b",
    ".tar.bz2": b"BZh",
    ".tar.lz4": b"\x04\x22\x4d\x18",
    ".tar.zst": b"\x28\xb5\x2f\xfd",
    ".tzst": b"\x28\xb5\x2f\xfd",
}
"""How the archives of each kind begin that K3s reads."""
_USTAR_AT = 257
_VERSION = re.compile(r"k3s version v1\.([0-9]{1,3})\.[0-9]{1,3}[+-]k3s[0-9]+ ")


class K3sReleaseError(ValueError):
    """The files that the environment names cannot be used. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Release:
    binary: Path
    images: tuple[Path, ...]
    """Archives of images. Of what runs on machines, one of them has the image of the tests' own pods."""
    script: Path


def release(folder: Path, environ: Mapping[str, str] = os.environ) -> Release:
    """What is made here is made in `folder`. Raises K3sReleaseError."""
    real = checked(environ) if environ.get(BINARY) else None
    own = parts.image_archive(folder / "images.tar", expected_version(), pause=real is None)
    if real is None:
        return Release(parts.k3s(folder / "k3s"), (own,), parts.install_script())
    return Release(real.binary, (*real.images, own), real.script)


def checked(environ: Mapping[str, str]) -> Release:
    """The real release that the environment names. Raises K3sReleaseError."""
    binary, images, script = (_named(name, environ) for name in (BINARY, IMAGES, INSTALL))
    _check_binary(binary)
    suffix(images)
    if b"INSTALL_K3S_SKIP_DOWNLOAD" not in script.read_bytes():
        raise K3sReleaseError(
            f"{INSTALL}: {script} is not K3s' install script; get it from https://get.k3s.io"
        )
    return Release(binary, (images,), script)


def _named(name: str, environ: Mapping[str, str]) -> Path:
    path = Path(environ.get(name, ""))
    if not environ.get(name):
        raise K3sReleaseError(
            f"{BINARY} is set, so {name} has to be set too; docs/kubernetes-tests.md has the command"
        )
    if not path.is_file():
        raise K3sReleaseError(f"{name}: there is no file {path}")
    return path


def _check_binary(binary: Path) -> None:
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise K3sReleaseError(f"{BINARY}: {binary} does not run on this machine ({error})") from None
    found = _VERSION.match(done.stdout)
    if found is None:
        said = (done.stdout or done.stderr).strip()[:100]
        raise K3sReleaseError(f"{BINARY}: {binary} is not K3s; `--version` printed {said!r}")
    if int(found[1]) < MINOR_MIN:
        raise K3sReleaseError(
            f"{BINARY}: Kubernetes 1.{found[1]} is too old; clusters need 1.{MINOR_MIN} or newer"
        )


def suffix(archive: Path) -> str:
    """The end of an archive's name, by which K3s knows how to read it. Raises K3sReleaseError when it could not."""
    known = next((end for end in sorted(MAGIC, key=len, reverse=True) if archive.name.endswith(end)), None)
    if known is None:
        raise K3sReleaseError(f"{IMAGES}: K3s reads no {archive.name}; it has to end with {', '.join(MAGIC)}")
    with archive.open("rb") as opened:
        begin = opened.read(512)
    right = begin[_USTAR_AT:].startswith(b"ustar") if known == ".tar" else begin.startswith(MAGIC[known])
    if not right:
        raise K3sReleaseError(f"{IMAGES}: {archive} is no {known} archive, whatever its name says")
    return known
