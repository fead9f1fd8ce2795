"""All keys, certificates and kubeconfigs of a control plane, under the names that K3s gives them."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.support.kubernetes import pki
from tests.support.kubernetes.flags import Files
from tests.support.kubernetes.pki import Pair, Subject

AUTHORITIES = {
    "server-ca": "k3s-server-ca",
    "client-ca": "k3s-client-ca",
    "request-header-ca": "k3s-request-header-ca",
}
CLIENTS = {
    "client-admin": ("client-ca", Subject("system:admin", ("system:masters",))),
    "client-controller": ("client-ca", Subject("system:kube-controller-manager")),
    "client-scheduler": ("client-ca", Subject("system:kube-scheduler")),
    "client-kube-apiserver": ("client-ca", Subject("system:apiserver", ("system:masters",))),
    "client-auth-proxy": ("request-header-ca", Subject("system:auth-proxy")),
}
"""By file: which authority issues it, and whom it names."""
KUBECONFIGS = ("admin", "controller", "scheduler")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Those of one cluster, on disk in one folder."""

    files: Files

    def authority(self, name: str) -> Pair:
        return self.pair(name)

    def pair(self, name: str) -> Pair:
        certificate, key = self.files.pair(name)
        return Pair(certificate.read_bytes(), key.read_bytes())

    def client(self, subject: Subject, now: datetime) -> Pair:
        """A new client of the API server."""
        return pki.issue(self.authority("client-ca"), subject, now)


def create(folder: Path, *, server: str, names: Sequence[str], now: datetime) -> Credentials:
    """Make whatever is not in the folder yet. `server` is the API server's URL, `names` what its certificate is for."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Credentials(Files(folder))
    for name, title in AUTHORITIES.items():
        if not made.files.pair(name)[0].exists():
            _write(made.files.pair(name), pki.new_authority(title, now))
    for name, (authority, subject) in CLIENTS.items():
        _write(made.files.pair(name), pki.issue(made.authority(authority), subject, now))
    serving = pki.issue(made.authority("server-ca"), Subject("kube-apiserver"), now, names=names)
    _write(made.files.pair("serving-kube-apiserver"), serving)
    _write_service_account_keys(made.files)
    for name in KUBECONFIGS:
        text = kubeconfig(server, made.authority("server-ca").certificate, made.pair(f"client-{name}"))
        _write_private(made.files.kubeconfig(name), text.encode())
    return made


def kubeconfig(server: str, authority: bytes, client: Pair) -> str:
    """A kubeconfig with everything in it, as JSON, which YAML contains."""
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    user = {"client-certificate-data": _base64(client.certificate), "client-key-data": _base64(client.key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "default", "cluster": cluster}],
            "users": [{"name": "default", "user": user}],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
            "current-context": "default",
        },
        indent=1,
    )


def _write_service_account_keys(files: Files) -> None:
    public, private = files.service_accounts
    if not private.exists():
        _write_private(private, pki.new_key())
    public.write_bytes(pki.public_half(private.read_bytes()))


def _write(paths: tuple[Path, Path], pair: Pair) -> None:
    paths[0].write_bytes(pair.certificate)
    _write_private(paths[1], pair.key)


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
