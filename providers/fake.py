"""A provider in memory, with fault injection: the port's laws as a program that runs.

It ships with the product. It is the executable specification of the port, the cloud of every
scenario test, and a way to try the product without an account at any provider. It imitates what
real providers do:

  - A launch key does not prevent duplicates: two launches with one key buy two machines.
  - Stock is only advisory: a launch can be refused although its offer was listed.
  - A terminated machine stays listed for a while before it disappears.
  - When an answer is lost the machine may or may not exist; only the inventory shows which.

Time is an argument. `machines` keeps every machine that ever existed, so that a test can check that
exactly one machine existed for a launch key, and what it cost in nano-dollars.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.planned_work import WorkKind
from providers.base import (
    Capabilities,
    Child,
    Eviction,
    EvictionState,
    Ingress,
    LateRefusal,
    LaunchOrder,
    LeftOut,
    Listed,
    ListedOffer,
    ListedState,
    MachineNotFound,
    Needed,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    PlannedWork,
    PowerAction,
    ProviderFirewall,
    Sighting,
    Unavailable,
)
from providers.clock import utc_now
from providers.fake_machine import FakeMachine
from providers.fake_offers import DEFAULT_OFFERS
from providers.faults import REFUSALS, Call, Fault, FaultScript, raise_before_effect
from providers.optional import ConsoleTicket

__all__ = ["CAPABILITIES", "DEFAULT_OFFERS", "NAME", "Call", "FakeMachine", "FakeProvider", "Fault"]
__all__ += ["FaultScript", "Settings", "connect"]

NAME = "fake"
_MARK = "sp-"


@dataclass(frozen=True, slots=True)
class Settings:
    boot_seconds: float = 0.0
    """Seconds from the accepted launch until the machine runs."""
    stock: int = 64
    """How many machines of each type can be bought in each region."""
    list_lag_seconds: float = 0.0
    """Seconds that a new machine is missing from the inventory."""
    terminated_visible_seconds: float = 60.0
    """Seconds that a terminated machine is still listed, as GONE."""
    makes_children: bool = False
    """Whether each launch makes a start-up script before its machine, and a volume with it."""
    fetches_consoles: bool = False
    """Whether a console is fetched first, and has to be asked for again."""


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,
    boot_seconds_max=600.0,
    user_data_bytes_max=1_000_000,
    rate_limits=(),
    terminate_may_be_refused=True,
    billed_while_booting=True,
    power=frozenset(PowerAction),
    sells_spot=True,
    firewall=ProviderFirewall.FOLLOWS,
    ingress_max=60,
    console=True,
    planned_work=True,
)


async def _no_wait() -> None:
    """The default `slow` hook, which does not wait."""


@dataclass
class FakeProvider:
    """See the module. `on_call` runs after the effect and before the answer; a test raises from it to crash there."""

    now: Callable[[], datetime] = utc_now
    settings: Settings = field(default_factory=Settings)
    listing: Sequence[ListedOffer] = DEFAULT_OFFERS
    left_out: Sequence[LeftOut] = ()
    """What its listing also has, and what is no offer of ours."""
    faults: FaultScript = field(default_factory=FaultScript)
    network: int = 10
    """The first number of its machines' addresses. Clouds that are used together need one each."""
    slow: Callable[[], Awaitable[None]] = _no_wait
    on_call: Callable[[Call], None] | None = None
    on_power: Callable[[str, FakeMachine], None] | None = None
    """Called when a machine was rebooted, stopped or started, with the address that it had before."""
    capabilities: Capabilities = CAPABILITIES
    machines: dict[ProviderRef, FakeMachine] = field(
        default_factory=dict[ProviderRef, FakeMachine],
        repr=False,  # User data holds bootstrap secrets.
    )
    """Every machine that ever existed."""
    works: dict[str, PlannedWork] = field(default_factory=dict[str, PlannedWork])
    """The work that is planned on machines, by the ids of its events."""
    leftovers: dict[str, Child] = field(default_factory=dict[str, Child])
    """The children that exist, by their reference."""
    calls: list[Call] = field(default_factory=list[Call])
    closed: bool = False

    def __post_init__(self) -> None:
        self.stock: dict[tuple[str, str], int] = {
            _place(offer): self.settings.stock for offer in self.listing
        }
        """Left of each type in each region; a spot type has `:spot` behind its name."""
        self._still_listed: dict[ProviderRef, FakeMachine] = {}
        self._refused: list[LateRefusal] = []
        self._by_key: defaultdict[LaunchKey, list[FakeMachine]] = defaultdict(list)

    # The port.

    async def offers(self) -> tuple[Listed, ...]:
        fault, seconds = self._arrive("offers")
        raise_before_effect(fault, seconds)
        listed: tuple[Listed, ...] = (*(self._priced(offer) for offer in self.listing), *self.left_out)
        await self._answer("offers", fault)
        return listed

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        fault, seconds = self._arrive("launch", order.launch_key)
        raise_before_effect(fault, seconds)
        if self.settings.makes_children:
            self.plant_child(order.launch_key, "startup_script", Needed.UNTIL_BOOT)
        if fault in REFUSALS:
            raise REFUSALS[fault](f"injected fault: {fault}")
        if fault is Fault.LOST_WITHOUT_EFFECT:
            raise OutcomeUnknown("the answer to the launch was lost")
        if fault is Fault.REFUSED_LATER:
            ref = ProviderRef(f"fake-refused-{len(self._refused):08x}")
            self._refused.append(LateRefusal(ref, ListedState.SOLD_OUT, "out_of_stock"))
            return ref
        machine = self._buy(order, fault, seconds)
        await self._answer("launch", fault, order.launch_key)
        if fault is Fault.LOST_AFTER_EFFECT:
            raise OutcomeUnknown("the answer to the launch was lost")
        if fault is Fault.FALSE_NO_CAPACITY:
            raise NoCapacity("injected fault: refused, and launched all the same")
        return machine.provider_ref

    async def inventory(self) -> tuple[Sighting, ...]:
        fault, seconds = self._arrive("inventory")
        raise_before_effect(fault, seconds)
        if fault is Fault.LISTING_FAILS:
            raise Unavailable("the listing failed half-way")
        now = self.now()
        self._forget_the_unlisted(now)
        listed = [
            machine
            for machine in self._still_listed.values()
            if machine.listed(now) and machine.launch_key.startswith(_MARK)
        ]
        if fault is Fault.EMPTY_LISTING:
            listed = []
        if fault is Fault.SHRUNKEN_LISTING:
            listed = listed[: len(listed) // 2]
        await self._answer("inventory", fault)
        return tuple(_sighting(machine, now, unknown=fault is Fault.UNKNOWN_STATUSES) for machine in listed)

    async def refused_later(self) -> tuple[LateRefusal, ...]:
        return tuple(self._refused)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        fault, seconds = self._arrive("terminate", provider_ref)
        raise_before_effect(fault, seconds)
        machine = self._standing(provider_ref)
        if fault is Fault.NOT_YET:
            raise NotYet("still creating it")
        if fault is Fault.LOST_WITHOUT_EFFECT:
            raise OutcomeUnknown("the answer to the terminate was lost")
        self._end(machine, visible_seconds=self.settings.terminated_visible_seconds)
        await self._answer("terminate", fault, provider_ref)
        if fault is Fault.LOST_AFTER_EFFECT:
            raise OutcomeUnknown("the answer to the terminate was lost")

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        self.calls.append(Call(action.value, self.now(), provider_ref))
        fault, seconds = self.faults.next("power")
        raise_before_effect(fault, seconds)
        machine = self._standing(provider_ref)
        if fault is Fault.NOT_YET:
            raise NotYet("it is being changed")
        if fault in REFUSALS:
            raise REFUSALS[fault](f"injected fault: {fault}")
        if fault is Fault.LOST_WITHOUT_EFFECT:
            raise OutcomeUnknown(f"the answer to the {action} was lost")
        self._switch(machine, action)
        await self._answer(action.value, fault, provider_ref)
        if fault is Fault.LOST_AFTER_EFFECT:
            raise OutcomeUnknown(f"the answer to the {action} was lost")

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        fault, seconds = self._arrive("firewall", launch_key)
        raise_before_effect(fault, seconds)
        machine = self._standing(provider_ref)
        if fault in REFUSALS:
            raise REFUSALS[fault](f"injected fault: {fault}")
        done, machine.lets_in = machine.lets_in == wanted, wanted
        await self._answer("firewall", fault, launch_key)
        if fault is Fault.LOST_AFTER_EFFECT:
            raise Unavailable("the answer was lost")
        return done

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str | ConsoleTicket:
        fault, seconds = self._arrive("console", provider_ref)
        raise_before_effect(fault, seconds)
        machine = self._standing(provider_ref)
        await self._answer("console", fault, provider_ref)
        if fault in (Fault.LOST_AFTER_EFFECT, Fault.LOST_WITHOUT_EFFECT):
            raise Unavailable("the answer was lost")
        if self.settings.fetches_consoles and ticket is None:
            return ConsoleTicket(provider_ref)
        return machine.printed

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        fault, seconds = self._arrive("planned_work")
        raise_before_effect(fault, seconds)
        if fault is Fault.LISTING_FAILS:
            raise Unavailable("the listing failed half-way")
        await self._answer("planned_work", fault)
        if fault in (Fault.LOST_AFTER_EFFECT, Fault.LOST_WITHOUT_EFFECT):
            raise Unavailable("the answer was lost")
        return tuple(self.works.values())

    async def children(self) -> tuple[Child, ...]:
        fault, seconds = self._arrive("children")
        raise_before_effect(fault, seconds)
        if fault is Fault.LISTING_FAILS:
            raise Unavailable("the listing failed half-way")
        listed = tuple(child for child in self.leftovers.values() if child.launch_key.startswith(_MARK))
        await self._answer("children", fault)
        return listed

    async def delete_child(self, child: Child) -> None:
        fault, seconds = self._arrive("children", child.ref)
        raise_before_effect(fault, seconds)
        if child.ref not in self.leftovers:
            raise OrderRefused(f"no such {child.kind}: {child.ref[:60]}")
        if fault is Fault.ORDER_REFUSED:
            raise OrderRefused(f"the {child.kind} is in use")
        if fault is Fault.LOST_WITHOUT_EFFECT:
            raise Unavailable("the answer to the deletion was lost")
        del self.leftovers[child.ref]
        await self._answer("children", fault, child.ref)
        if fault is Fault.LOST_AFTER_EFFECT:
            raise Unavailable("the answer to the deletion was lost")

    async def close(self) -> None:
        self.closed = True

    # For tests: what happens to machines, and what became of them.

    def die(self, provider_ref: ProviderRef) -> None:
        """The machine breaks: it is listed as FAILED and still billed."""
        self.machines[provider_ref].failed = True

    def disappear(self, provider_ref: ProviderRef) -> None:
        """The machine ends without notice: the next inventory does not show it."""
        self._end(self.machines[provider_ref], visible_seconds=0.0)

    def announce_eviction(self, provider_ref: ProviderRef) -> None:
        """The provider gives notice that it takes the machine back. It runs on."""
        self.machines[provider_ref].eviction = Eviction(
            EvictionState.ANNOUNCED, self.now(), "marked-for-eviction"
        )

    def withdraw_eviction(self, provider_ref: ProviderRef) -> None:
        """The provider does not say any more that it takes the machine back."""
        self.machines[provider_ref].eviction = None

    def plan_work(
        self,
        provider_ref: ProviderRef,
        at: datetime,
        *,
        event: str = "event-1",
        kind: WorkKind = WorkKind.REBOOT,
    ) -> None:
        """The provider announces work, or another time for an event that it announced."""
        self.works[event] = PlannedWork(provider_ref, event, kind, f"planned-{kind}", at)

    def call_off_work(self, event: str = "event-1") -> None:
        """The provider does not announce it any more: it is over, or will not happen."""
        del self.works[event]

    def evict(self, provider_ref: ProviderRef) -> None:
        """The provider takes the machine back: it is listed as ended for a while, and the provider says why."""
        machine = self.machines[provider_ref]
        machine.eviction = Eviction(EvictionState.TAKEN, self.now(), "evicted-no-capacity")
        self._end(machine, visible_seconds=self.settings.terminated_visible_seconds)

    def hide(self, provider_ref: ProviderRef) -> None:
        """The machine runs and is billed, and no inventory shows it."""
        self.machines[provider_ref].listed_from = None

    def show(self, provider_ref: ProviderRef) -> None:
        """Undo `hide`."""
        self.machines[provider_ref].listed_from = self.now()

    def plant(self, order: LaunchOrder) -> FakeMachine:
        """A machine that nobody asked us for: an orphan, unless a record has its launch key."""
        return self._buy(order, Fault.NONE, 0.0)

    def plant_child(self, launch_key: LaunchKey, kind: str, needed: Needed) -> Child:
        """A child of this launch, unless there is one of its kind already."""
        child = Child(f"{kind}-{launch_key}", kind, launch_key, needed, Nano(10_000_000))
        return self.leftovers.setdefault(child.ref, child)

    def ever(self, launch_key: LaunchKey) -> int:
        """How many machines ever existed for this key. More than one is money lost."""
        return len(self._by_key.get(launch_key, ()))

    def ever_by_key(self) -> Counter[LaunchKey]:
        return Counter({key: len(machines) for key, machines in self._by_key.items()})

    def alive(self, launch_key: LaunchKey | None = None) -> tuple[FakeMachine, ...]:
        """The machines that cost money now, of one launch key or of all."""
        of: Iterable[FakeMachine] = (
            self.machines.values() if launch_key is None else self._by_key.get(launch_key, ())
        )
        return tuple(machine for machine in of if machine.ended_at is None)

    def cost_nano(self) -> Nano:
        """What the provider bills the account so far, for every machine that ever existed."""
        now = self.now()
        return Nano(sum(machine.cost_nano(now) for machine in self.machines.values()))

    def calls_of(self, verb: str) -> int:
        return sum(call.verb == verb for call in self.calls)

    # Internals.

    def _arrive(self, verb: str, subject: str = "") -> tuple[Fault, float]:
        self.calls.append(Call(verb, self.now(), subject))
        return self.faults.next(verb)

    async def _answer(self, verb: str, fault: Fault, subject: str = "") -> None:
        """Called when the effect has happened and the answer is on its way."""
        if self.on_call is not None:
            self.on_call(Call(verb, self.now(), subject))
        if fault is Fault.SLOW:
            await self.slow()
        if fault is Fault.ADAPTER_BUG:
            raise KeyError("an adapter's bug")

    def _priced(self, offer: ListedOffer) -> ListedOffer:
        if self.stock.get(_place(offer), 0) > 0:
            return offer
        return replace(offer, available=False)

    def _buy(self, order: LaunchOrder, fault: Fault, seconds: float) -> FakeMachine:
        place = _place(order)
        offer = next((offer for offer in self.listing if _place(offer) == place), None)
        if offer is None:
            raise OrderRefused(f"no type {order.native_type[:60]} in {order.native_region[:60]}")
        if len(order.user_data.encode()) > self.capabilities.user_data_bytes_max:
            raise OrderRefused(f"user data exceeds {self.capabilities.user_data_bytes_max} bytes")
        if self.stock[place] < 1:
            raise NoCapacity(f"{order.native_type} is sold out in {order.native_region}")
        limit = order.cost_nano_per_hour_max
        if order.spot and limit is not None and offer.cost_nano_per_hour > limit:
            raise NoCapacity(f"{order.native_type} costs more than the order allows")
        self.stock[place] -= 1
        return self._deliver(order, offer, fault, seconds)

    def _deliver(self, order: LaunchOrder, offer: ListedOffer, fault: Fault, seconds: float) -> FakeMachine:
        now, number = self.now(), len(self.machines)
        lag = seconds if fault is Fault.LISTED_LATE else self.settings.list_lag_seconds
        machine = FakeMachine(
            provider_ref=ProviderRef(f"fake-{number:08x}"),
            launch_key=order.launch_key,
            order=order,
            cost_nano_per_hour=offer.cost_nano_per_hour,
            address=f"{self.network}.{number // 62_500 % 250}.{number // 250 % 250}.{number % 250 + 1}",
            launched_at=now,
            runs_from=None
            if fault is Fault.NEVER_BOOTS
            else now + timedelta(seconds=self.settings.boot_seconds),
            listed_from=None if fault is Fault.NEVER_LISTED else now + timedelta(seconds=lag),
        )
        self.machines[machine.provider_ref] = machine
        self._still_listed[machine.provider_ref] = machine
        self._by_key[machine.launch_key].append(machine)
        if self.settings.makes_children:
            self.plant_child(order.launch_key, "volume", Needed.WHILE_IT_EXISTS)
        return machine

    def _standing(self, provider_ref: ProviderRef) -> FakeMachine:
        machine = self.machines.get(provider_ref)
        if machine is None or machine.ended_at is not None:
            raise MachineNotFound(f"no such machine: {provider_ref[:60]}")
        return machine

    def _switch(self, machine: FakeMachine, action: PowerAction) -> None:
        """A machine that is started has another address than before."""
        if machine.stopped and action is PowerAction.REBOOT:
            raise OrderRefused("the machine is stopped")
        if action is (PowerAction.STOP if machine.stopped else PowerAction.START):
            return
        before, machine.stopped = machine.address, action is PowerAction.STOP
        if action is PowerAction.START:
            number = len(self.machines) * 100 + machine.boots
            machine.address = f"{self.network}.250.{number // 250 % 250}.{number % 250 + 1}"
        if not machine.stopped:
            machine.boots += 1
            machine.runs_from = self.now() + timedelta(seconds=self.settings.boot_seconds)
        if self.on_power is not None:
            self.on_power(before, machine)

    def _end(self, machine: FakeMachine, *, visible_seconds: float) -> None:
        now = self.now()
        machine.ended_at = now
        machine.listed_until = now + timedelta(seconds=visible_seconds)
        self.stock[_place(machine.order)] += 1

    def _forget_the_unlisted(self, now: datetime) -> None:
        """Drop what no inventory will show again, so that inventories stay fast in a long run."""
        past = [
            ref
            for ref, machine in self._still_listed.items()
            if machine.listed_until is not None and machine.listed_until <= now
        ]
        for ref in past:
            del self._still_listed[ref]


def _place(of: ListedOffer | LaunchOrder) -> tuple[str, str]:
    """What one stock is for."""
    return f"{of.native_type}{':spot' if of.spot else ''}", of.native_region


def _sighting(machine: FakeMachine, now: datetime, *, unknown: bool) -> Sighting:
    state = ListedState.UNKNOWN if unknown else machine.state(now)
    return Sighting(
        machine.provider_ref,
        machine.launch_key,
        state,
        native_status="reticulating" if unknown else state.value,
        address=machine.address if state is ListedState.RUNNING else None,
        native_type=machine.order.native_type,
        eviction=None if unknown else machine.eviction,
    )


def connect(settings: Settings) -> FakeProvider:
    return FakeProvider(settings=settings)
