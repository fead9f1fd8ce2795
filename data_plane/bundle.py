"""Builds the agent as one file that needs nothing but Python on the other side.

The same sources give the same bytes, and so the same digest, on every replica: fixed order, fixed
timestamps, and members stored uncompressed (deflate's output differs between zlib builds). 570 kB
travel once per machine.
"""

import hashlib
import importlib.metadata
import io
import zipfile
from pathlib import Path

from data_plane.access.port import AgentBundle

_HERE = Path(__file__).resolve().parent
_OURS = (
    "__init__.py",
    "health.py",
    "inventory.py",
    "protocol.py",
    "records.py",
    "strict.py",
    "agent/__init__.py",
    "agent/__main__.py",
    "agent/attestation.py",
    "agent/claims.py",
    "agent/cuda.py",
    "agent/cuda_context.py",
    "agent/cuda_device.py",
    "agent/cuda_errors.py",
    "agent/cuda_machine.py",
    "agent/device.py",
    "agent/emulated.py",
    "agent/emulation.py",
    "agent/events.py",
    "agent/groups.py",
    "agent/guard.py",
    "agent/host.py",
    "agent/identity.py",
    "agent/inventory.py",
    "agent/kernel_log.py",
    "agent/kernel_log_source.py",
    "agent/libraries.py",
    "agent/library.py",
    "agent/mig.py",
    "agent/nvml.py",
    "agent/prove.py",
    "agent/prover.py",
    "agent/schedule.py",
    "agent/topology.py",
    "agent/ward.py",
    "agent/xids.py",
    "proof/__init__.py",
    "proof/commitments.py",
    "proof/kernels.py",
    "proof/messages.py",
    "proof/wire.py",
    "proof/arithmetic/__init__.py",
    "proof/arithmetic/constants.py",
    "proof/arithmetic/launches.py",
)
_EMULATION = (
    "proof/arithmetic/fill.py",
    "proof/arithmetic/mixing.py",
    "proof/arithmetic/tiles.py",
    "proof/arithmetic/walk.py",
    "proof/emulation/__init__.py",
    "proof/emulation/cards.py",
    "proof/emulation/device.py",
    "proof/emulation/machine.py",
)
"""What only a machine with emulated GPUs runs, and the only files that need more than Python itself: numpy."""
_START = """import sys

from data_plane.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # The oldest time a zip can tell.


def build_agent() -> AgentBundle:
    """Make the agent from the installed sources.

    Raises FileNotFoundError or PackageNotFoundError if the installation is not whole.
    """
    members = {f"data_plane/{name}": (_HERE / name).read_bytes() for name in _OURS + _EMULATION}
    members["__main__.py"] = _START.encode()
    members["pynvml.py"] = _nvml_bindings()
    content = _zip(members)
    return AgentBundle(content, hashlib.sha256(content).hexdigest())


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
