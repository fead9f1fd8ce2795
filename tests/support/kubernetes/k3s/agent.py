"""`k3s agent`: joins a cluster through the supervisor, then runs a real containerd and a real kubelet."""

import asyncio
import json
import secrets as random
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes import pki
from tests.support.kubernetes.k3s import network, node, tokens
from tests.support.kubernetes.k3s.api import ApiError, Client, basic
from tests.support.kubernetes.k3s.layout import NODE_PASSWORD, Layout
from tests.support.kubernetes.k3s.options import Options
from tests.support.kubernetes.k3s.processes import Parts, say, tell_systemd, write_private
from tests.support.kubernetes.k3s.tokens import Token, TokenError
from tests.support.kubernetes.pki import Subject

RETRY_SECONDS = 2.0
REJECTED = (
    "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server "
    "node-passwd entry, try enabling a unique node name with the --with-node-id flag"
)
CERTIFICATES = {
    "client-kubelet": "kubelet's client",
    "serving-kubelet": "kubelet's server",
    "client-kube-proxy": "kube-proxy's client",
    "client-k3s-controller": "K3s' own client",
}


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    addresses: tuple[str, ...]
    password: str

    def headers(self) -> dict[str, str]:
        return {
            "k3s-Node-Name": self.name,
            "k3s-Node-Password": self.password,
            "k3s-Node-IP": ",".join(self.addresses),
        }


async def run(options: Options, layout: Layout) -> None:
    """Runs until a part ends. Raises PartEndedError, TokenError or OSError."""
    parts = Parts()
    url, token = options.one("server"), options.secret("token")
    joined = (layout.agent / "client-kubelet.crt").exists()
    if not url.startswith("https://"):
        raise TokenError("--server is required and must be an https URL")
    if not token and not joined:
        raise TokenError("--token is required")
    await start(parts, options, layout, url, token)
    await parts.wait()


async def start(parts: Parts, options: Options, layout: Layout, url: str, token: str | None) -> str:
    """Join, and start the parts of a node; its name. Tries again for ever, as K3s does, and says why each time."""
    for folder in (layout.agent, layout.cni, layout.containerd_config.parent, layout.images):
        folder.mkdir(parents=True, exist_ok=True)
    identity = _identity(options)
    while True:
        try:
            settings = await asyncio.to_thread(_join, identity, layout, url, token)
            break
        except (ApiError, TokenError) as error:
            say(f"level=error msg={_told(error)!r}")
            await asyncio.sleep(RETRY_SECONDS)
    machine = node.Node(identity.name, identity.addresses, url, options, layout, settings)
    await machine.start(parts)
    asyncio.get_running_loop().create_task(network.keep(machine, options))
    await parts.until("the node is registered", machine.is_registered)
    tell_systemd("READY=1")
    say(f'level=info msg="k3s agent is up and running" node={identity.name}')
    return identity.name


def _told(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403 and "hash does not match" in str(error):
        return REJECTED
    return str(error)


def own_address() -> str:
    """The address that this machine sends from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return str(socket.gethostbyname(socket.gethostname()))


def _identity(options: Options) -> Identity:
    name = options.one("node-name", socket.gethostname()).lower()
    if not NODE_PASSWORD.exists():
        write_private(NODE_PASSWORD, f"{random.token_hex(16)}\n".encode())
    addresses = tuple(options.all("node-ip")) or (own_address(),)
    return Identity(name, addresses, NODE_PASSWORD.read_text().strip())


def _join(identity: Identity, layout: Layout, url: str, text: str | None) -> dict[str, object]:
    """Fetch the authorities and the certificates, and what the server tells agents. Raises ApiError or TokenError."""
    token = tokens.parse(text) if text else None
    authority = _authority(layout, url, token)
    session = _session(layout, url, authority, token)
    for name in CERTIFICATES:
        _fetch(session, identity, layout, name)
    for name in ("client-ca", "server-ca"):
        (layout.agent / f"{name}.crt").write_bytes(session.send("GET", f"/v1-k3s/{name}.crt"))
    settings: dict[str, object] = json.loads(session.send("GET", "/v1-k3s/config"))
    return settings


def _authority(layout: Layout, url: str, token: Token | None) -> bytes:
    """What the server says its authority is, held against the token before anything is sent."""
    authority = Client(url, None).send("GET", "/cacerts")
    if token is not None:
        tokens.check(token, authority)
    known = layout.agent / "server-ca.crt"
    if token is None and known.read_bytes() != authority:
        raise TokenError("the server has another authority than the one that this node joined")
    return authority


def _session(layout: Layout, url: str, authority: bytes, token: Token | None) -> Client:
    """With the kubelet's certificate once there is one: a token ends, and a node that has joined needs none."""
    pair = layout.agent / "client-kubelet.crt", layout.agent / "client-kubelet.key"
    if pair[0].exists():
        session = Client(url, authority, pair)
        try:
            session.send("GET", "/v1-k3s/apiservers")
        except ApiError as error:
            if token is None or error.status == 0:
                raise
        else:
            return session
    assert token is not None
    if token.is_bootstrap:
        return Client(url, authority, headers={"Authorization": f"Bearer {token.secret}"})
    return Client(url, authority, headers=basic("node", token.secret))


def _fetch(session: Client, identity: Identity, layout: Layout, name: str) -> None:
    key = layout.agent / f"{name}.key"
    if not key.exists():
        write_private(key, pki.new_key())
    request = pki.new_request(key.read_bytes(), Subject(identity.name))
    answer = session.send(
        "POST", f"/v1-k3s/{name}.crt", request, kind="application/x-pem-file", headers=identity.headers()
    )
    Path(layout.agent / f"{name}.crt").write_bytes(answer)
