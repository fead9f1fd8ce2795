"""Builds the agent as one file that needs nothing but Python on the other side.

The same sources give the same bytes, and so the same digest, on every replica: fixed order, fixed
timestamps, and members stored uncompressed (deflate's output differs between zlib builds). 570 kB
travel once per machine.
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
"""What runs on a machine, each with everything in it. The folders above them send along their `__init__.py` only."""
_START = """import sys

from data_plane.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # The oldest time a zip can tell.


@dataclass(frozen=True, slots=True)
class AgentBundle:
    """The agent as one zipapp. Its digest is its name on the machine."""

    content: bytes
    sha256: str
    """Lower-case hex of `content`."""


def build_agent() -> AgentBundle:
    """Make the agent from the installed sources.

    Raises FileNotFoundError or PackageNotFoundError if the installation is not whole.
    """
    members = {f"data_plane/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in _files()}
    members["__main__.py"] = _START.encode()
    members["pynvml.py"] = _nvml_bindings()
    content = _zip(members)
    return AgentBundle(content, hashlib.sha256(content).hexdigest())


def _files() -> list[Path]:
    """Every Python file of the folders, and what makes packages of the folders above them."""
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
