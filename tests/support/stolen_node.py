"""What whoever has the files of one node gets: each file with a secret is found, and everything is tried with each.

The files and the attempts are those of docs/security.md, and so are the results.
"""

import asyncio
import base64
import re
import shlex
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncssh
import httpx2

from control_plane.world import utc_now
from data_plane.cluster import node as in_cluster
from data_plane.cluster.bootstrap_token import admit_machine, withdraw
from data_plane.cluster.connection import tls
from data_plane.cluster.objects.admission import FLANNEL
from data_plane.cluster.objects.bootstrap_token import BootstrapToken
from data_plane.cluster.objects.kubeconfig import kubeconfig
from data_plane.cluster.objects.node import joining_taint
from data_plane.cluster.objects.tenant import NODE_PROJECT, Tenant
from data_plane.cluster.port import ClientCertificate, Cluster, KubernetesPort, Token
from data_plane.cluster.resource import NODE, Object, head
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes import pki
from tests.support.kubernetes.clients import eventually, merge
from tests.support.kubernetes.parts import parts
from tests.support.kubernetes.pki import Subject
from tests.support.machines import Machine

AGENT = "/var/lib/rancher/k3s/agent"
KUBELET, PROXY, OWN = "the kubelet's certificate", "kube-proxy's certificate", "K3s' own certificate"
TOKEN, LEFT = "a bootstrap token", "the kubelet's certificate, after the node left"
PASSWORD, HOST_KEY, TUNNEL = "the node's password alone", "the SSH host key", "the WireGuard key"
NEIGHBOUR = "sp-neighbour"
TOKEN_LIFE = timedelta(minutes=10)
PAIRS = {KUBELET: "client-kubelet", PROXY: "client-kube-proxy", OWN: "client-k3s-controller"}
PORTS_OF_SERVER = {22, 6443, 10250}
"""What listens on the server of a cluster, and not on its loopback: sshd, the API, the kubelet."""
_ANYWHERE = "192.0.2.7"
SUPERVISOR = ("token", "server-bootstrap", "cert/cacerts", "encrypt/status", "encrypt/config")

# Whatever may hold a secret. File systems of containers are the tenant's own images.
_LOOK = r"""
grep -rlIsE --exclude-dir=containerd -e 'PRIVATE KEY-----' -e 'client-key-data' -e 'K10[0-9a-f]{64}::' \
  -e 'eyJ[A-Za-z0-9_-]{10,}\.eyJ' -e '^[A-Za-z0-9+/]{43}=$' -e '^[0-9a-f]{32}$' \
  /etc /root /home /run /srv /opt /var/lib /var/tmp /tmp 2>/dev/null |
  grep -v -e /machine-id$ -e ^/run/systemd/ -e ^/var/lib/dpkg/ -e ^/opt/kubernetes-parts/ -e ^/etc/ssl/certs/ || true
"""
_COPIES = re.compile(r"/var/lib/cloud/|/run/cloud-init/|/var/lib/kubelet/pods/[^/]+/volumes/")
"""cloud-init keeps what the machine was started with, the SSH host key, and the kubelet what its pods use."""


async def files_with_secrets(machine: Machine) -> set[str]:
    """Those of a node, without copies and without what its pods use."""
    found = (await _as_root(machine, _LOOK)).split()
    return {path for path in found if not _COPIES.match(path)}


async def listening(machine: Machine) -> set[int]:
    """The TCP ports that are open to others."""
    lines = (await _as_root(machine, "ss -Htln")).splitlines()
    ends = [line.split()[3].rpartition(":") for line in lines]
    return {int(port) for host, _, port in ends if not host.startswith(("127.", "[::1]"))}


async def _as_root(machine: Machine, command: str) -> str:
    return (await machine.sh(f"sudo sh -c {shlex.quote(command)}")).strip()


@dataclass(frozen=True)
class Place:
    """A cluster, and the node in it of which somebody has the files."""

    endpoint: str
    """Where everybody reaches the API server."""
    authority: str
    server_name: str
    """That of the server's certificate."""
    admin: KubernetesPort
    machine: Machine
    node: str
    server: Machine
    server_node: str
    server_address: str
    """In the overlay."""


