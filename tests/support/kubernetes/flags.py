"""The command lines of a control plane, from values alone.

They are what kubeadm and K3s pass where it matters to a client: Node and RBAC authorization, NodeRestriction, bootstrap
tokens, aggregated APIs. The rest is for a machine that runs one control plane for itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

UNTHROTTLED = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""By default a component sends 20 requests a second, so that 500 jobs take minutes."""


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peers: int
    api: int
    controllers: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Files:
    """Where a control plane keeps its certificates and kubeconfigs, all in one folder."""

    folder: Path

    def pair(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key."""
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    @property
    def service_accounts(self) -> tuple[Path, Path]:
        """The public and the private key for tokens of service accounts."""
        return self.folder / "service.pub", self.folder / "service.key"


@dataclass(frozen=True, slots=True)
class Ranges:
    pods: str = "10.42.0.0/16"
    services: str = "10.43.0.0/16"


def etcd(data: Path, ports: Ports) -> list[str]:
    clients, peers = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peers}"
    return _flags(
        {
            "data-dir": data,
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
        },
        "--unsafe-no-fsync",  # A test's cluster does not outlive a power cut.
    )


def api_server(
    files: Files, ports: Ports, ranges: Ranges, *, issuer: str, more: Sequence[str] = ()
) -> list[str]:
    certificate, key = files.pair("serving-kube-apiserver")
    kubelet, kubelet_key = files.pair("client-kube-apiserver")
    proxy, proxy_key = files.pair("client-auth-proxy")
    public, private = files.service_accounts
    return _flags(
        {
            "etcd-servers": f"http://127.0.0.1:{ports.etcd}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",  # A loopback address is refused as an endpoint.
            "secure-port": ports.api,
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "client-ca-file": files.pair("client-ca")[0],
            "kubelet-client-certificate": kubelet,
            "kubelet-client-key": kubelet_key,
            "kubelet-preferred-address-types": "InternalIP",  # Otherwise it looks up the names of nodes.
            "service-account-issuer": issuer,
            "service-account-key-file": public,
            "service-account-signing-key-file": private,
            "service-cluster-ip-range": ranges.services,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "enable-bootstrap-token-auth": "true",
            "allow-privileged": "true",
            "profiling": "false",
            "requestheader-client-ca-file": files.pair("request-header-ca")[0],
            "requestheader-allowed-names": "system:auth-proxy",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": proxy,
            "proxy-client-key-file": proxy_key,
        },
        *more,
    )


def controller_manager(files: Files, ports: Ports, ranges: Ranges, *, more: Sequence[str] = ()) -> list[str]:
    config = files.kubeconfig("controller")
    return _flags(
        {
            **_component(config, ports.controllers),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": files.service_accounts[1],
            "root-ca-file": files.pair("server-ca")[0],
            **_signers(files),
            "allocate-node-cidrs": "true",
            "cluster-cidr": ranges.pods,
            "controllers": "*,tokencleaner,bootstrapsigner",
            "concurrent-job-syncs": 20,
        },
        *UNTHROTTLED,
        *more,
    )


def _signers(files: Files) -> dict[str, object]:
    """Client certificates come from one authority and servers' from the other, so that neither can pass for the other."""
    authorities = {
        "kube-apiserver-client": "client-ca",
        "kubelet-client": "client-ca",
        "kubelet-serving": "server-ca",
        "legacy-unknown": "server-ca",
    }
    settings: dict[str, object] = {}
    for signer, authority in authorities.items():
        certificate, key = files.pair(authority)
        settings |= {
            f"cluster-signing-{signer}-cert-file": certificate,
            f"cluster-signing-{signer}-key-file": key,
        }
    return settings


def scheduler(files: Files, ports: Ports, *, more: Sequence[str] = ()) -> list[str]:
    return _flags(_component(files.kubeconfig("scheduler"), ports.scheduler), *UNTHROTTLED, *more)


def _component(kubeconfig: Path, port: int) -> dict[str, object]:
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "leader-elect": "false",
        "profiling": "false",
    }


def _flags(settings: Mapping[str, object], *more: str) -> list[str]:
    """Later ones win: `more` comes last."""
    return [*(f"--{name}={value}" for name, value in settings.items()), *more]
