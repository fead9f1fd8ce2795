"""The provider in memory, with scripted weather: the port's laws as a program that runs.

It ships: it is the executable specification of the port, the world of every scenario test, and a
provider to try the product with, without an account anywhere. What it does on purpose, because
real providers do it:

  - a launch key is carried, not de-duplicated: launched twice, it buys twice, and the ledger shows it;
  - stock is advisory when the weather says so;
  - a terminated machine stays listed for a while, then is absent;
  - a lost answer is lost: the machine may exist or not, and only the inventory tells.

Time is an argument. `machines` keeps every machine that ever lived, so that a test can say
"exactly one machine ever lived for this key" and what it cost in nano-dollars.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import time

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    InstanceNotFound,
    LaunchOrder,
    ListedOffer,
    ListedState,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    QuotaReached,
    Rejected,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.weather import Event, Weather

__all__ = [
    "CAPABILITIES",
    "DEFAULT_OFFERS",
    "NAME",
    "Call",
    "Event",
    "FakeMachine",
    "FakeProvider",
    "Settings",
    "Weather",
    "an_offer",
    "connect",
]

NAME = "fake"
_MARK = "sp-"


@dataclass(frozen=True, slots=True)
class Settings:
    boot_seconds: float = 0.0
    """From the accepted launch until the machine runs."""
    stock: int = 64
    """Machines to be had of each type in each region."""
    list_lag_seconds: float = 0.0
    """How long a new machine is missing from the inventory."""
    terminated_visible_seconds: float = 60.0
    """How long a terminated machine is still listed, as GONE."""


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,
    boot_seconds_max=600.0,
    user_data_bytes_max=1_000_000,
    rate_limits=(),
    terminate_may_be_refused=True,
    billed_while_booting=True,
)


@dataclass(slots=True)
class FakeMachine:
    provider_ref: ProviderRef
    launch_key: LaunchKey
    order: LaunchOrder
    cost_nano_per_hour: Nano
    address: str
    launched_at: datetime
    runs_from: datetime | None
    """None: never boots."""
    listed_from: datetime | None
    """None: hidden for good."""
    failed: bool = False
    ended_at: datetime | None = None
    """Since when it costs nothing and is no more."""
    listed_until: datetime | None = None

    def state(self, now: datetime) -> ListedState:
        if self.ended_at is not None:
            return ListedState.GONE
        if self.failed:
            return ListedState.FAILED
        booted = self.runs_from is not None and self.runs_from <= now
        return ListedState.RUNNING if booted else ListedState.PROVISIONING

    def listed(self, now: datetime) -> bool:
        if self.listed_until is not None and self.listed_until <= now:
            return False
        return self.listed_from is not None and self.listed_from <= now

    def cost_nano(self, now: datetime) -> Nano:
        """What the provider bills for it so far, by whole seconds from the launch on."""
        seconds = int(((self.ended_at or now) - self.launched_at).total_seconds())
        return accrued(self.cost_nano_per_hour, max(0, seconds))


def an_offer(model: GpuModel, count: int, region: str, *, usd_per_gpu_hour: str) -> ListedOffer:
    """An offer of the fake: the native type is `h100-sxm-80gb.8`, native regions are our words."""
    dollars, _, cents = usd_per_gpu_hour.partition(".")
    per_gpu = int(dollars) * NANO_PER_USD + int(cents.ljust(2, "0")) * NANO_PER_USD // 100
    return ListedOffer(
        native_type=f"{model}.{count}",
        region=region,
        native_region=region,
        shape=Shape(model, count, vcpus=26 * count, memory_gib=200 * count, disk_gib=1_000 * count),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=Nano(per_gpu * count),
        available=True,
        confidence=Confidence.LIVE,
    )


DEFAULT_OFFERS = tuple(
    an_offer(model, count, region, usd_per_gpu_hour=price)
    for region in ("us-east-1", "eu-central-1")
    for model, count, price in (
        (GpuModel.H100_SXM_80GB, 1, "2.19"),
        (GpuModel.H100_SXM_80GB, 8, "2.09"),
        (GpuModel.A100_SXM_80GB, 1, "1.29"),
        (GpuModel.A100_SXM_80GB, 8, "1.19"),
        (GpuModel.L40S_48GB, 1, "0.79"),
        (GpuModel.L4_24GB, 1, "0.49"),
    )
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call that reached the provider."""

    verb: str
    at: datetime
    subject: str = ""
    """The launch key or the provider's reference."""


async def _no_wait() -> None:
    """The default for slow weather: not slow."""


def wall_clock() -> datetime:
    return datetime.fromtimestamp(time(), tz=UTC)


