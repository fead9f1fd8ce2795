"""`servers.Servers` over SSH: installs K3s from the operator's files, and removes it without a trace.

What can go wrong, and what happens then:

  - the connection breaks while files are sent: the next try continues them;
  - the installation is interrupted: the next one starts over, and changes only what differs;
  - the server does not become ready, or registers no Node: the step fails with its last log lines, without its
    credentials, and the next try begins there;
  - the process of the worker is killed: its step goes on at the host, and the next worker's waits for it there;
  - the worker stalls, and goes on when another one has taken its turn: the host refuses its next step.
"""

import base64
import binascii
import hashlib
import re

from data_plane.access.port import Access, StepFailed, Target, must
from data_plane.access.step import Answer
from data_plane.cluster import files, server_scripts
from data_plane.cluster.k3s_files import VERSION, K3sFiles
from data_plane.cluster.server_scripts import API_PORT
from data_plane.cluster.servers import ServerIdentity, ServerOrder
from data_plane.heartbeats.ssh_collector import remove_collector
from data_plane.mesh.node import apply_peers, leave_overlay, make_node_key
from data_plane.mesh.pod_filter import INTERFACE

NODE_REGISTERS_SECONDS = 120
"""How long a server whose API is ready may take for its own Node. It reads its images before."""
_CA = re.compile(r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]{1,20000}-----END CERTIFICATE-----\n?")


class SshServers:
    def __init__(self, access: Access, k3s: K3sFiles | None) -> None:
        """`k3s`: what is installed; without it, servers can only be dismantled."""
        self._access = access
        self._k3s = None if k3s is None else k3s.of_server()

    async def install(self, order: ServerOrder) -> ServerIdentity:
        k3s = self._k3s
        if k3s is None:
            why = "this reconciler has no K3s files to install; set SPLITPLANE_K3S_FILES"
            raise StepFailed(server_scripts.INSTALL.name, None, why)
        async with self._access.connect(order.host) as session:
            await must(session, server_scripts.TAKE, [str(order.fence)])
            await files.send(session, k3s.all())
            await must(session, server_scripts.TAKE, [str(order.fence)])
            await make_node_key(session)
            await apply_peers(session, order.place, [])
            place = order.place
            ranges = [place.pods, order.services]
            arguments = [
                str(order.fence),
                order.outside,
                order.name,
                place.address,
                INTERFACE,
                *ranges,
                *k3s.digests(),
            ]
            private = [order.token, agent_token(order.token)]  # K3s may log either.
            stdin = "".join(f"{credential}\n" for credential in private).encode()
            await must(session, server_scripts.INSTALL, arguments, stdin=stdin, private=private)
            await must(session, server_scripts.AWAIT_NODE, [str(NODE_REGISTERS_SECONDS)], private=private)
            answer = await must(session, server_scripts.READ)
        return _identity(order, answer)

    async def dismantle(self, host: Target, *, fence: int) -> None:
        async with self._access.connect(host) as session:
            await must(session, server_scripts.DISMANTLE, [str(fence)])
            for remove in (remove_collector, leave_overlay):
                await must(session, server_scripts.TAKE, [str(fence)])
                await remove(session)


def agent_token(token: str) -> str:
    """A credential of agents that nobody uses: unless one is set, K3s lets agents join with the servers' credential."""
    return hashlib.blake2b(token.encode(), person=b"agent token").hexdigest()


def _identity(order: ServerOrder, answer: Answer) -> ServerIdentity:
    """What a server told, checked. Raises StepFailed."""
    try:
        version, ca, kubeconfig = answer.output.decode("ascii").splitlines()
        ca_pem = base64.b64decode(ca, validate=True).decode("ascii")
        admin = base64.b64decode(kubeconfig, validate=True).decode("utf-8")
    except (ValueError, binascii.Error):
        raise StepFailed(
            server_scripts.READ.name, None, "the host did not answer with a server's identity"
        ) from None
    if not VERSION.fullmatch(version) or not _CA.fullmatch(ca_pem):
        raise StepFailed(
            server_scripts.READ.name, None, "the host answered with a malformed version or certificate"
        )
    host = f"[{order.outside}]" if ":" in order.outside else order.outside
    return ServerIdentity(version, f"https://{host}:{API_PORT}", ca_pem, admin)