@dataclass
class Thief:
    """Somebody with the files of a node, on its machine or anywhere else."""

    place: Place
    pairs: Mapping[str, ClientCertificate]
    password: str
    token: BootstrapToken
    """A token with which a machine is joining just now."""

    def client(self, credential: str | ClientCertificate | None = None) -> httpx2.AsyncClient:
        authority = self.place.authority
        pair = self.pairs.get(credential) if isinstance(credential, str) else credential
        verify = ssl.create_default_context(cadata=authority)
        if pair is not None:
            verify = tls(Cluster(self.place.endpoint, authority, pair))
        return httpx2.AsyncClient(base_url=self.place.endpoint, verify=verify, timeout=20)

    async def gets(self, credential: str, *paths: str) -> bool:
        async with self.client(credential) as client:
            return any([(await client.get(path)).is_success for path in paths])

    async def posts(self, credential: str | ClientCertificate, path: str, body: object) -> bool:
        async with self.client(credential) as client:
            return (await client.post(path, json=body)).is_success

    async def changes(self, credential: str, path: str, *changes: Object) -> bool:
        """Whether any of these merge patches is taken."""
        async with self.client(credential) as client:
            return any([(await merge(client, path, change)).is_success for change in changes])

    async def certificate(
        self, kind: str, node: str, credential: str, address: str = _ANYWHERE
    ) -> ClientCertificate | None:
        """One of K3s' for a key of the thief's; None when it is refused."""
        key = pki.new_key()
        headers = {"k3s-Node-Name": node, "k3s-Node-Password": self.password, "k3s-Node-IP": address}
        if credential == TOKEN:
            headers["Authorization"] = f"Bearer {self.token.id}.{self.token.secret}"
        async with self.client(credential) as client:
            request = pki.new_request(key, Subject(node))
            answer = await client.post(f"/v1-k3s/{kind}.crt", content=request, headers=headers)
        assert answer.is_success or answer.status_code in (401, 403), answer.text
        return ClientCertificate(answer.text, key.decode()) if answer.is_success else None

    async def on_node(self, program: str) -> bool:
        """Whether a program in Python succeeds on the node's machine."""
        command = f"python3 -c {shlex.quote(program)} 2>/dev/null && echo yes || true"
        return await _as_root(self.place.machine, command) == "yes"


async def thief_at(place: Place) -> Thief:
    """With a neighbour in the cluster, another organization's node."""
    machine = place.machine

    async def read(name: str) -> str:
        return await _as_root(machine, f"cat {AGENT}/{name}") + "\n"

    pairs = {
        what: ClientCertificate(await read(f"{name}.crt"), await read(f"{name}.key"))
        for what, name in PAIRS.items()
    }
    token = BootstrapToken("thief0", "0123456789abcdef")
    password = await _as_root(machine, "cat /etc/rancher/node/password")
    neighbour = Thief(place, pairs, "another password", token)
    await _joins(neighbour, NEIGHBOUR)
    await admit_machine(place.admin, token, "sp-joining", _ANYWHERE, now=utc_now(), life=TOKEN_LIFE)
    return Thief(place, pairs, password, token)


async def _joins(thief: Thief, node: str) -> ClientCertificate:
    """A machine becomes a node as it should, without a kubelet; the certificate that it has from then on."""
    await admit_machine(thief.place.admin, thief.token, node, _ANYWHERE, now=utc_now(), life=TOKEN_LIFE)
    pair = await thief.certificate("client-kubelet", node, TOKEN)
    assert pair is not None

    async def registered() -> bool:
        return await thief.posts(pair, "/api/v1/nodes", _node(node))

    await eventually(f"{node} registers", registered)
    return pair


def _node(name: str) -> Object:
    return {**head(NODE, name), "spec": {"taints": [joining_taint()]}}


async def _signed_by_kubernetes(thief: Thief) -> bool:
    request = pki.new_request(pki.new_key(), Subject(f"system:node:{NEIGHBOUR}", ("system:nodes",)))
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["client auth", "digital signature"],
    }
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    async with thief.client(KUBELET) as client:
        made = await client.post(path, json={"metadata": {"generateName": "stolen-"}, "spec": spec})
        if not made.is_success:
            return False
        await asyncio.sleep(1)  # What Kubernetes approves by itself, it approves at once.
        shown = (await client.get(f"{path}/{made.json()['metadata']['name']}")).json()
    return "certificate" in shown["status"]


