"""A whole cloud in one process on a virtual clock: services, every loop, a fake provider, simulated machines.

Nothing waits: `play` runs the loops that are due, advances the clock a little, and again. A stage can be copied
with everything on it onto a copy of its database, and any number of replicas can be set on it.
"""

import asyncio
import copy
import dataclasses
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import text

from control_plane.db import account_requests, accounts, attempts, audit_retention, envelopes, machines
from control_plane.db import organizations as organization_rows
from control_plane.db.engine import Database
from control_plane.db.envelopes import EnvelopeScope
from control_plane.db.lease_overviews import Overview
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.attempt import Attempt
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import (
    AccountName,
    EnvelopeId,
    LaunchKey,
    LeaseId,
    NodePoolId,
    OrganizationId,
    launch_key,
)
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine
from control_plane.domain.money import NANO_MAX, NANO_PER_USD, NOTHING, Nano
from control_plane.domain.price import Price
from control_plane.domain.proof import Tier
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.services import (
    catalogue,
    lease_overviews,
    leases,
    ledger,
    node_pools,
    organization_states,
    organizations,
)
from control_plane.services.leases import WantedLease
from control_plane.services.organization_states import Changed, Order, Recorded
from control_plane.services.organizations import Organization
from control_plane.world import World as ApiWorld
from control_plane.world import uuid7
from data_plane.access.port import HostKey, Target
from data_plane.cluster.resource import NODE_POOL
from data_plane.documents.inventory import Inventory
from data_plane.inspection.bundle import Bundle
from data_plane.simulation.access import FakeAccess
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.hub import FakeHub
from data_plane.simulation.kubelets import FakeKubelets
from data_plane.simulation.kubernetes import FakeClusters
from data_plane.simulation.servers import FakeServers
from providers.base import Capabilities, LaunchOrder, Provider
from providers.fake import CAPABILITIES, FakeMachine, FakeProvider
from providers.fake import Settings as FakeSettings
from providers.guard import Guard
from reconciler import registry, simulated, traced
from reconciler.archive import OpenBucket
from reconciler.loop import AccountLoop, Loop, Report
from reconciler.ssh_authorities import FixedAuthority, SshAuthorities, StoredAuthorities
from reconciler.worlds.complete import CompleteWorld
from reconciler.worlds.mesh import HubSync, HubTrust
from tests.support import laws, planting
from tests.support.archive import Shelf
from tests.support.challenger import DeadLine, ScriptedChallenger
from tests.support.clock import Clock, Host
from tests.support.idle_loops import OF_CLUSTERS, READ_ONLY, idle_loops
from tests.support.keys import AFTER
from tests.support.rows import rows
from tests.support.values import PAID
from tracing.tracer import NO_TRACER, Tracer

