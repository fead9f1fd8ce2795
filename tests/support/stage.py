"""A whole cloud in one process on a virtual clock: services, every loop, a fake provider, paper machines.

Nothing waits: `play` runs all loops, advances the clock a little, and again.
"""

import dataclasses
from collections.abc import Sequence
from datetime import timedelta

from control_plane.db import accounts
from control_plane.db.engine import Database
from control_plane.db.leases import Overview
from control_plane.domain.admission import Price
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.refusal import Refused
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.wish import Wish
from control_plane.services import billing, catalogue, leases, organizations
from control_plane.world import World as ApiWorld
from control_plane.world import uuid7
from data_plane.access.fake import FakeAccess
from data_plane.access.port import AgentBundle, HostKey
from data_plane.mesh.fake import FakeHub
from providers.fake import FakeProvider
from providers.fake import Settings as FakeSettings
from providers.guard import Guard
from reconciler import paper, registry
from reconciler.loop import AccountLoop, Loop, Report, World
from tests.support.clock import Clock

H100 = Price(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM), Nano(3_600_000_000)
)
H100X8 = Price(
    Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100), CapacityShape.VM), Nano(3_000_000_000)
)
FAKE = AccountName("fake")


@dataclasses.dataclass
class Stage:
    clock: Clock
    db: Database
    api: ApiWorld
    world: World
    clouds: dict[AccountName, FakeProvider]
    access: FakeAccess
    hub: FakeHub

    @property
    def cloud(self) -> FakeProvider:
        return self.clouds[FAKE]

    async def organization(self, *, usd: int = 1_000, gpu_quota: int = 64) -> OrganizationId:
        organization_id = OrganizationId(uuid7())
        async with self.db.transaction() as connection:
            made = await organizations.create(
                connection, self.api, organization_id, f"org-{organization_id.hex}", gpu_quota=gpu_quota
            )
            assert made is None
            await catalogue.load_price_book(connection, self.api, [H100, H100X8])
            if usd:
                await billing.credit(
                    connection, self.api, organization_id, Nano(usd * NANO_PER_USD), key=organization_id.hex
                )
        return organization_id

    async def try_lease(self, organization_id: OrganizationId, wish: Wish | None = None) -> Lease | Refused:
        async with self.db.transaction(organization_id) as connection:
            return await leases.create(
                connection,
                self.api,
                organization_id,
                wish or Wish("h100x1"),
                name="training",
                ssh_key_ids=[],
                actor="test",
            )

    async def lease(self, organization_id: OrganizationId, wish: Wish | None = None) -> Lease:
        lease = await self.try_lease(organization_id, wish)
        assert isinstance(lease, Lease), lease
        return lease

    async def release(self, lease: Lease) -> Overview:
        async with self.db.transaction(lease.organization_id) as connection:
            released = await leases.release(
                connection, self.api, lease.organization_id, lease.id, actor="test"
            )
        assert isinstance(released, Overview), released
        return released

    async def shown(self, lease: Lease) -> leases.Shown:
        shown = await leases.get(self.api, lease.organization_id, lease.id)
        assert isinstance(shown, leases.Shown), shown
        return shown

    async def state(self, lease: Lease) -> str:
        return (await self.shown(lease)).overview.lease.state.value

    async def run(self, name: str, *, world: World | None = None) -> Sequence[Report]:
        """One activation of a loop, for every account where it runs per account."""
        world = world or self.world
        loop = registry.discovered()[name]
        if isinstance(loop, AccountLoop):
            return [await loop.activate(world, account) for account in world.accounts]
        assert isinstance(loop, Loop)
        return [await loop.activate(world)]

    async def round(self, *, world: World | None = None) -> list[Report]:
        """Every loop once."""
        return [report for name in registry.discovered() for report in await self.run(name, world=world)]

    async def play(self, seconds: float, *, step: float = 2.0) -> None:
        """Let the cloud live for a while: all loops, a step of time, and again."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            await self.round()
            self.clock.advance(min(step, (end - self.clock.now()).total_seconds()))
        await self.round()

    async def play_until(
        self, lease: Lease, state: str, *, seconds_max: float = 3_600, step: float = 2.0
    ) -> None:
        end = self.clock.now() + timedelta(seconds=seconds_max)
        while await self.state(lease) != state:
            assert self.clock.now() < end, (
                f"{await self.state(lease)} instead of {state}: {await self.story(lease)}"
            )
            await self.round()
            self.clock.advance(step)

    async def story(self, lease: Lease) -> list[str]:
        """The lease's journal in short, for assertions and for messages."""
        explained = await leases.explain(self.api, lease.organization_id, lease.id)
        assert isinstance(explained, leases.Explanation)
        return [f"{'instance' if line.instance_id else 'lease'} {line.event}" for line in explained.journal]


@dataclasses.dataclass
class _Numbers:
    """Host keys by number: making real ones costs a millisecond each and proves nothing here."""

    count: int = 0

    def host_key(self) -> HostKey:
        self.count += 1
        return HostKey(private_openssh=f"private {self.count}", public=f"ssh-ed25519 {self.count:064d}")


async def set_stage(
    db: Database,
    clock: Clock,
    *,
    names: Sequence[str] = ("fake",),
    settings: FakeSettings | None = None,
    api_db: Database | None = None,
) -> Stage:
    clouds = {
        AccountName(name): FakeProvider(now=clock.now, settings=settings or FakeSettings()) for name in names
    }
    hub = FakeHub()
    access = FakeAccess(hardware=paper.hardware(list(clouds.values())), hub=hub)
    async with db.transaction() as connection:
        installation = await accounts.installation(connection)
        for name in clouds:
            await accounts.register(connection, name, "fake", now=clock.now())
    world = World(
        db=db,
        now=clock.now,
        new_id=uuid7,
        installation=installation,
        accounts={
            name: Guard(cloud, account=name, now=clock.now, sleep=clock.sleep, pace_in_process=False)
            for name, cloud in clouds.items()
        },
        access=access,
        hub=hub,
        agent=AgentBundle(b"agent", "0" * 64),
        login_key_public="ssh-ed25519 ours",
        new_host_key=_Numbers().host_key,
        accept_emulated=True,
    )
    return Stage(clock, db, ApiWorld(api_db or db, now=clock.now), world, clouds, access, hub)
