"""The hub: a host of ours, reached over pinned SSH, with one WireGuard interface for each tenant network.

Every network has a network namespace of its own on the hub, which contains nothing but that interface. A packet of
one tenant therefore finds no route, no neighbour and no listening service of another tenant, whatever addresses it
claims. The encrypted UDP socket stays outside: an interface keeps the socket of the namespace in which it was created
(with the kernel's WireGuard by design; with wireguard-go because the process never leaves the root namespace).

What can go wrong, and what happens then:

  - the hub reboots: a systemd unit for each network restores the network from its file;
  - wireguard-go dies: the next `sync` finds no interface and restarts the unit;
  - a sync is interrupted: the next one starts over, and files are only ever replaced by a rename;
  - two replicas sync one network at the same time: a lock on the hub orders them, and the list of a worker that
    stalled is refused by its fence.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from data_plane.access.login import trust
from data_plane.access.port import Access, Session, StepFailed, Target, Unreachable, must
from data_plane.mesh import hub_scripts
from data_plane.mesh.port import HubIdentity, Network, Peer, ReadAuthorities
from data_plane.mesh.wireguard import public_key

HUB_PRINCIPAL = "splitplane-hub"
"""What our certificate names when we log in to the hub, which is no machine and has no launch key."""
CONNECTIONS_MAX = 4
"""Simultaneous connections of one process. With 10 logins in progress, sshd drops new ones at random (MaxStartups)."""
BUSY_SECONDS_MAX = 8
"""How long a call waits for a free connection, so that callers do not pile up at a hub that hangs."""


class HubBusy(Unreachable):
    """All connections of this process to the hub are in use: it is slow, or asked for much. It was not asked."""


class SshHub:
    """`port.Hub` over SSH.

    The hub runs systemd, has wireguard-tools (and wireguard-go where its kernel has no WireGuard), and lets the
    login user use sudo without a password. A call takes 0.2 s usually and 40 s at most.
    """

    def __init__(self, access: Access, target: Target, *, outside: str | None = None) -> None:
        """`outside` is the host name or address by which machines reach the hub, if it differs from the target's."""
        self._access = access
        self._target = target
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        host = outside or target.address
        self._host = f"[{host}]" if ":" in host else host

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        step = hub_scripts.SYNC
        try:
            text = hub_scripts.peers_text(network, peers)
        except ValueError as error:
            raise StepFailed(step.name, None, str(error)) from None
        port = network.hub_port
        own = f"{network.hub_address}/{network.subnet.prefixlen}"
        arguments = [
            str(network.number),
            own,
            str(port),
            hub_scripts.UP,
            hub_scripts.UNIT,
            str(network.pods or ""),
            "-" if fence is None else str(fence),
        ]
        async with self._session() as session:
            answer = await must(session, step, arguments, stdin=text.encode())
        return HubIdentity(public_key(step, answer), f"{self._host}:{port}")

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        arguments = [str(network.number), "-" if fence is None else str(fence)]
        async with self._session() as session:
            await must(session, hub_scripts.DROP, arguments)

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        async with self._session() as session:
            authorities = await read()
            await trust(session, authorities)
        return authorities

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        try:
            await asyncio.wait_for(self._places.acquire(), BUSY_SECONDS_MAX)
        except TimeoutError:
            raise HubBusy(f"the hub at {self._target.address} is busy") from None
        try:
            async with self._access.connect(self._target) as session:
                yield session
        finally:
            self._places.release()
