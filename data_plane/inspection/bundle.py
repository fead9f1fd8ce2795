"""Builds what we install: the agent for machines and the collector for the hub, each one file that needs only Python.

The same sources give the same bytes, and so the same digest, on every replica: the order and the timestamps are fixed,
and the members are stored uncompressed, since deflate's output differs between zlib builds. The file has 580 kB and is
sent to each machine once.
"""

import hashlib
import importlib.metadata
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import data_plane

_ROOT = Path(data_plane.__file__).resolve().parent
FOLDERS = ("agent", "documents", "nvml", "proof/prover", "proof/protocol")
"""The folders that run on a machine. Of the folders above them only `__init__.py` is included."""
COLLECTOR_FOLDERS = ("documents", "heartbeats/collector")
"""The folders that run on the hub."""
_START = """import sys

from data_plane.{}.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # The earliest time that a zip file can store.


@dataclass(frozen=True, slots=True)
class Bundle:
    """A program as one zipapp. The agent's digest is part of its file name on the machine."""

    content: bytes
    sha256: str
    """Lower-case hex of `content`."""


def build_agent() -> Bundle:
    """Build the agent from the installed sources.

    Raises FileNotFoundError or PackageNotFoundError if the installation is incomplete.
    """
    return _bundle("agent", FOLDERS, {"pynvml.py": _nvml_bindings()})


def build_collector() -> Bundle:
    """Build the collector of heartbeats. Raises FileNotFoundError if the installation is incomplete."""
    return _bundle("heartbeats.collector", COLLECTOR_FOLDERS, {})


def _bundle(package: str, folders: tuple[str, ...], others: dict[str, bytes]) -> Bundle:
    members = {
        f"data_plane/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in _files(folders)
    }
    members["__main__.py"] = _START.format(package).encode()
    content = _zip(members | others)
    return Bundle(content, hashlib.sha256(content).hexdigest())


def _files(folders: tuple[str, ...]) -> list[Path]:
    """Every Python file of the folders, and the `__init__.py` of the folders above them."""
    above = {parent.as_posix() for folder in folders for parent in Path(folder).parents}
    packages = [_ROOT / folder / "__init__.py" for folder in sorted({*above, *folders})]
    missing = [path for path in packages if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"the sources of {folders[-1]} are incomplete: {missing[0]} is missing")
    return sorted({*packages, *(path for folder in folders for path in (_ROOT / folder).rglob("*.py"))})


def _nvml_bindings() -> bytes:
    """`pynvml.py` of the distribution nvidia-ml-py, the maintained source of that module."""
    distribution = importlib.metadata.distribution("nvidia-ml-py")
    return Path(str(distribution.locate_file("pynvml.py"))).read_bytes()


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.create_system = 3  # Unix, wherever this runs.
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, members[name])
    return buffer.getvalue()
