"""`k3s server`: etcd and the real control plane, behind the supervisor."""

import asyncio
import itertools
import secrets as random
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.support.kubernetes import flags
from tests.support.kubernetes.credentials import Credentials, create, kubeconfig
from tests.support.kubernetes.flags import Ports, Ranges
from tests.support.kubernetes.k3s import agent, passwords, tokens
from tests.support.kubernetes.k3s.api import ApiError, Client
from tests.support.kubernetes.k3s.layout import ADMIN_KUBECONFIG, API_PORT, PARTS, Layout
from tests.support.kubernetes.k3s.options import Options
from tests.support.kubernetes.k3s.processes import Parts, say, tell_systemd, write_private
from tests.support.kubernetes.k3s.supervisor import Secrets, Supervisor

PORTS = Ports(etcd=2379, etcd_peers=2380, api=API_PORT, controllers=10257, scheduler=10259)
SUPERVISOR_PORT = "6443"
LOOK_SECONDS = 1.0
LOOKS_FOR_ORPHANS_EVERY = 60
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES_OF_AGENTS = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["endpoints", "pods"], "verbs": ["list", "get", "watch"]},
]
"""Of the role system:k3s-controller, which every agent has (K3s' manifests/rolebindings.yaml since 1.32: flannel, which is
part of the agent, lists Nodes and writes its annotations with it)."""


async def run(options: Options, layout: Layout, now: Callable[[], datetime]) -> None:
    """Runs until a part ends. Raises PartEndedError, ApiError or OSError."""
    ranges = Ranges(options.one("cluster-cidr", "10.42.0.0/16"), options.one("service-cidr", "10.43.0.0/16"))
    port = int(options.one("https-listen-port", SUPERVISOR_PORT))
    address = options.one("advertise-address") or options.one("node-ip") or agent.own_address()
    inside = f"https://127.0.0.1:{API_PORT}"
    names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += [
        "kubernetes.default.svc.cluster.local",
        "10.43.0.1",
        socket.gethostname(),
        address,
        *options.all("tls-san"),
    ]
    made = create(layout.tls.folder, server=inside, names=list(dict.fromkeys(names)), now=now())
    admin = Client(inside, made.authority("server-ca").certificate, made.files.pair("client-admin"))
    parts = Parts()
    await _start_control_plane(parts, options, layout, ranges, admin)
    await asyncio.to_thread(_grant, admin)
    held = _write_secrets(options, layout, made)
    _write_admin_kubeconfig(options, made, port)
    enforces_policies = not options.is_on("disable-network-policy")
    supervisor = Supervisor(made, admin, held, ranges, (f"{address}:{port}",), now, enforces_policies)
    await supervisor.listen(options.one("bind-address", "0.0.0.0"), port)
    await asyncio.to_thread(passwords.migrate, admin)
    forgetting = asyncio.create_task(_forget_passwords(admin, now))
    say('level=info msg="k3s is up and running"')
    if options.is_on("disable-agent"):
        tell_systemd("READY=1")
    else:
        await agent.start(
            parts, options, layout, f"https://127.0.0.1:{port}", (layout.server / "token").read_text()
        )
    try:
        await parts.wait()
    finally:
        forgetting.cancel()


async def _forget_passwords(admin: Client, clock: Callable[[], datetime]) -> None:
    """A Node that is deleted takes its password with it. One that never registered leaves it for a while, as in K3s."""
    known: set[str] = set()
    for look in itertools.count():
        try:
            listed = await asyncio.to_thread(admin.get, "/api/v1/nodes")
            assert isinstance(listed, dict)
            now = {str(item["metadata"]["name"]) for item in listed["items"]}
            for name in known - now:
                await asyncio.to_thread(passwords.forget, admin, name)
            known = now
            if look % LOOKS_FOR_ORPHANS_EVERY == 0:
                await asyncio.to_thread(passwords.delete_orphans, admin, known, clock())
        except ApiError as error:
            say(f"level=error msg={str(error)!r}")
        await asyncio.sleep(LOOK_SECONDS)


async def _start_control_plane(
    parts: Parts, options: Options, layout: Layout, ranges: Ranges, admin: Client
) -> None:
    files = layout.tls
    data = layout.server / "db" / "etcd"
    data.parent.mkdir(parents=True, exist_ok=True)
    await parts.start("etcd", [str(PARTS / "etcd"), *flags.etcd(data, PORTS)])
    more = ["--anonymous-auth=false", *(f"--{flag}" for flag in options.each("kube-apiserver-arg"))]
    issuer = "https://kubernetes.default.svc.cluster.local"
    arguments = flags.api_server(files, PORTS, ranges, issuer=issuer, more=more)
    await parts.start("kube-apiserver", [str(PARTS / "kube-apiserver"), *arguments])

    async def is_ready() -> bool:
        try:
            await asyncio.to_thread(admin.send, "GET", "/readyz")
        except ApiError:
            return False
        return True

    await parts.until("the API server is ready", is_ready)
    more = [f"--{flag}" for flag in options.each("kube-controller-manager-arg")]
    arguments = flags.controller_manager(files, PORTS, ranges, more=more)
    await parts.start("kube-controller-manager", [str(PARTS / "kube-controller-manager"), *arguments])
    more = [f"--{flag}" for flag in options.each("kube-scheduler-arg")]
    await parts.start(
        "kube-scheduler", [str(PARTS / "kube-scheduler"), *flags.scheduler(files, PORTS, more=more)]
    )


def _grant(admin: Client) -> None:
    """What K3s' manifests give to its agents."""
    name = "system:k3s-controller"
    admin.ensure(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": RULES_OF_AGENTS})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [user]}
    admin.ensure(f"{RBAC}/clusterrolebindings", binding)


def _write_secrets(options: Options, layout: Layout, made: Credentials) -> Secrets:
    """The tokens, in files that hold them in full. A token that exists stays: it also seals what servers share."""
    authority = made.authority("server-ca").certificate
    path = layout.server / "token"
    given = options.secret("token")
    if given is None and path.exists():
        given = path.read_text()
    server = tokens.parse(given).secret if given else random.token_hex(16)
    agents = options.secret("agent-token")
    agent_secret = tokens.parse(agents).secret if agents else server
    write_private(path, f"{tokens.full(authority, f'server:{server}')}\n".encode())
    _link(layout.server / "node-token", path)
    if agents:
        write_private(
            layout.server / "agent-token", f"{tokens.full(authority, f'node:{agent_secret}')}\n".encode()
        )
        _link(layout.server / "node-token", layout.server / "agent-token")
    return Secrets(server, agent_secret)


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _write_admin_kubeconfig(options: Options, made: Credentials, port: int) -> None:
    path = Path(options.one("write-kubeconfig", str(ADMIN_KUBECONFIG)))
    text = kubeconfig(
        f"https://127.0.0.1:{port}", made.authority("server-ca").certificate, made.pair("client-admin")
    )
    write_private(path, text.encode())
    path.chmod(int(options.one("write-kubeconfig-mode", "600"), 8))
