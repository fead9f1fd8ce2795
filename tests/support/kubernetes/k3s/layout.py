"""Where K3s keeps what it has, below its data directory and outside of it."""

from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes.flags import Files

VERSION = "v1.36.3+k3s1"
PARTS = Path("/opt/kubernetes-parts")
"""The real programs. K3s unpacks its own below the data directory; a local machine has them here from outside."""
AUXILIARY = PARTS / "aux"
"""Tools for packet filters, which K3s has among its own."""
API_PORT = 6444
"""The real API server, on loopback. Everybody else speaks to the supervisor."""
NODE_PASSWORD = Path("/etc/rancher/node/password")
ADMIN_KUBECONFIG = Path("/etc/rancher/k3s/k3s.yaml")
CONFIG = Path("/etc/rancher/k3s/config.yaml")
RUN = Path("/run/k3s")


@dataclass(frozen=True, slots=True)
class Layout:
    data: Path = Path("/var/lib/rancher/k3s")

    @property
    def server(self) -> Path:
        return self.data / "server"

    @property
    def tls(self) -> Files:
        return Files(self.server / "tls")

    @property
    def agent(self) -> Path:
        return self.data / "agent"

    @property
    def images(self) -> Path:
        """Archives that an agent imports when it starts."""
        return self.agent / "images"

    @property
    def tools(self) -> Path:
        """Where K3s unpacks what it has inside."""
        return self.data / "data" / "current" / "bin"

    @property
    def cni(self) -> Path:
        return self.agent / "etc" / "cni" / "net.d"

    @property
    def containerd(self) -> Path:
        return self.agent / "containerd"

    @property
    def containerd_config(self) -> Path:
        return self.agent / "etc" / "containerd" / "config.toml"

    @property
    def socket(self) -> Path:
        return RUN / "containerd" / "containerd.sock"
