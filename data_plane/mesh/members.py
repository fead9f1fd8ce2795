"""The port to members of overlays (servers of ours and rented nodes), and its laws.

1. Every call can be repeated. A member's keys are made on it and never leave it.
2. What is applied is read back: a member that lists anything else afterwards is a failed step.
3. Only AccessError is raised.

4. A member that was set up with a fence refuses a lower one, and stays as it is: a worker that stalled brings what
   was right before.

Taking a member's interface and keys away is part of cleaning a node and of dismantling a server.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Protocol

from data_plane.access.port import Access, AccessError, Target, Unreachable
from data_plane.mesh import node
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from data_plane.mesh.tunnels import Interface

OTHER_KEY = 66
"""The exit status of a member that has neither the key that it is to switch to, nor uses it."""


class ServerAway(Unreachable):
    """The cluster's server failed or cannot be reached. It is ours, so the member is not to blame."""


class Members(Protocol):
    async def make_key(self, member: Target) -> str:
        """Its WireGuard public key, made at the first call."""
        ...

    async def apply(
        self, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer], *, fence: int | None = None
    ) -> Interface:
        """Make its tunnels exactly these; what its interface lists afterwards."""
        ...

    async def read(self, member: Target) -> Interface:
        """What its interface lists now. Raises StepFailed if it has none."""
        ...

    async def probe(self, member: Target, address: str) -> int | None:
        """The largest packet in bytes, up to 1,420, that passes the tunnel to this address; None when none passes."""
        ...

    async def hears(self, member: Target, server: Target) -> bool:
        """Whether packets that the server sends to the member's address, from a port of no tunnel, reach its port.

        Takes 4 s. Raises ServerAway when only the server fails.
        """
        ...

    async def make_next_key(self, member: Target, *, fresh: bool = False) -> str:
        """The public key that it will change to: the same one until `switch_key`, unless it has to be a `fresh` one."""
        ...

    async def switch_key(self, member: Target, key: str) -> None:
        """Use the next key. Raises StepFailed if its next key is another one."""
        ...


class SshMembers:
    """`Members` over SSH (`node.py`)."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def make_key(self, member: Target) -> str:
        async with self._access.connect(member) as session:
            return await node.make_node_key(session)

    async def apply(
        self, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer], *, fence: int | None = None
    ) -> Interface:
        async with self._access.connect(member) as session:
            return await node.apply_peers(session, place, peers, fence=fence)

    async def read(self, member: Target) -> Interface:
        async with self._access.connect(member) as session:
            return await node.read_peers(session)

    async def probe(self, member: Target, address: str) -> int | None:
        async with self._access.connect(member) as session:
            return await node.largest_packet(session, address)

    async def hears(self, member: Target, server: Target) -> bool:
        token = secrets.token_hex(16)
        heard, knocked = await asyncio.gather(
            self._heard(member), self._knock(server, member.address, token), return_exceptions=True
        )
        if isinstance(heard, BaseException):
            raise heard
        if isinstance(knocked, BaseException):
            raise knocked
        return token in heard

    async def _heard(self, member: Target) -> frozenset[str]:
        async with self._access.connect(member) as session:
            return await node.heard(session)

    async def _knock(self, server: Target, address: str, token: str) -> None:
        try:
            async with self._access.connect(server) as session:
                await node.knock(session, address, token)
        except AccessError as error:
            raise ServerAway(f"the cluster's server: {type(error).__name__}: {error}") from error

    async def make_next_key(self, member: Target, *, fresh: bool = False) -> str:
        async with self._access.connect(member) as session:
            return await node.make_next_key(session, fresh=fresh)

    async def switch_key(self, member: Target, key: str) -> None:
        async with self._access.connect(member) as session:
            await node.switch_key(session, key)
