"""Which driver libraries this process has loaded, by path and SHA-256: evidence, to be compared between machines.

They are read from the kernel's list of mapped files, which contains the libraries that are really in use.
"""

import hashlib
import re
from pathlib import Path

from data_plane.proof.protocol.messages import Library

MAPS = Path("/proc/self/maps")

_NAMES = ("libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so")
_MAPPED = re.compile(r"(?:\S+\s+){5}(/[\x21-\x7e]{1,200})")
_LIBRARIES_MAX = 16
_CHUNK_BYTES = 1 << 20


def loaded(maps: Path = MAPS) -> "tuple[Library, ...]":
    """The driver's libraries in the order of their paths. Unreadable and replaced files are left out."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    found = (_MAPPED.fullmatch(line) for line in lines)  # "... (deleted)" does not match.
    paths = sorted({Path(one[1]) for one in found if one is not None})
    libraries = [_library(path) for path in paths if path.name.startswith(_NAMES)]
    return tuple(one for one in libraries if one is not None)[:_LIBRARIES_MAX]


def _library(path: Path) -> "Library | None":
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return None
    return Library(path.name[:96], str(path), digest.digest())
