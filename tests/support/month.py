"""A month of a whole cloud on a virtual clock: demand with seasons, failures, a bad provider, and three policies of pools.

The control plane is the real one: its services, every loop and its database. Providers, machines and agents are
simulated. Time does not pass second by second: after an event, and whenever something changes, all loops that move
leases and machines look every few seconds, then less and less often, until the next event; what a machine's boot or an
announced step waits for is a moment that is not skipped. Loops that only keep books look every few hours.

Every arrival asks for the same lease in three regions, which differ in their warm pool alone: none, a fixed one, and one
that the newsvendor sizes. So one month compares all three, with the same demand. In a fourth region capacity runs short
once, while interruptible leases run there and a promised one is asked for. Whatever operators can arm is armed.

What happens to machines is decided here and noted as an `Injury`: that is the truth against which the product's actions
are judged (`wrong_actions.py`).
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path

from sqlalchemy import text

from control_plane.db import enforcement, preemptions
from control_plane.db import pools as pool_rows
from control_plane.db.engine import Database
from control_plane.db.preemptions import Switch
from control_plane.domain.enforcement import Detector
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LaunchKey, MachineId, OrganizationId, PoolId, ProviderRef
from control_plane.domain.lease import Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool import PoolPolicy
from control_plane.domain.power_action import PowerAction
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.services import sla_terms
from control_plane.world import uuid7
from data_plane.documents.health import GpuHealth
from data_plane.documents.health import Health as HealthDocument
from data_plane.documents.health import Xid as HealthXid
from data_plane.documents.sample import Gpu, Xid
from data_plane.simulation.collector import FakeCollector
from providers.fake import FakeMachine, FakeProvider, Fault
from providers.fake import Settings as FakeSettings
from providers.fake_offers import an_offer
from reconciler import registry
from reconciler.loop import Report
from tests.support import machine_samples, power
from tests.support.clock import Clock
from tests.support.hand_backs import asked_for_another
from tests.support.machine_samples import JUST_SETTLED
from tests.support.pools import a_pool
from tests.support.rows import rows
from tests.support.stage import BOOK, LOOPS, Stage, set_stage

SKU = "h100x1"
TERMS = Path("control_plane/sla_terms.toml").read_text(encoding="utf-8")
STEADY, SHADY = AccountName("steady"), AccountName("shady")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FUNDED_EVERY = timedelta(minutes=22)
"""Holds are renewed ahead of time, and what they do not cover is not billed: so this is the longest leap."""
FUNDED_BY = ("collect_heartbeats", "observe_machines", "fund_leases")
EVERY = {
    "fund_leases": timedelta(minutes=5),
    "keep_pools": timedelta(minutes=50),
    "meter_usage": timedelta(minutes=50),
}
"""How often some loops look at least; `keep_pools` also after each placement."""
SELDOM = timedelta(hours=3)
"""So often even those loops look for which there seems to be nothing."""


RESET_XID = 48
"""A double-bit memory error: the GPU is out until it is reset."""
_BUS = "0000:3b:00.0"


class Arm(StrEnum):
    """What kind of pool a region has."""

    NONE = "none"
    FIXED = "fixed"
    NEWSVENDOR = "newsvendor"


REGIONS = {Arm.NONE: "us-east-1", Arm.FIXED: "eu-central-1", Arm.NEWSVENDOR: "us-west-2"}
SCARCE = "ap-northeast-1"
"""Where capacity runs short. Only the good provider sells there."""
_YIELDS = CapacityRequest(SKU, regions=(SCARCE,), purchase=PurchaseKind.INTERRUPTIBLE)
_BOOK = tuple(
    replace(price, interruptible_nano_per_unit_hour=Nano(3 * NANO_PER_USD) if price.sku.name == SKU else None)
    for price in BOOK
)


@dataclass(frozen=True)
class Size:
    """How much happens in the month."""

    seed: int = 15
    days: int = 30
    per_busy_hour: float = 0.12
    """Arrivals in an hour of the day on a weekday."""
    per_quiet_hour: float = 0.01
    """At night, and on the weekend."""
    injuries: int = 16
    """How many machines of customers fail, are stopped, or are said to be broken."""
    troubles: int = 6
    """How many times the bad provider misbehaves as a whole."""


class Kind(StrEnum):
    """What happens to the machine of a lease."""

    DOWN = "down"
    """Its provider lists it as failed, and then as running again."""
    DEAD = "dead"
    """Its provider lists it as failed, for ever."""
    VANISHED = "vanished"
    """Its provider ends it without notice."""
    GPU_LOST = "gpu_lost"
    """A GPU falls off the bus. Its agent reports it, and so does every look of ours."""
    RUMOUR = "rumour"
    """Its agent says that a GPU is gone, and it is not."""
    WORK = "work"
    """We work on it, with or without the promised notice."""
    STOPPED = "stopped"
    """Its customer stops it, and starts it again."""
    NEEDS_RESET = "needs_reset"
    """Its driver reports an error that a reboot ends, and so does every look of ours until then."""


PROMISED = frozenset({Kind.DOWN, Kind.DEAD, Kind.WORK})
"""What is promised about these differs most between the service levels."""
HARMLESS = frozenset({Kind.RUMOUR, Kind.STOPPED, Kind.NEEDS_RESET})
"""Of these no machine may be taken away."""


@dataclass(frozen=True)
class Injury:
    """The truth about a machine: what happened to it, and until when it lasted."""

    launch_key: LaunchKey
    kind: Kind
    since: datetime
    until: datetime | None
    """None when it lasts for ever."""


@dataclass(frozen=True)
class Arrival:
    """The same request in three regions."""

    number: int
    at: datetime
    tier: SlaTier
    stays: timedelta


@dataclass
class Shortage:
    """When there was no more capacity in a region, and whose leases were there."""

    since: datetime
    until: datetime
    interruptible: list[Lease] = field(default_factory=list[Lease])
    promised: list[Lease] = field(default_factory=list[Lease])
    """Those for which a machine may be taken back."""
    others: list[Lease] = field(default_factory=list[Lease])
    """Those that wait."""


@dataclass
class Request:
    """One lease of an arrival, and what its customer did."""

    arrival: Arrival
    arm: Arm
    lease: Lease
    released_at: datetime | None = None


GATES: dict[str, str] = {
    "refresh_offers": "EXISTS (SELECT FROM leases WHERE state = 'placing')",
    "place_leases": "EXISTS (SELECT FROM leases WHERE state = 'placing')",
    "launch_machines": "EXISTS (SELECT FROM machines WHERE state IN ('intended', 'launching'))",
    "bootstrap_machines": "EXISTS (SELECT FROM machines WHERE state IN ('booting', 'bootstrapping'))",
    "expire_machines": "EXISTS (SELECT FROM machines WHERE state IN ('intended', 'launching', 'booting', 'bootstrapping'))",
    "admit_customers": "EXISTS (SELECT FROM claims WHERE ended_at IS NULL AND admitted_at IS NULL)",
    "install_agents": "EXISTS (SELECT FROM claims WHERE ended_at IS NULL AND admitted_at > :lately)",
    "release_machines": "EXISTS (SELECT FROM claims WHERE ended_at IS NOT NULL AND released_at IS NULL)",
    "erase_machines": "EXISTS (SELECT FROM claims WHERE ended_at IS NOT NULL AND released_at IS NULL)",
    "terminate_machines": "EXISTS (SELECT FROM machines WHERE state = 'terminating')",
    "close_leases": "EXISTS (SELECT FROM leases WHERE state = 'ending')",
    "collect_orphans": "EXISTS (SELECT FROM orphans WHERE gone_at IS NULL)",
    "change_power": "EXISTS (SELECT FROM powers WHERE settled_at IS NULL)",
    "judge_health": """EXISTS (SELECT FROM samples WHERE received_at > :lately) OR EXISTS (SELECT FROM machines
      WHERE state = 'verified' AND (down_since IS NOT NULL OR missed_since IS NOT NULL OR suspect_since IS NOT NULL))
      OR EXISTS (SELECT FROM machine_health h JOIN machines m ON m.id = h.machine_id
        WHERE h.verdict <> 'healthy' AND m.state = 'verified')
      OR EXISTS (SELECT FROM maintenances WHERE ended_at IS NULL)""",
    "look_at_machines": """EXISTS (SELECT FROM machine_health h JOIN machines m ON m.id = h.machine_id
      WHERE h.look_due_at <= :now AND m.state = 'verified')""",
    "repair_machines": "EXISTS (SELECT FROM repairs WHERE closed_at IS NULL)",
    "order_spares": "EXISTS (SELECT FROM repairs WHERE closed_at IS NULL AND spare_wanted_at IS NOT NULL)",
    "preempt_leases": """EXISTS (SELECT FROM leases l WHERE l.state = 'placing' AND l.created_at < :since_a_minute)
      OR EXISTS (SELECT FROM preemptions WHERE state IN ('notified', 'interrupted', 'ordered'))""",
    "enforce_rules": """EXISTS (SELECT FROM findings WHERE closed_at IS NULL AND opened_at > :lately)
      OR EXISTS (SELECT FROM sla_breaches b JOIN leases l ON l.id = b.lease_id WHERE l.state = 'ready'
        AND NOT EXISTS (SELECT FROM findings f WHERE f.lease_id = b.lease_id))""",
}
"""Loops that look at a moment only if there is something for them, with what that is, as SQL."""
ALWAYS = ("collect_heartbeats", "observe_machines")
"""Loops that look at every moment, the first of them first: agents report all the time."""
STIRS = frozenset(GATES) - {"refresh_offers", "look_at_machines"} | {"keep_pools"}
"""Loops whose acting means that something goes on, so that the next look is soon."""
STEP_MIN, STEP_MAX, SLOWER = 5.0, 3_600.0, 2.5
REPAIR_STEP, REPAIRED_WITHIN = timedelta(minutes=1), timedelta(minutes=25)
"""A repair is looked at so often for so long after each of its steps, because its customer was told when the next comes."""
ROUNDS_MAX = 8
"""So often the loops that others woke run at one moment."""
_ANSWERS_SOON = timedelta(seconds=1)

_OPEN = text("SELECT " + ", ".join(f"({condition}) AS {name}" for name, condition in GATES.items()))
_UNDER_REPAIR = text("""
SELECT EXISTS (SELECT FROM repairs WHERE closed_at IS NULL AND greatest(step_at, notified_at) > :lately) AS lately
""")


_TAKE_OUT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at)
VALUES (:id, :machine, :now, 'user_1', 'a new cable', :planned)
""")
_GIVE_BACK = text("""
UPDATE maintenances SET ended_at = :now, ended_by = 'user_1' WHERE machine_id = :machine AND ended_at IS NULL
""")


