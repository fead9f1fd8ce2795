"""What the control plane writes for the agent of a machine, and how the agent says that it has to go.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from data_plane.documents import records, strict
from data_plane.documents.heartbeat import PORT
from data_plane.documents.records import Text, Whole
from data_plane.documents.sample import SECONDS as SAMPLE_SECONDS
from data_plane.documents.sample_delivery import PORT as SAMPLES_PORT

POD_ADDRESSES = "/var/lib/cni/networks/cbr0"
"""On a node of a cluster, where each address that a pod has is the name of a file. The network of flannel on K3s is
called `cbr0` (pkg/agent/flannel/setup.go)."""
ENDED = 86
"""The exit status upon which systemd removes the agent from the machine."""
SECONDS = 60
"""Between two heartbeats."""
_BYTES_MAX = 4096


@dataclass(frozen=True)
class Config:
    credential: Annotated[str, Text("[0-9a-f]{64}")]
    """A secret, good for reports of one lease."""
    hub: Annotated[str, Text(r"[0-9.]{7,15}")]
    """The hub's address inside the tunnel."""
    own: Annotated[str, Text(r"[0-9.]{7,15}")]
    """The machine's own address inside the tunnel."""
    port: Annotated[int, Whole(1, 65535)] = PORT
    seconds: Annotated[int, Whole(1, 3600)] = SECONDS
    samples_port: Annotated[int, Whole(1, 65535)] = SAMPLES_PORT
    sample_seconds: Annotated[int, Whole(1, 3600)] = SAMPLE_SECONDS

    def __repr__(self) -> str:
        return f"Config(hub={self.hub})"  # Tracebacks and logs must not show the credential.


def read_config(path: Path) -> Config:
    """Raises OSError and strict.Malformed."""
    return records.read(Config, strict.load(path.read_bytes(), _BYTES_MAX), "configuration")
