"""The world of loops that update the hub of the private networks."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from control_plane.domain.ssh_authority import HUB_BELIEVED_FOR
from data_plane.heartbeats.port import Collector
from data_plane.mesh.port import Hub, HubIdentity
from reconciler.ssh_authorities import SshAuthorities
from reconciler.world import World


class HubSync:
    """Lets one call to the hub serve all callers in this process that wait for the same network.

    Joins that arrive during a call are served together by the next one.
    """

    def __init__(self) -> None:
        self._locks: dict[UUID, asyncio.Lock] = {}
        self._wanted: dict[UUID, int] = {}
        self._served: dict[UUID, tuple[int, HubIdentity]] = {}

    async def covering(self, network_id: UUID, call: Callable[[], Awaitable[HubIdentity]]) -> HubIdentity:
        """The result of a `call` that began after this method was called. Raises what the call raises."""
        ticket = self._wanted[network_id] = self._wanted.get(network_id, 0) + 1
        async with self._locks.setdefault(network_id, asyncio.Lock()):
            served = self._served.get(network_id)
            if served is not None and served[0] >= ticket:
                return served[1]
            serves = self._wanted[network_id]
            identity = await call()
            self._served[network_id] = serves, identity
            return identity


@dataclass
class HubTrust:
    """Which SSH authorities this process told the hub to trust last, by their fingerprint, and when."""

    told: str | None = None
    at: datetime | None = None

    def believed(self, trust: str, now: datetime) -> bool:
        """Whether the hub trusts the authorities with this fingerprint, as far as this process can know."""
        return self.told == trust and self.at is not None and now - self.at < HUB_BELIEVED_FOR


@dataclass(frozen=True, kw_only=True)
class MeshWorld(World):
    hub: Hub
    collector: Collector
    """What the agents on machines report to."""
    ssh_authorities: SshAuthorities
    hub_sync: HubSync = field(default_factory=HubSync)
    hub_trust: HubTrust = field(default_factory=HubTrust)