@dataclass
class Month:
    """A month under way, or over."""

    stage: Stage
    size: Size
    random: random.Random
    ends_at: datetime
    requests: list[Request] = field(default_factory=list[Request])
    injuries: list[Injury] = field(default_factory=list[Injury])
    pools: dict[Arm, PoolId] = field(default_factory=dict[Arm, PoolId])
    tenants: list[OrganizationId] = field(default_factory=list[OrganizationId])
    looks: int = 0
    """How many moments were looked at."""
    shortage: Shortage | None = None
    released: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When customers released leases that are no request's."""
    lies: list[tuple[datetime, int]] = field(default_factory=list[tuple[datetime, int]])
    """From when on how many launches at the bad provider fail, or are answered wrongly."""
    activations: Counter[str] = field(default_factory=Counter[str])
    """How often each loop ran."""
    skipped: list[str] = field(default_factory=list[str])
    """Events for which there was no machine."""
    _events: list[tuple[datetime, int, Callable[[], Awaitable[None]]]] = field(
        default_factory=list[tuple[datetime, int, Callable[[], Awaitable[None]]]]
    )
    _numbers: Iterator[int] = field(default_factory=count)
    _looked: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _resets: set[LaunchKey] = field(default_factory=set[LaunchKey])
    """Machines that a reboot mends."""

    @property
    def now(self) -> datetime:
        return self.stage.clock.now()

    @property
    def shady(self) -> FakeProvider:
        return self.stage.clouds[SHADY]

    def at(self, moment: datetime, event: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), event))

    # Time

    async def run(self, until: datetime) -> None:
        """Let time pass until then."""
        step = STEP_MIN
        while self.now < until:
            if await self._look():
                step = STEP_MIN
            moment = min(until, await self._next(step))
            event = self._events[0][0] if self._events else until
            if event <= moment:
                # As the loops would have looked shortly before it, had they looked all the time.
                await self._go(event - timedelta(seconds=STEP_MIN))
                await self._look()
                await self._go(event)
                while self._events and self._events[0][0] <= self.now:
                    await heapq.heappop(self._events)[2]()
                step = STEP_MIN
                continue
            await self._go(moment)
            step = min(STEP_MAX, step * SLOWER)

    async def _go(self, moment: datetime) -> None:
        while moment - self.now > FUNDED_EVERY:
            self.stage.clock.advance(FUNDED_EVERY.total_seconds())
            for name in FUNDED_BY:
                await self._activate(name)
        self.stage.clock.advance(max(0.0, (moment - self.now).total_seconds()))

    async def _next(self, step: float) -> datetime:
        """The next moment to look at: after a step, or before that when a machine has booted or a repair goes on."""
        now = self.now
        moments = [now + timedelta(seconds=step)]
        moments += [
            machine.runs_from + _ANSWERS_SOON
            for cloud in self.stage.clouds.values()
            for machine in cloud.alive()
            if machine.runs_from is not None and machine.runs_from >= now
        ]
        async with self.stage.db.reading() as connection:
            (row,) = await rows(connection, _UNDER_REPAIR, lately=now - REPAIRED_WITHIN)
        if row.lately or (self.shortage is not None and self.shortage.since <= now < self.shortage.until):
            moments.append(now + REPAIR_STEP)
        return max(now + _ANSWERS_SOON, min(moments))

    async def _look(self) -> bool:
        """All loops that look now, and those that they wake. Whether anything goes on."""
        self.looks += 1
        now = self.now
        await self._activate("collect_heartbeats")
        due = {name for name in LOOPS if self._is_due(name, now)} | {*ALWAYS} | await self._open_gates()
        due -= {"collect_heartbeats"}
        stirred = False
        for _ in range(ROUNDS_MAX):
            woken: set[str] = set()
            for name in [name for name in LOOPS if name in due]:
                reports = await self._activate(name)
                if any(report.acted_on for report in reports):
                    stirred = stirred or name in STIRS
                    woken.update(LOOPS[name].wakes)
                    if (
                        name == "place_leases"
                    ):  # A claim from a pool is noticed by its next look, seconds later.
                        woken.add("keep_pools")
                if any(report.more for report in reports):
                    woken.add(name)
            due = woken - _UNUSED
            if not due:
                break
        return stirred

    async def _activate(self, name: str) -> Sequence[Report]:
        self.activations[name] += 1
        self._looked[name] = self.now
        return await self.stage.run(name)

    async def _open_gates(self) -> set[str]:
        async with self.stage.db.reading() as connection:
            now = self.now
            (row,) = await rows(
                connection,
                _OPEN,
                now=now,
                lately=now - timedelta(minutes=10),
                since_a_minute=now - timedelta(minutes=1),
            )
        return {name for name in GATES if getattr(row, name)}

    def _is_due(self, name: str, now: datetime) -> bool:
        """Whether a loop has not looked for long."""
        if name in _UNUSED:
            return False
        last = self._looked.get(name)
        return last is None or now - last >= EVERY.get(name, SELDOM)

    # What happens

    async def arrive(self, arrival: Arrival) -> None:
        tenant = self.tenants[arrival.number % len(self.tenants)]
        for arm, region in REGIONS.items():
            wanted = CapacityRequest(SKU, regions=(region,), sla=arrival.tier)
            lease = await self.stage.lease(tenant, wanted, name=f"{arm}-{arrival.number}")
            request = Request(arrival, arm, lease)
            self.requests.append(request)
            self.at(self.now + arrival.stays, partial(self._leave, request))

    async def _leave(self, request: Request) -> None:
        if await self.stage.state(request.lease) in ("placing", "starting", "ready"):
            request.released_at = self.now
            await self.stage.release(request.lease)

    async def injure(
        self, kind: Kind, lasts: timedelta, *, notice: timedelta | None = None, tries: int = 8
    ) -> None:
        """Something happens to the machine of a lease that has been ready for a while and is well."""
        found = await self._victim(kind)
        if found is None:
            again = partial(self.injure, kind, lasts, notice=notice, tries=tries - 1)
            if tries:
                self.at(self.now + 5 * HOUR, again)
            else:
                self.skipped.append(f"{kind} at {self.now}: no machine")
            return
        request, machine = found
        since = self.now
        until = await self._hurt(kind, request, machine, lasts, notice)
        self.injuries.append(Injury(machine.launch_key, kind, since, until))

    async def _hurt(
        self, kind: Kind, request: Request, machine: "_Machine", lasts: timedelta, notice: timedelta | None
    ) -> datetime | None:
        """Let it happen. Returns until when it lasts; None when it is for ever."""
        cloud, until = self.stage.clouds[machine.account], self.now + lasts
        match kind:
            case Kind.DOWN | Kind.DEAD:
                return self._fail(
                    cloud.machines[machine.provider_ref], machine, until, for_ever=kind is Kind.DEAD
                )
            case Kind.VANISHED:
                cloud.disappear(machine.provider_ref)
                return None
            case Kind.GPU_LOST:
                self._shows(machine.address, lost=True)
                await self._reports(request.lease, Gpu(0, lost=True), xid=79)
                if request.arrival.tier is SlaTier.BRONZE:
                    self.at(until, partial(self._hand_back, request, machine.launch_key))
                return None
            case Kind.NEEDS_RESET:
                self._resets.add(machine.launch_key)
                self._shows(machine.address, lost=False, xid=RESET_XID)
                await self._reports(request.lease, Gpu(0, bus_id=_BUS), xid=RESET_XID)
                return None
            case Kind.RUMOUR:
                await self._reports(request.lease, Gpu(0, lost=True), xid=79)
                return until
            case Kind.WORK:
                planned = None if notice is None else self.now + notice
                await self._take_out(machine.id, planned)
                until = (planned or self.now) + lasts
                self.at(until, partial(self._give_back, machine.id))
                return until
            case Kind.STOPPED:
                await power.ask(self.stage, request.lease, PowerAction.STOP)
                self.at(until, partial(self._start, request))
                return until

    def _fail(
        self, at_provider: FakeMachine, machine: "_Machine", until: datetime, *, for_ever: bool
    ) -> datetime | None:
        at_provider.failed = True
        if not for_ever:
            self.at(until, partial(self._recover, at_provider))
            return until
        collector = self.stage.world.collector
        assert isinstance(collector, FakeCollector)
        collector.silent.add(machine.address)
        return None

    async def _victim(self, kind: Kind) -> tuple[Request, "_Machine"] | None:
        hurt = {injury.launch_key for injury in self.injuries}
        candidates = [each for each in self.requests if each.released_at is None]
        self.random.shuffle(candidates)
        if kind in PROMISED:  # Where something is promised, if there is such a lease.
            candidates.sort(key=lambda request: request.arrival.tier is SlaTier.BRONZE)
        if kind is Kind.NEEDS_RESET:  # A tier in which we reboot, and which has the longest time for it.
            candidates = [each for each in candidates if each.arrival.tier is SlaTier.SILVER]
        for request in candidates:
            row = await self.stage.lease_row(request.lease)
            if row.state != "ready" or row.ready_at is None or self.now - row.ready_at < HOUR / 2:
                continue
            machine = (await self.stage.machines(request.lease))[-1]
            if machine.launch_key in hurt or machine.provider_ref is None:
                continue
            return request, _Machine(
                machine.id, machine.launch_key, machine.provider_ref, machine.account, machine.address or ""
            )
        return None

    async def _recover(self, machine: FakeMachine) -> None:
        machine.failed = False

    def _shows(self, address: str, *, lost: bool, xid: int | None = None) -> None:
        """What every look of ours at a machine shows from now on."""
        at = int(self.now.timestamp())
        self.stage.access.machine(address).health = HealthDocument(
            source="nvml",
            at=at,
            gpus=(GpuHealth(0, uuid=None, bus_id=_BUS, lost=lost),),
            xids=() if xid is None else (HealthXid("xid", xid, _BUS, at, "both"),),
            xids_dropped=0,
            events=False,
            kernel_log="kmsg",
            readings=(),
        )

    async def _reports(self, lease: Lease, gpu: Gpu, *, xid: int) -> None:
        seen = Xid("xid", xid, _BUS, int(self.now.timestamp()))
        await machine_samples.sent(self.stage, lease, gpu, xids=(seen,))
        self.stage.clock.advance(JUST_SETTLED.total_seconds())

    async def _hand_back(self, request: Request, launch_key: str) -> None:
        machines = await self.stage.machines(request.lease)
        if await self.stage.state(request.lease) == "ready" and machines[-1].launch_key == launch_key:
            await asked_for_another(self.stage, request.lease)

    async def _take_out(self, machine_id: MachineId, planned_at: datetime | None) -> None:
        async with self.stage.db.transaction() as connection:
            values = {"id": uuid7(), "machine": machine_id, "now": self.now, "planned": planned_at}
            await connection.execute(_TAKE_OUT, values)

    async def _give_back(self, machine_id: MachineId) -> None:
        async with self.stage.db.transaction() as connection:
            await connection.execute(_GIVE_BACK, {"machine": machine_id, "now": self.now})

    async def _start(self, request: Request) -> None:
        if await self.stage.state(request.lease) == "ready":
            await power.ask(self.stage, request.lease, PowerAction.START)

    def switched(self, machine: FakeMachine) -> None:
        """A provider rebooted, stopped or started a machine: what a reboot ends is over."""
        if machine.launch_key in self._resets:
            self.stage.access.machine(machine.address).health = None

    # Capacity runs short

    async def plan_shortage(self, at: datetime) -> None:
        """Interruptible leases run, there is no more capacity, and leases are asked for that want some."""
        self.shortage = shortage = Shortage(at, at + HOUR)
        for number in range(2):
            shortage.interruptible.append(
                await self.stage.lease(self.tenants[0], _YIELDS, name=f"yields-{number}")
            )
        self.at(at, self._run_short)
        self.at(at + 4 * HOUR, self._end_shortage)

    async def _run_short(self) -> None:
        assert self.shortage is not None
        stock = self.stage.clouds[STEADY].stock
        stock.update({place: 0 for place in stock if place[1] == SCARCE})
        for tier, leases in ((SlaTier.BRONZE, self.shortage.others), (SlaTier.GOLD, self.shortage.promised)):
            wanted = CapacityRequest(SKU, regions=(SCARCE,), sla=tier)
            leases.append(await self.stage.lease(self.tenants[1], wanted, name=f"short-{tier}"))
        self.at(self.now + HOUR / 3, partial(self._gives_up, self.shortage.others[0]))

    async def _end_shortage(self) -> None:
        assert self.shortage is not None
        for lease in (*self.shortage.interruptible, *self.shortage.promised):
            await self._gives_up(lease)

    async def _gives_up(self, lease: Lease) -> None:
        if await self.stage.state(lease) in ("placing", "starting", "ready"):
            self.released[str(lease.id)] = self.now
            await self.stage.release(lease)

    # The bad provider

    async def trouble(self, number: int) -> None:
        """The bad provider misbehaves: its lists lie, or its launches fail, or it ends nothing."""
        faults, lasts = self.shady.faults, HOUR / 2
        match number % 4:
            case 0:
                faults.always("inventory", Fault.EMPTY_LISTING)
            case 1:
                self.lies.append((self.now, len(_BAD_LAUNCHES)))
                faults.script("launch", *_BAD_LAUNCHES)
            case 2:
                faults.always("inventory", Fault.SHRUNKEN_LISTING)
            case _:
                faults.always("terminate", Fault.NOT_YET)
                faults.always("inventory", Fault.UNAVAILABLE)
        self.at(self.now + lasts, self._behave)

    async def _behave(self) -> None:
        for verb in ("inventory", "terminate"):
            self.shady.faults.always(verb, Fault.NONE)