@dataclass
class FakeProvider:
    """See the module. `on_call` runs after the effect and before the answer: what it raises is a crash."""

    now: Callable[[], datetime] = wall_clock
    settings: Settings = field(default_factory=Settings)
    listing: Sequence[ListedOffer] = DEFAULT_OFFERS
    weather: Weather = field(default_factory=Weather)
    slow: Callable[[], Awaitable[None]] = _no_wait
    on_call: Callable[[Call], None] | None = None
    capabilities: Capabilities = CAPABILITIES
    machines: dict[ProviderRef, FakeMachine] = field(
        default_factory=dict[ProviderRef, FakeMachine],
        repr=False,  # User data holds bootstrap secrets.
    )
    """Every machine that ever lived."""
    calls: list[Call] = field(default_factory=list[Call])
    closed: bool = False

    def __post_init__(self) -> None:
        self.stock: dict[tuple[str, str], int] = {
            (offer.native_type, offer.native_region): self.settings.stock for offer in self.listing
        }
        self._still_listed: dict[ProviderRef, FakeMachine] = {}
        self._by_key: defaultdict[LaunchKey, list[FakeMachine]] = defaultdict(list)

    # The port.

    async def offers(self) -> tuple[ListedOffer, ...]:
        event, seconds = self._meet("offers")
        _raise_common(event, seconds)
        listed = tuple(self._priced(offer) for offer in self.listing)
        await self._answer("offers", event)
        return listed

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        event, seconds = self._meet("launch", order.launch_key)
        _raise_common(event, seconds)
        if event in _REFUSALS:
            raise _REFUSALS[event](f"the weather says {event}")
        if event is Event.LOST_WITHOUT_EFFECT:
            raise OutcomeUnknown("the answer to the launch was lost")
        machine = self._buy(order, event, seconds)
        await self._answer("launch", event, order.launch_key)
        if event is Event.LOST_AFTER_EFFECT:
            raise OutcomeUnknown("the answer to the launch was lost")
        if event is Event.LIE:
            raise NoCapacity("sold out, says the provider, and launches")
        return machine.provider_ref

    async def inventory(self) -> tuple[Sighting, ...]:
        event, seconds = self._meet("inventory")
        _raise_common(event, seconds)
        if event is Event.CUT_LIST:
            raise Unavailable("the listing failed half way")
        now = self.now()
        self._forget_the_unlisted(now)
        listed = [
            machine
            for machine in self._still_listed.values()
            if machine.listed(now) and machine.launch_key.startswith(_MARK)
        ]
        if event is Event.EMPTY_LIST:
            listed = []
        if event is Event.SHRUNKEN_LIST:
            listed = listed[: len(listed) // 2]
        await self._answer("inventory", event)
        return tuple(_sighted(machine, now, odd=event is Event.ODD_WORDS) for machine in listed)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        event, seconds = self._meet("terminate", provider_ref)
        _raise_common(event, seconds)
        machine = self.machines.get(provider_ref)
        if machine is None or machine.ended_at is not None:
            raise InstanceNotFound(f"no such machine: {provider_ref[:60]}")
        if event is Event.NOT_YET:
            raise NotYet("still creating it")
        if event is Event.LOST_WITHOUT_EFFECT:
            raise OutcomeUnknown("the answer to the terminate was lost")
        self._end(machine, visible_seconds=self.settings.terminated_visible_seconds)
        await self._answer("terminate", event, provider_ref)
        if event is Event.LOST_AFTER_EFFECT:
            raise OutcomeUnknown("the answer to the terminate was lost")

    async def close(self) -> None:
        self.closed = True

    # For tests: what happens to machines, and what became of them.

    def die(self, provider_ref: ProviderRef) -> None:
        """The machine breaks: listed as FAILED, and still billed."""
        self.machines[provider_ref].failed = True

    def disappear(self, provider_ref: ProviderRef) -> None:
        """The machine is gone and absent from the next inventory, without a word."""
        self._end(self.machines[provider_ref], visible_seconds=0.0)

    def hide(self, provider_ref: ProviderRef) -> None:
        """The machine lives and costs, and no inventory shows it."""
        self.machines[provider_ref].listed_from = None

    def show(self, provider_ref: ProviderRef) -> None:
        """The opposite of `hide`."""
        self.machines[provider_ref].listed_from = self.now()

    def plant(self, order: LaunchOrder) -> FakeMachine:
        """A machine that nobody called for: an orphan, when its key is one that no record has."""
        return self._buy(order, Event.CALM, 0.0)

    def ever(self, launch_key: LaunchKey) -> int:
        """How many machines ever lived for this key. More than one is money lost."""
        return len(self._by_key.get(launch_key, ()))

    def ever_by_key(self) -> Counter[LaunchKey]:
        return Counter({key: len(machines) for key, machines in self._by_key.items()})

    def alive(self, launch_key: LaunchKey | None = None) -> tuple[FakeMachine, ...]:
        """The machines that cost money now: of one key, or all."""
        of: Iterable[FakeMachine] = (
            self.machines.values() if launch_key is None else self._by_key.get(launch_key, ())
        )
        return tuple(machine for machine in of if machine.ended_at is None)

    def cost_nano(self) -> Nano:
        """What the provider bills the account so far, over every machine that ever lived."""
        now = self.now()
        return Nano(sum(machine.cost_nano(now) for machine in self.machines.values()))

    def calls_of(self, verb: str) -> int:
        return sum(call.verb == verb for call in self.calls)

    # Inside.

    def _meet(self, verb: str, subject: str = "") -> tuple[Event, float]:
        self.calls.append(Call(verb, self.now(), subject))
        return self.weather.next(verb)

    async def _answer(self, verb: str, event: Event, subject: str = "") -> None:
        """The effect is done; the answer is on its way."""
        if self.on_call is not None:
            self.on_call(Call(verb, self.now(), subject))
        if event is Event.SLOW:
            await self.slow()
        if event is Event.BUG:
            raise KeyError("an adapter's bug")

    def _priced(self, offer: ListedOffer) -> ListedOffer:
        if self.stock.get((offer.native_type, offer.native_region), 0) > 0:
            return offer
        return ListedOffer(
            offer.native_type,
            offer.region,
            offer.native_region,
            offer.shape,
            offer.capacity,
            offer.cost_nano_per_hour,
            available=False,
            confidence=offer.confidence,
        )

    def _buy(self, order: LaunchOrder, event: Event, seconds: float) -> FakeMachine:
        place = (order.native_type, order.native_region)
        offer = next((o for o in self.listing if (o.native_type, o.native_region) == place), None)
        if offer is None:
            raise OrderRefused(f"no type {order.native_type[:60]} in {order.native_region[:60]}")
        if len(order.user_data.encode()) > self.capabilities.user_data_bytes_max:
            raise OrderRefused(f"user data exceeds {self.capabilities.user_data_bytes_max} bytes")
        if self.stock[place] < 1:
            raise NoCapacity(f"{order.native_type} is sold out in {order.native_region}")
        self.stock[place] -= 1
        return self._deliver(order, offer, event, seconds)

    def _deliver(self, order: LaunchOrder, offer: ListedOffer, event: Event, seconds: float) -> FakeMachine:
        now, number = self.now(), len(self.machines)
        lag = seconds if event is Event.LAGGING else self.settings.list_lag_seconds
        machine = FakeMachine(
            provider_ref=ProviderRef(f"fake-{number:08x}"),
            launch_key=order.launch_key,
            order=order,
            cost_nano_per_hour=offer.cost_nano_per_hour,
            address=f"10.{number // 62_500 % 250}.{number // 250 % 250}.{number % 250 + 1}",
            launched_at=now,
            runs_from=None
            if event is Event.NEVER_BOOTS
            else now + timedelta(seconds=self.settings.boot_seconds),
            listed_from=None if event is Event.HIDDEN else now + timedelta(seconds=lag),
        )
        self.machines[machine.provider_ref] = machine
        self._still_listed[machine.provider_ref] = machine
        self._by_key[machine.launch_key].append(machine)
        return machine

    def _end(self, machine: FakeMachine, *, visible_seconds: float) -> None:
        now = self.now()
        machine.ended_at = now
        machine.listed_until = now + timedelta(seconds=visible_seconds)
        self.stock[machine.order.native_type, machine.order.native_region] += 1

    def _forget_the_unlisted(self, now: datetime) -> None:
        """Drop what no list will show again, so that a long run's inventories stay as fast as its first."""
        past = [
            ref
            for ref, machine in self._still_listed.items()
            if machine.listed_until is not None and machine.listed_until <= now
        ]
        for ref in past:
            del self._still_listed[ref]


_REFUSALS: dict[Event, type[Rejected]] = {
    Event.NO_CAPACITY: NoCapacity,
    Event.QUOTA: QuotaReached,
    Event.REFUSED: OrderRefused,
}


def _raise_common(event: Event, seconds: float) -> None:
    """Weather that any call may meet before it has any effect."""
    if event is Event.THROTTLED:
        raise Throttled("too many requests", retry_after_seconds=seconds)
    if event is Event.UNAVAILABLE:
        raise Unavailable("no connection")
    if event is Event.UNAUTHORIZED:
        raise Unauthorized("the key is not valid")


def _sighted(machine: FakeMachine, now: datetime, *, odd: bool) -> Sighting:
    state = ListedState.UNKNOWN if odd else machine.state(now)
    return Sighting(
        machine.provider_ref,
        machine.launch_key,
        state,
        native_status="reticulating" if odd else state.value,
        address=machine.address if state is ListedState.RUNNING else None,
    )


def connect(settings: Settings) -> FakeProvider:
    return FakeProvider(settings=settings)