async def _is_taken_for_another_node(thief: Thief) -> bool:
    """K3s reaches a kubelet through the tunnel of the node that has said its address last."""
    own = (await thief.place.admin.get(NODE, thief.place.node))["status"]["addresses"]
    of_others = [
        {"type": kind, "address": address}
        for kind in ("InternalIP", "ExternalIP")
        for address in (thief.place.server_address, _ANYWHERE)
    ]
    changes: list[Object] = [{"status": {"addresses": [*own, other]}} for other in of_others]
    taken = await thief.changes(KUBELET, f"/api/v1/nodes/{thief.place.node}/status", *changes)
    await thief.changes(KUBELET, f"/api/v1/nodes/{thief.place.node}/status", {"status": {"addresses": own}})
    return taken


async def _asks_kubelet_of_server(thief: Thief) -> bool:
    return await thief.on_node(
        "import ssl, urllib.request as u; c = ssl._create_unverified_context();"
        f"c.load_cert_chain('{AGENT}/client-kubelet.crt', '{AGENT}/client-kubelet.key');"
        f"u.urlopen('https://{thief.place.server_address}:10250/pods', context=c, timeout=5)"
    )


async def _answers_dns(thief: Thief) -> bool:
    """Whether a pod that its kubelet claims to run gets the label by which the Service of the cluster's DNS selects."""
    node = await thief.place.admin.get(NODE, thief.place.node)
    owner = {"apiVersion": "v1", "kind": "Node", "name": thief.place.node, "uid": node["metadata"]["uid"]}
    metadata = {
        "name": "sp-mirror",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "labels": {"k8s-app": "kube-dns"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    spec = {
        "nodeName": thief.place.node,
        "automountServiceAccountToken": False,
        "containers": [{"name": "x", "image": "x"}],
        "tolerations": [{"operator": "Exists"}],
    }
    return await thief.posts(
        KUBELET, "/api/v1/namespaces/kube-system/pods", {"metadata": metadata, "spec": spec}
    )


async def _poses(thief: Thief, credential: str, node: str) -> bool:
    """Whether kubectl, with a kubeconfig of ours, talks to a server with a certificate that K3s signs for a node."""
    pair = await thief.certificate("serving-kubelet", node, credential, "127.0.0.1")
    assert pair is not None
    names = ["localhost", thief.place.server_name]  # The first is in every certificate of a node.
    talked = [await _talks(thief, pair, name) for name in names]
    assert talked[0], "the thief's server works"
    return talked[1]


def _kubeconfig(place: Place, endpoint: str, name: str) -> str:
    tenant, token = Tenant("org_1", "prj_1"), Token("a-token")
    return kubeconfig(
        name="x", endpoint=endpoint, authority=place.authority, server_name=name, tenant=tenant, token=token
    )


async def _talks(thief: Thief, pair: ClientCertificate, name: str) -> bool:
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with TemporaryDirectory() as folder:
        held, path = Path(folder, "pair.pem"), Path(folder, "kubeconfig")
        await asyncio.to_thread(held.write_text, pair.certificate + pair.key)
        context.load_cert_chain(held)
        async with await asyncio.start_server(hear, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            text = _kubeconfig(thief.place, f"https://127.0.0.1:{port}", name)
            await asyncio.to_thread(path.write_text, text)
            program = parts(expected_version()) / "kubectl"
            command = [str(program), f"--kubeconfig={path}", "--request-timeout=5s", "get", "--raw=/api"]
            quiet = asyncio.subprocess.DEVNULL
            done = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
            await done.wait()
    return b"".join(heard) != b""


async def _reaches(thief: Thief, ports: set[int], *, every: bool) -> bool:
    connect = f"s.create_connection(('{thief.place.server_address}', {{}}), 2).close()"
    found = [await thief.on_node(f"import socket as s; {connect.format(port)}") for port in sorted(ports)]
    return all(found) if every else any(found)


async def _registers_with_token(thief: Thief) -> bool:
    pair = await thief.certificate("client-kubelet", "sp-other", TOKEN)
    assert pair is not None, "K3s gives a certificate for any name that is free"
    return await thief.posts(pair, "/api/v1/nodes", _node("sp-other"))


async def _registers_after_it_left(thief: Thief) -> bool:
    """A node that joins as it should, and leaves."""
    pair, port = await _joins(thief, "sp-left"), thief.place.admin

    async def registered() -> bool:
        return await thief.posts(pair, "/api/v1/nodes", _node("sp-left"))

    await withdraw(port, thief.token.id, "sp-left")
    await in_cluster.forget(port, "sp-left")

    async def stays_out() -> bool:
        """The API server has heard that it is not expected any more."""
        if not await registered():
            return True
        await in_cluster.forget(port, "sp-left")
        return False

    await eventually("it is not expected any more", stays_out)
    again = await registered()
    await admit_machine(port, thief.token, "sp-joining", _ANYWHERE, now=utc_now(), life=TOKEN_LIFE)
    return again


async def _logs_in(thief: Thief) -> bool:
    text = await _as_root(thief.place.machine, "cat /etc/ssh/ssh_host_ed25519_key")
    key = asyncssh.import_private_key(text + "\n")
    for user in ("splitplane", "ubuntu", "root"):
        try:
            await thief.place.server.sh("true", user=user, login=key)
        except asyncssh.Error:
            continue
        return True
    return False


async def _is_issued(thief: Thief, kind: str, node: str, credential: str, *address: str) -> bool:
    return await thief.certificate(kind, node, credential, *address) is not None


def _metadata(change: Object) -> Object:
    return {"metadata": change}


def _flannel(name: str, value: str) -> Object:
    return _metadata({"annotations": {f"{FLANNEL}/{name}": value}})


def _device(mac: str) -> Object:
    """The network device of a node, which flannel makes with this MAC at its next start."""
    return _flannel("backend-data", f'{{"VNI":1,"VtepMAC":"{mac}"}}')


async def _keeps_from_starting(thief: Thief) -> bool:
    """With a device that no kernel makes: K3s ends when flannel cannot make it."""
    group, long = _device("03:00:5e:00:00:01"), _device("02:00:00:00:00:00:00:01")
    nodes = (NEIGHBOUR, thief.place.server_node)
    return any([await thief.changes(OWN, f"/api/v1/nodes/{node}/status", group, long) for node in nodes])


Attempt = Callable[[Thief], Awaitable[bool]]
_NO_NETWORK = (("kube-subnet-manager", "false"), ("backend-type", "host-gw"))
_NETWORKING, _SLICES = "/apis/networking.k8s.io/v1", "/apis/discovery.k8s.io/v1/endpointslices"
_ANOTHER = f"/api/v1/nodes/{NEIGHBOUR}/status"
_CHANGES_OF_METADATA: tuple[Object, ...] = (
    {"labels": {NODE_PROJECT: "prj_other"}},
    {"labels": {"a": "b"}},
    {"finalizers": ["example.com/stay"]},
    {"annotations": {"a": "b"}},
    {"annotations": {f"{FLANNEL}/public-ip-overwrite": "192.0.2.7"}},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]},
)
_POD = {"metadata": {"generateName": "x"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
ATTEMPTS: Mapping[tuple[str, str], Attempt] = {
    (KUBELET, "get another certificate of its node"): lambda t: _is_issued(
        t, "client-kubelet", t.place.node, KUBELET
    ),
    (KUBELET, "get a certificate of another node"): lambda t: _is_issued(
        t, "client-kubelet", NEIGHBOUR, KUBELET
    ),
    (KUBELET, "get a certificate of the server's node"): lambda t: _is_issued(
        t, "client-kubelet", t.place.server_node, KUBELET
    ),
    (KUBELET, "get a certificate of a node that is not there"): lambda t: _is_issued(
        t, "client-kubelet", "sp-other", KUBELET
    ),
    (KUBELET, "have Kubernetes sign a certificate of another node"): _signed_by_kubernetes,
    (KUBELET, "get a certificate for a server at the address of the cluster's"): lambda t: _is_issued(
        t, "serving-kubelet", t.place.node, KUBELET, t.place.server_address
    ),
    (KUBELET, "pose as the server to kubectl with such a certificate"): lambda t: _poses(
        t, KUBELET, t.place.node
    ),
    (
        KUBELET,
        "have the API server take its node for another one, or for the server",
    ): _is_taken_for_another_node,
    (KUBELET, "read K3s' tokens, keys of authorities or settings of encryption"): lambda t: t.gets(
        KUBELET, *(f"/v1-k3s/{path}" for path in SUPERVISOR)
    ),
    (KUBELET, "ask the server's kubelet what runs there"): _asks_kubelet_of_server,
    (KUBELET, "put a pod with the label of the cluster's DNS into its namespace"): _answers_dns,
    (OWN, "list all pods"): lambda t: t.gets(OWN, "/api/v1/pods"),
    (OWN, "list all namespaces"): lambda t: t.gets(OWN, "/api/v1/namespaces"),
    (OWN, "list all NetworkPolicies"): lambda t: t.gets(OWN, f"{_NETWORKING}/networkpolicies"),
    (OWN, "list all Endpoints"): lambda t: t.gets(OWN, "/api/v1/endpoints"),
    (OWN, "list all EndpointSlices or Services"): lambda t: t.gets(OWN, _SLICES, "/api/v1/services"),
    (OWN, "read another Node"): lambda t: t.gets(OWN, f"/api/v1/nodes/{NEIGHBOUR}"),
    (OWN, "list all Nodes"): lambda t: t.gets(OWN, "/api/v1/nodes"),
    (OWN, "list Secrets or ConfigMaps"): lambda t: t.gets(OWN, "/api/v1/secrets", "/api/v1/configmaps"),
    (OWN, "change labels, finalizers, annotations or owners of another Node"): lambda t: t.changes(
        OWN, _ANOTHER, *(_metadata(change) for change in _CHANGES_OF_METADATA)
    ),
    (OWN, "say that another Node is not ready, or what it has"): lambda t: t.changes(
        OWN,
        _ANOTHER,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"capacity": {"nvidia.com/gpu": "64"}}},
    ),
    (OWN, "say at which address another Node's kubelet or its pods are"): lambda t: t.changes(
        OWN,
        _ANOTHER,
        {"status": {"addresses": [{"type": "InternalIP", "address": _ANYWHERE}]}},
        _metadata({"annotations": {f"{FLANNEL}/public-ip": _ANYWHERE}}),
    ),
    (OWN, "have other nodes forget another Node's network"): lambda t: t.changes(
        OWN, _ANOTHER, *(_flannel(name, value) for name, value in _NO_NETWORK)
    ),
    (OWN, "keep K3s on another node, or on the server, from starting again"): _keeps_from_starting,
    (OWN, "have other nodes lose the way to another Node's pods"): lambda t: t.changes(
        OWN, _ANOTHER, _device("02:00:00:00:00:01")
    ),
    (OWN, "create a pod"): lambda t: t.posts(OWN, "/api/v1/namespaces/default/pods", _POD),
    (PROXY, "list all Nodes"): lambda t: t.gets(PROXY, "/api/v1/nodes"),
    (PROXY, "list all Services"): lambda t: t.gets(PROXY, "/api/v1/services"),
    (PROXY, "list all EndpointSlices"): lambda t: t.gets(PROXY, _SLICES),
    (PROXY, "list pods, Secrets or ConfigMaps"): lambda t: t.gets(
        PROXY, "/api/v1/pods", "/api/v1/secrets", "/api/v1/configmaps"
    ),
    (PROXY, "change a Service"): lambda t: t.posts(
        PROXY,
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}},
    ),
    (TOKEN, "get a certificate of a node that has joined"): lambda t: _is_issued(
        t, "client-kubelet", NEIGHBOUR, TOKEN
    ),
    (TOKEN, "get a certificate of a node that is not there"): lambda t: _is_issued(
        t, "client-kubelet", "sp-other", TOKEN
    ),
    (TOKEN, "register a Node with that certificate"): _registers_with_token,
    (TOKEN, "get a certificate with the name of the server"): lambda t: _is_issued(
        t, "serving-kubelet", t.place.server_name.upper(), TOKEN
    ),
    (TOKEN, "pose as the server to kubectl with a certificate for all names"): lambda t: _poses(
        t, TOKEN, "*"
    ),
    (LEFT, "register again"): _registers_after_it_left,
    (PASSWORD, "get a certificate of its node"): lambda t: _is_issued(
        t, "client-kubelet", t.place.node, PASSWORD
    ),
    (HOST_KEY, "log in to another machine"): _logs_in,
    (TUNNEL, "reach TCP ports 22, 6443 and 10250 of the server"): lambda t: _reaches(
        t, PORTS_OF_SERVER, every=True
    ),
    (TUNNEL, "reach ports of the server's etcd, controllers and scheduler"): lambda t: _reaches(
        t, {2379, 2380, 6444, 10248, 10257, 10259}, every=False
    ),
}


async def tried(thief: Thief) -> dict[tuple[str, str], bool]:
    """What works."""
    results = {what: await attempt(thief) for what, attempt in ATTEMPTS.items()}
    await withdraw(thief.place.admin, thief.token.id, "sp-joining")
    for name in ("sp-other", "sp-left", NEIGHBOUR):
        await in_cluster.forget(thief.place.admin, name)
    return results
