"""Builds the agent: one file that needs nothing but Python on the machine.

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
_START = """import sys

from data_plane.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # The earliest time that a zip file can store.


@dataclass(frozen=True, slots=True)
class AgentBundle:
    """The agent as one zipapp. On the machine, its digest is part of its file name."""

    content: bytes
    sha256: str
    """Lower-case hex of `content`."""


def build_agent() -> AgentBundle:
    """Build the agent from the installed sources.

    Raises FileNotFoundError or PackageNotFoundError if the installation is incomplete.
    """
    members = {f"data_plane/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in _files()}
    members["__main__.py"] = _START.encode()
    members["pynvml.py"] = _nvml_bindings()
    content = _zip(members)
    return AgentBundle(content, hashlib.sha256(content).hexdigest())


def _files() -> list[Path]:
    """Every Python file of the folders, and the `__init__.py` of the folders above them."""
    packages = [_ROOT / folder / "__init__.py" for folder in ("", "proof", *FOLDERS)]
    missing = [path for path in packages if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"the agent's sources are incomplete: {missing[0]} is missing")
    return sorted({*packages, *(path for folder in FOLDERS for path in (_ROOT / folder).rglob("*.py"))})


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