@dataclass(frozen=True)
class _Machine:
    id: MachineId
    launch_key: LaunchKey
    provider_ref: ProviderRef
    account: AccountName
    address: str


_BAD_LAUNCHES = (
    Fault.NO_CAPACITY,
    Fault.LOST_AFTER_EFFECT,
    Fault.NEVER_BOOTS,
    Fault.LOST_WITHOUT_EFFECT,
    Fault.FALSE_NO_CAPACITY,
    Fault.REFUSED_LATER,
)
_UNUSED = frozenset(registry.of_wing("clusters")) | {
    "export_audit",
    "learn_references",
    "rotate_keys",
    "write_samples",
    "read_consoles",
    "sign_ssh_certificates",
    "revoke_ssh_certificates",
    "answer_account_requests",
    "reconcile_periods",
    "request_reconciliations",
}
"""Loops that have nothing to do in this month."""
INJURIES: tuple[tuple[Kind, timedelta, timedelta | None], ...] = (
    (Kind.GPU_LOST, timedelta(hours=2), None),
    (Kind.DOWN, timedelta(minutes=6), None),
    (Kind.RUMOUR, timedelta(0), None),
    (Kind.VANISHED, timedelta(0), None),
    (Kind.DOWN, timedelta(minutes=40), None),
    (Kind.STOPPED, timedelta(hours=3), None),
    (Kind.DEAD, timedelta(0), None),
    (Kind.WORK, timedelta(minutes=30), None),
    (Kind.GPU_LOST, timedelta(hours=5), None),
    (Kind.DOWN, timedelta(minutes=25), None),
    (Kind.WORK, timedelta(hours=1), timedelta(days=4)),
    (Kind.NEEDS_RESET, timedelta(0), None),
)
"""What happens in turn, for how long, and with which notice."""