_ONE, _EIGHT = (
    Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100),
    Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100),
)
H100 = Price(
    Sku("h100x1", _ONE, CapacityShape.VM, Tier.LISTED),
    Nano(3_600_000_000),
    book=0,
    spot_nano_per_unit_hour=Nano(1_800_000_000),
)
H100X8 = Price(Sku("h100x8", _EIGHT, CapacityShape.VM, Tier.LISTED), Nano(3_000_000_000), book=0)
PROVEN = Price(Sku("h100x1-proven", _ONE, CapacityShape.VM, Tier.PROVEN), Nano(3_600_000_000), book=0)
ATTESTED = Price(Sku("h100x1-attested", _ONE, CapacityShape.VM, Tier.ATTESTED), Nano(3_600_000_000), book=0)
BOOK = [H100, H100X8, PROVEN, ATTESTED]
STOPPED_COST = Nano(50_000_000)
"""What the provider bills for a machine of `sell_cheap_stops` while it is stopped, per hour."""
CHEAP_STOPS = tuple(
    dataclasses.replace(price, stopped_nano_per_unit_hour=Nano(price.nano_per_unit_hour // 10))
    for price in BOOK
)
FAKE = AccountName("fake")
LOOPS = registry.discovered()
CUSTOMER = Actor(ActorKind.CUSTOMER, "test")
OPERATOR = Actor(ActorKind.OPERATOR, "test")

_DELETE_WARM_POOLS = text(
    "UPDATE pools SET state = 'deleting', due_at = :now WHERE state IN ('active', 'dry_run')"
)
_LIVE_POOLS = text(
    "SELECT organization_id, id FROM node_pools WHERE state IN ('pending', 'ready') ORDER BY id"
)
_LIVE = text("SELECT id, organization_id FROM leases WHERE state NOT IN ('ending', 'ended') ORDER BY id")
_STATES = text("SELECT name, state FROM leases")


@dataclasses.dataclass
class Stage:
    clock: Clock
    db: Database
    api: ApiWorld
    world: CompleteWorld
    clouds: dict[AccountName, FakeProvider]
    access: FakeAccess
    hub: FakeHub
    challenger: ScriptedChallenger
    planted: set[str] = dataclasses.field(default_factory=set[str])
    """Launch keys of machines that nobody ordered."""
    book: Sequence[Price] = tuple(BOOK)
    """The prices of organizations that are created."""
    _due: dict[str, datetime] = dataclasses.field(default_factory=dict[str, datetime])
    """When each loop runs next, unless another loop wakes it before."""

    async def check(self) -> None:
        """The laws hold now."""
        await laws.check(self.db, *self.clouds.values(), planted=self.planted)

    def sell_cheap_stops(self) -> None:
        """Let a machine that is stopped cost a tenth, so that time on and time stopped cannot be mistaken."""
        self.book = CHEAP_STOPS
        self.cloud.listing = tuple(
            dataclasses.replace(offer, stopped_cost_nano_per_hour=None if offer.spot else STOPPED_COST)
            for offer in self.cloud.listing
        )

    async def check_finished(self) -> None:
        """The laws hold, and nothing is left."""
        await laws.check_finished(self.db, *self.clouds.values(), planted=self.planted)

    async def plant(self, *, account: AccountName = FAKE) -> FakeMachine:
        """An orphan: a machine of an order that the provider refused, so that its record is closed."""
        machine = self.plant_unrecorded(account=account)
        async with self.db.transaction() as connection:
            await planting.record(connection, machine.launch_key, account, now=self.clock.now())
        return machine

    def plant_unrecorded(
        self, key: str | None = None, *, account: AccountName = FAKE, is_sold: bool = True
    ) -> FakeMachine:
        """A machine at a provider whose launch key no record of ours has, as after a restore of an older database.

        Unless `is_sold`, it is of a type that the account offers no more.
        """
        key = key or launch_key(self.world.installation, uuid7())
        self.planted.add(key)
        order = LaunchOrder(LaunchKey(key), "h100-sxm-80gb.1", "us-east-1", "", "")
        machine = self.clouds[account].plant(order)
        if not is_sold:
            machine.order = dataclasses.replace(order, native_type="sold-no-more")
            self.clouds[account].stock["sold-no-more", "us-east-1"] = 0
        return machine

    def plant_twin(self, machine: FakeMachine) -> FakeMachine:
        """A second machine that the provider made for the same order."""
        self.planted.add(machine.order.launch_key)
        return self.cloud.plant(machine.order)

    async def release_all(self) -> None:
        """Every customer releases everything, also what objects in clusters ask for; operators delete the warm pools."""
        if isinstance(self.world.kubernetes, FakeClusters):
            for server in self.world.kubernetes.servers.values():
                for pool in await server.list(NODE_POOL):
                    name, namespace = pool["metadata"]["name"], pool["metadata"]["namespace"]
                    await server.delete(NODE_POOL, name, namespace)
        async with self.db.transaction() as connection:
            await connection.execute(_DELETE_WARM_POOLS, {"now": self.clock.now()})
        async with self.db.reading() as connection:
            pools = await rows(connection, _LIVE_POOLS)
        for row in pools:
            async with self.db.transaction(row.organization_id) as connection:
                asker = node_pools.Asker(OrganizationId(row.organization_id), CUSTOMER, EVERYWHERE)
                await node_pools.delete(connection, self.api, asker, NodePoolId(row.id))
        async with self.db.reading() as connection:
            live = await rows(connection, _LIVE)
        for row in live:
            async with self.db.transaction(row.organization_id) as connection:
                await leases.release(
                    connection,
                    self.api,
                    OrganizationId(row.organization_id),
                    LeaseId(row.id),
                    accept_fee_nano=Nano(NANO_MAX),
                    actor=CUSTOMER,
                    reach=EVERYWHERE,
                )

    async def states(self) -> dict[str, str]:
        """The state of every lease, by the lease's name."""
        async with self.db.reading() as connection:
            return {row.name: row.state for row in await rows(connection, _STATES)}

    async def attempts(self, lease: Lease) -> list[Attempt]:
        """The lease's attempts, oldest first."""
        async with self.db.reading() as connection:
            return list(await attempts.of_leases(connection, [lease.id]))

    async def machines(self, lease: Lease) -> list[Machine]:
        """The machines of the lease's attempts, oldest first."""
        found = []
        for attempt in await self.attempts(lease):
            async with self.db.reading() as connection:
                machine = await machines.get(connection, attempt.machine_id)
            assert machine is not None
            found.append(machine)
        return found

    async def lease_row(self, lease: Lease) -> Lease:
        """The lease as it is stored now."""
        return (await self.shown(lease)).overview.lease

    async def why(self, lease: Lease) -> lease_overviews.Explanation:
        explained = await lease_overviews.explain(self.api, lease.organization_id, lease.id, reach=EVERYWHERE)
        assert isinstance(explained, lease_overviews.Explanation), explained
        return explained

    async def finish(self) -> None:
        """Release everything, and run the cloud until nothing is left, for half an hour at most."""
        await self.release_all()
        for seconds in (2, 2, 5, 20, *[61] * 30):
            await self.turns()
            nothing = not any(cloud.alive() for cloud in self.clouds.values())
            if nothing and set((await self.states()).values()) <= {"ended"}:
                break
            self.clock.advance(seconds)
        await self.round()
        await self.turns()
        await self.check_finished()

    def replica(self, name: str, db: Database | None = None) -> CompleteWorld:
        """Another reconciler process with the same rows, clouds and machines, but with its own memory."""
        return dataclasses.replace(
            self.world,
            db=db or self.world.db,
            replica=name,
            accounts=_guarded(self.clouds, self.clock),
            hub_sync=HubSync(),
            hub_trust=HubTrust(),
            ssh_authorities=_read_anew(self.world.ssh_authorities, db or self.world.db, self.clock),
        )

    async def on_a_host(self, host: Host, name: str = "elsewhere") -> "Stage":
        """The same cloud, as an API and a reconciler see it whose host has a clock of its own, which may be wrong."""
        clock = await host.database_clock()
        world = dataclasses.replace(self.replica(name), now=clock.now, clock_refusal=clock.refusal)
        api = dataclasses.replace(self.api, now=clock.now, clock_refusal=clock.refusal)
        return dataclasses.replace(self, world=world, api=api)

    def copy(self, db: Database, api_db: Database | None = None) -> "Stage":
        """The same moment on a copy of the database. What happens on one stage does not affect the other."""
        clock, clouds, machines, hub, collector, servers, kubernetes, agents, members, challenger, post = (
            copy.deepcopy(
                (
                    self.clock,
                    self.clouds,
                    self.access.machines,
                    self.hub,
                    self.world.collector,
                    self.world.servers,
                    self.world.kubernetes,
                    self.world.agents,
                    self.world.members,
                    self.challenger,
                    self.world.post,
                )
            )
        )
        access = FakeAccess(
            hardware=_hardware(list(clouds.values())),
            hub=hub,
            machines=machines,
            proving=DeadLine,
            now=self.clock.now,
        )
        _connect_power(clouds, access)
        world = dataclasses.replace(
            self.world,
            db=db,
            now=clock.now,
            accounts=_guarded(clouds, clock),
            access=access,
            hub=hub,
            collector=collector,
            servers=servers,
            kubernetes=kubernetes,
            agents=agents,
            members=members,
            challenger=challenger,
            post=post,
            hub_sync=HubSync(),
            hub_trust=HubTrust(),
            ssh_authorities=_read_anew(self.world.ssh_authorities, db, clock),
        )
        api = ApiWorld(api_db or db, now=clock.now)
        return Stage(clock, db, api, world, clouds, access, hub, challenger, set(self.planted))

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
            await catalogue.load_price_book(connection, self.api, self.book)
            if usd:
                await ledger.top_up(
                    connection,
                    self.api,
                    organization_id,
                    Nano(usd * NANO_PER_USD),
                    key=organization_id.hex,
                    approval=PAID,
                )
        return organization_id

    async def operators(self) -> OrganizationId:
        """The organization of those who run the installation."""
        made = OrganizationId(uuid7())
        async with self.db.transaction(made) as connection:
            await organization_rows.insert(connection, made, "operators", platform=True, now=self.clock.now())
        return made

    async def close_organization(self, organization_id: OrganizationId) -> Recorded:
        """Close an organization, as an operator does. Returns the record, which says what that ended."""
        order = Order(organization_id, organization_id, "a test", OPERATOR)
        async with self.api.db.transaction(organization_id) as connection:
            changed = await organization_states.close(connection, self.api, order)
        assert isinstance(changed, Changed), changed
        return changed.recorded

    async def delete_organization(self, organization_id: OrganizationId) -> Recorded:
        order = Order(organization_id, organization_id, "a test", OPERATOR)
        async with self.api.db.transaction(organization_id) as connection:
            changed = await organization_states.delete(connection, self.api, order)
        assert isinstance(changed, Changed), changed
        return changed.recorded

    async def suspend_organization(
        self, organization_id: OrganizationId, *, end_leases: bool = False
    ) -> Recorded:
        order = Order(organization_id, organization_id, "a test", OPERATOR)
        async with self.api.db.transaction(organization_id) as connection:
            changed = await organization_states.suspend(connection, self.api, order, end_leases=end_leases)
        assert isinstance(changed, Changed), changed
        return changed.recorded

    async def resume_organization(self, organization_id: OrganizationId) -> Recorded:
        order = Order(organization_id, organization_id, "a test", OPERATOR)
        async with self.api.db.transaction(organization_id) as connection:
            changed = await organization_states.resume(connection, self.api, order)
        assert isinstance(changed, Changed), changed
        return changed.recorded

    async def narrow(
        self, organization_id: OrganizationId, limits: Envelope, level: Level = Level.CEILING
    ) -> None:
        """Set an organization's ceiling, as an operator does, or its envelope, as its owner does."""
        scope = EnvelopeScope(organization_id, level)
        async with self.api.db.transaction(organization_id) as connection:
            await envelopes.put(
                connection, scope, EnvelopeId(uuid7()), limits, by="a test", now=self.clock.now()
            )

    async def organization_row(self, organization_id: OrganizationId) -> Organization:
        """The organization as it is stored now."""
        return await organizations.show(self.api, organization_id)

    async def try_lease(
        self,
        organization_id: OrganizationId,
        request: CapacityRequest | None = None,
        *,
        name: str | None = None,
        terms: LeaseTerms | None = None,
    ) -> Lease | Refused:
        async with self.db.transaction(organization_id) as connection:
            return await leases.create(
                connection,
                self.api,
                organization_id,
                WantedLease(
                    request or CapacityRequest("h100x1"), name, ssh_key_ids=[], terms=terms or LeaseTerms()
                ),
                actor=CUSTOMER,
                reach=EVERYWHERE,
            )

    async def lease(
        self,
        organization_id: OrganizationId,
        request: CapacityRequest | None = None,
        *,
        name: str | None = None,
        terms: LeaseTerms | None = None,
    ) -> Lease:
        lease = await self.try_lease(organization_id, request, name=name, terms=terms)
        assert isinstance(lease, Lease), lease
        return lease

    async def try_release(self, lease: Lease, *, accept_fee: Nano = NOTHING) -> Overview | Refused:
        async with self.db.transaction(lease.organization_id) as connection:
            return await leases.release(
                connection,
                self.api,
                lease.organization_id,
                lease.id,
                accept_fee_nano=accept_fee,
                actor=CUSTOMER,
                reach=EVERYWHERE,
            )

    async def release(self, lease: Lease, *, accept_fee: Nano = NOTHING) -> Overview:
        released = await self.try_release(lease, accept_fee=accept_fee)
        assert isinstance(released, Overview), released
        return released

    async def shown(self, lease: Lease) -> lease_overviews.Shown:
        shown = await lease_overviews.get(self.api, lease.organization_id, lease.id, reach=EVERYWHERE)
        assert isinstance(shown, lease_overviews.Shown), shown
        return shown

    async def state(self, lease: Lease) -> str:
        return (await self.shown(lease)).overview.lease.state.value

    async def run(self, name: str, *, world: CompleteWorld | None = None) -> Sequence[Report]:
        """One activation of a loop, for every account where it runs per account."""
        world = world or self.world
        loop = LOOPS[name]
        if isinstance(loop, AccountLoop):
            return [
                await traced.activation(world, name, account, partial(loop.activate, world, account))
                for account in world.account_names
            ]
        assert isinstance(loop, Loop)
        return [await traced.activation(world, name, None, partial(loop.activate, world))]

    async def round(
        self, *, world: CompleteWorld | None = None, without: Collection[str] = ()
    ) -> list[Report]:
        """Every loop once."""
        names = [name for name in LOOPS if name not in without]
        if world is not None:
            return [report for name in names for report in await self.run(name, world=world)]
        return [report for name in names for report in await self._turn(name)]

    async def turns(self, *, without: Collection[str] = ()) -> None:
        """Every loop that is due once, paced as by the runner: at its interval, or when another loop wakes it.

        Loops without a row to work on are left out, and so are those that change nothing: `play` runs them at its end.
        """
        idle = await self._idle()
        for name in LOOPS:
            now = self.clock.now()
            if name in without or name in idle or name in READ_ONLY or self._due.get(name, now) > now:
                continue
            if any(report.acted_on for report in await self._turn(name)):
                idle = await self._idle()

    async def _idle(self) -> Collection[str]:
        async with self.db.reading() as connection:
            return await idle_loops(connection, self.clock.now())

    async def _turn(self, name: str) -> Sequence[Report]:
        loop, reports = LOOPS[name], await self.run(name)
        now = self.clock.now()
        self._due[name] = now if any(report.more for report in reports) else now + loop.every
        if any(report.acted_on for report in reports):
            self._due |= dict.fromkeys(loop.wakes, now)
        return reports

    async def play(self, seconds: float, *, step: float = 2.0, without: Collection[str] = ()) -> None:
        """Run the cloud for a while: the loops that are due, then a step of time, and again. All loops run at the end."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            await self.turns(without=without)
            self.clock.advance(min(step, (end - self.clock.now()).total_seconds()))
        await self._last_turns(without)

    async def _last_turns(self, without: Collection[str]) -> None:
        """Every loop once, also those that `turns` leaves out: they find nothing, or it must not leave them out.

        Those of clusters do not run where there is no cluster.
        """
        idle = await self._idle()
        for name in LOOPS:
            if name in without or (name in idle and name in OF_CLUSTERS):
                continue
            reports = await self._turn(name)
            if any(report.looked_at for report in reports):
                assert name not in idle, f"{name} found work that idle_loops.py does not know of"
            if any(report.looked_at or report.acted_on for report in reports):
                idle = await self._idle()

    async def play_until(
        self, lease: Lease, state: str, *, seconds_max: float = 3_600, step: float = 2.0
    ) -> None:
        end = self.clock.now() + timedelta(seconds=seconds_max)
        while await self.state(lease) != state:
            assert self.clock.now() < end, (
                f"{await self.state(lease)} instead of {state}: {await self.story(lease)}"
            )
            await self.turns()
            self.clock.advance(step)

    async def story(self, lease: Lease) -> list[str]:
        """The lease's journal in short, for assertions and for messages."""
        explained = await lease_overviews.explain(self.api, lease.organization_id, lease.id, reach=EVERYWHERE)
        assert isinstance(explained, lease_overviews.Explanation)
        return [f"{'machine' if line.machine_id else 'lease'} {line.event}" for line in explained.journal]


@dataclasses.dataclass
class _Running:
    """Whether a machine at an address runs at one of the clouds."""

    clouds: dict[AccountName, FakeProvider]

    def __call__(self, address: str) -> bool:
        return any(
            machine.address == address and not (machine.failed or machine.stopped)
            for cloud in self.clouds.values()
            for machine in cloud.alive()
        )


@dataclasses.dataclass
class _Numbers:
    """Numbers as host keys: real ones take a millisecond each to make, and a stage does not need them."""

    count: int = 0

    def host_key(self) -> HostKey:
        self.count += 1
        return HostKey(private_openssh=f"private {self.count}", public=f"ssh-ed25519 {self.count:064d}")


def _read_anew(authorities: SshAuthorities, db: Database, clock: Clock) -> SshAuthorities:
    """As another process has them, which remembers nothing."""
    return (
        StoredAuthorities(db, clock.now, uuid7, AFTER)
        if isinstance(authorities, StoredAuthorities)
        else authorities
    )


def _one(shelf: Shelf) -> OpenBucket:
    """Every bucket is the same shelf."""
    return lambda _: shelf


async def _never(_seconds: float) -> None:
    """The wait between renewals of a hold: on a stage nothing takes so long that one comes."""
    await asyncio.Event().wait()


def _chance() -> float:
    """The same every time, so that a scenario can be repeated. Idle machines are challenged after 2.8 h."""
    return 0.5


def _guarded(
    clouds: dict[AccountName, FakeProvider], clock: Clock, tracer: Tracer = NO_TRACER
) -> dict[AccountName, Provider]:
    return {
        name: Guard(
            cloud, account=name, now=clock.now, sleep=clock.sleep, pace_in_process=False, tracer=tracer
        )
        for name, cloud in clouds.items()
    }


def _hardware(clouds: Sequence[FakeProvider]) -> Callable[[Target], Inventory]:
    """What the machine at an address is, by the offer it was launched from."""
    known: dict[str, Shape] = {}

    def look(target: Target) -> Inventory:
        if target.address not in known:
            for cloud in clouds:
                shapes = {(offer.native_type, offer.native_region): offer.shape for offer in cloud.listing}
                for machine in cloud.machines.values():
                    known[machine.address] = shapes[machine.order.native_type, machine.order.native_region]
        return simulated.report(known[target.address], target.address)

    return look


def _connect_power(clouds: dict[AccountName, FakeProvider], access: FakeAccess) -> None:
    """What a provider does with the power of a machine happens to the machine."""
    for cloud in clouds.values():
        cloud.on_power = lambda before, machine: access.switch(before, machine.address, off=machine.stopped)


async def set_stage(
    db: Database,
    clock: Clock,
    *,
    names: Sequence[str] = ("fake",),
    settings: FakeSettings | None = None,
    capabilities: Capabilities = CAPABILITIES,
    api_db: Database | None = None,
    tracer: Tracer = NO_TRACER,
    clouds: dict[AccountName, FakeProvider] | None = None,
) -> Stage:
    """A stage with a provider for each name, or with the providers of another stage."""
    clouds = clouds or {
        AccountName(name): FakeProvider(
            now=clock.now,
            settings=settings or FakeSettings(),
            capabilities=capabilities,
            network=10 + number,
        )
        for number, name in enumerate(names)
    }
    hub = FakeHub()
    access = FakeAccess(hardware=_hardware(list(clouds.values())), hub=hub, proving=DeadLine, now=clock.now)
    _connect_power(clouds, access)
    challenger = ScriptedChallenger(sleep=clock.advance)
    agents = FakeAgents()
    async with db.transaction() as connection:
        installation = await accounts.installation(connection)
        await audit_retention.set_bucket(connection, "audit")
        for name in clouds:
            await accounts.register(connection, name, "fake", now=clock.now())
            await account_requests.arm(connection, name, now=clock.now())
    world = CompleteWorld(
        db=db,
        now=clock.now,
        new_id=uuid7,
        installation=installation,
        account_names=tuple(clouds),
        accounts=_guarded(clouds, clock, tracer),
        access=access,
        ssh_authorities=FixedAuthority(),
        hub=hub,
        collector=FakeCollector(access.machines, runs=_Running(clouds)),
        servers=FakeServers(),
        kubernetes=FakeClusters(clock.now, FakeKubelets(agents).report),
        agents=agents,
        members=agents.members,
        agent=Bundle(b"agent", "0" * 64),
        new_host_key=_Numbers().host_key,
        challenger=challenger,
        chance=_chance,
        sleep=_never,
        accept_emulated=True,
        tracer=tracer,
        keys=AFTER,
        open_bucket=_one(Shelf()),
    )
    api = ApiWorld(api_db or db, now=clock.now, tracer=tracer)
    return Stage(clock, db, api, world, clouds, access, hub, challenger)