def arrivals(size: Size, since: datetime) -> list[Arrival]:
    """When leases are asked for: in the day of weekdays, less at night and on the weekend; the same for the same seed."""
    chance = random.Random(size.seed)
    made: list[Arrival] = []
    hour = since
    while hour < since + timedelta(days=size.days - 1):
        busy = hour.weekday() < 5 and 8 <= hour.hour < 18
        expected = size.per_busy_hour if busy else size.per_quiet_hour
        for _ in range(_poisson(chance, expected)):
            tier = chance.choices([SlaTier.BRONZE, SlaTier.SILVER, SlaTier.GOLD], [4, 3, 3])[0]
            stays = timedelta(
                hours=chance.choices([2, 9, 60, 24 * 9], [5, 3, 2, 1])[0] * chance.uniform(0.5, 1.5)
            )
            at = hour + timedelta(seconds=round(chance.uniform(0, 3_599), 1))
            made.append(Arrival(len(made), at, tier, stays))
        hour += HOUR
    return made


def _poisson(chance: random.Random, mean: float) -> int:
    limit, product, number = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        number += 1
    return number


async def begin(db: Database, size: Size, *, api_db: Database | None = None) -> Month:
    """The first moment of a month, with all that is going to happen in it."""
    clock = Clock()
    clouds = {
        name: FakeProvider(
            now=clock.now,
            settings=FakeSettings(boot_seconds=boot),
            listing=tuple(
                an_offer(GpuModel.H100_SXM_80GB, 1, region, usd_per_gpu_hour=price)
                for region in (*REGIONS.values(), *((SCARCE,) if name == STEADY else ()))
            ),
            network=network,
        )
        for name, boot, price, network in ((STEADY, 240.0, "2.19", 10), (SHADY, 540.0, "1.89", 11))
    }
    stage = await set_stage(db, clock, api_db=api_db, clouds=clouds)
    month = Month(stage, size, random.Random(size.seed + 1), clock.now() + timedelta(days=size.days))
    async with db.transaction() as connection:
        await sla_terms.load(connection, stage.api, sla_terms.parse_terms(TERMS))
        await preemptions.put_switch(connection, uuid7(), Switch(clock.now(), True, "user_1", "the month"))
        for detector in Detector:
            arm = enforcement.Arm(detector, armed=True, at=clock.now(), set_by="user_1", why="the month")
            await enforcement.arm(connection, uuid7(), arm)
    _listen(month)
    stage.book = _BOOK
    month.tenants = [await stage.organization(usd=1_000_000, gpu_quota=10_000) for _ in range(3)]
    await stage.run("refresh_offers")
    await _keep_pools(month)
    for arrival in arrivals(size, clock.now() + DAY / 24):
        month.at(arrival.at, partial(month.arrive, arrival))
    gap = timedelta(days=size.days - 4) / max(1, size.injuries)
    for number in range(size.injuries):
        kind, lasts, notice = INJURIES[number % len(INJURIES)]
        at = clock.now() + 2 * DAY + number * gap + gap * month.random.random()
        month.at(at, partial(month.injure, kind, lasts, notice=notice))
    short_at = clock.now() + timedelta(days=size.days / 3)
    month.at(short_at - 2 * HOUR, partial(month.plan_shortage, short_at))
    for number in range(size.troubles):
        at = clock.now() + timedelta(
            days=1 + (size.days - 3) * (number + month.random.random()) / size.troubles
        )
        month.at(at, partial(month.trouble, number))
    return month


def _listen(month: Month) -> None:
    """Hear of every machine that a provider switches, besides what the stage does then."""
    for cloud in month.stage.clouds.values():
        before = cloud.on_power

        def switched(
            address: str, machine: FakeMachine, before: Callable[[str, FakeMachine], None] | None = before
        ) -> None:
            if before is not None:
                before(address, machine)
            month.switched(machine)

        cloud.on_power = switched


async def _keep_pools(month: Month) -> None:
    now = month.now
    for arm, policy, least in ((Arm.FIXED, PoolPolicy.FIXED, 1), (Arm.NEWSVENDOR, PoolPolicy.NEWSVENDOR, 0)):
        pool = a_pool(
            id=PoolId(uuid7()),
            name=str(arm),
            sku=SKU,
            region=REGIONS[arm],
            policy=policy,
            machines_min=least,
            machines_max=4,
            step_max=2,
            waiting_nano_per_hour=Nano(400 * NANO_PER_USD),
            created_at=now,
            changed_at=now,
        )
        async with month.stage.db.transaction() as connection:
            assert await pool_rows.insert(connection, pool)
        month.pools[arm] = pool.id


async def finish(month: Month) -> None:
    """Play the month to its end, release everything, and let all clocks settle."""
    await month.run(month.ends_at)
    await month.stage.release_all()
    for request in month.requests:
        request.released_at = request.released_at or month.now
    await month.run(month.now + timedelta(hours=6))
