"""The port that every provider implements, and the laws that an implementation must keep.

  1. `launch` returns a reference only when the provider accepted the machine. It puts the launch
     key on the machine (as a tag or a name), so that the machine can be found when the answer is lost.
  2. `launch` that raises anything but OutcomeUnknown has bought nothing.
  3. `inventory` returns every machine of the account that carries our launch key, whatever its
     state, or raises. It never returns part of the list: an incomplete list is an error.
  4. `terminate` of a machine that is gone raises MachineNotFound instead of succeeding silently.
     When it returns, the provider accepted the request; only the inventory shows that the machine ended.
  5. A status word that an adapter does not know is UNKNOWN, never GONE.
  6. Only ProviderError leaves a provider, and no error text holds a secret.
  7. `power` of an action that `Capabilities.power` does not name is refused without a call.
  8. An order of spot capacity is refused without a call where `Capabilities.sells_spot` does not say that the provider
     sells it. An order buys what it names: on demand, or spot.
  9. An eviction is what the provider says about one machine (`Sighting.eviction`). It is never concluded from the
     machine having been bought as spot, nor from its end.
  10. `apply_ingress` opens no port of another machine, and leaves SSH and WireGuard open.
  11. `console` changes nothing, and is only called where `Capabilities.console` says that there is one.
  12. `planned_work` returns everything that the provider announces and that is not over, or raises.
  13. A provider does not retry, sleep, pace its calls or read the environment: the guard and the
     registry do. One call of the port is a fixed number of calls to the provider.

`tests/contract/` runs these laws over every provider. Which answer of a provider becomes which of
these errors is decided in one place, `error_law.py`.

    ProviderError
    |-- Rejected                  a definite no: nothing was bought, nothing changed
    |   |-- NoCapacity            sold out; another offer may do
    |   |-- QuotaReached          our account may not hold more
    |   |-- OrderRefused          the request is wrong or the offer is gone
    |   `-- Unauthorized          key revoked, account blocked
    |-- Throttled                 asked too often; says when to come back. Nothing changed
    |-- Unavailable               no answer to a read, or the request never left
    |-- OutcomeUnknown            no readable answer to a write: look before anything else
    |-- NotYet                    the provider will not end or switch this machine now (still changing it)
    `-- MachineNotFound           no such machine
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from control_plane.domain.block import BlockScope
from control_plane.domain.child import Child as Child  # noqa: PLC0414 - part of the port
from control_plane.domain.child import Needed as Needed  # noqa: PLC0414 - part of the port
from control_plane.domain.cpu import Architecture
from control_plane.domain.eviction import Eviction as Eviction  # noqa: PLC0414 - part of the port
from control_plane.domain.eviction import EvictionState as EvictionState  # noqa: PLC0414 - part of the port
from control_plane.domain.firewall import ProviderFirewall as ProviderFirewall  # noqa: PLC0414 - part of the port
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import Ingress as Ingress  # noqa: PLC0414 - part of the port
from control_plane.domain.listed_state import ListedState as ListedState  # noqa: PLC0414 - part of the port
from control_plane.domain.money import Nano
from control_plane.domain.planned_work import PlannedWork as PlannedWork  # noqa: PLC0414 - part of the port
from control_plane.domain.power_action import PowerAction as PowerAction  # noqa: PLC0414 - part of the port
from control_plane.domain.sighting import LateRefusal as LateRefusal  # noqa: PLC0414 - part of the port
from control_plane.domain.sku import CapacityShape, Shape
from control_plane.domain.user_data import UserDataKind

Item = TypeVar("Item")


class Verb(StrEnum):
    """What we ask of a provider."""

    OFFERS = "offers"
    INVENTORY = "inventory"
    PREPARE = "prepare"
    """Register what launches need, such as an SSH key. It may be repeated, so it counts as a read."""
    LAUNCH = "launch"
    TERMINATE = "terminate"
    CHILDREN = "children"
    """List or delete what launches made beside their machines. It may be repeated, so it counts as a read."""
    POWER = "power"
    """Reboot, stop or start a machine. It is never repeated by itself: a second reboot does harm."""
    FIREWALL = "firewall"
    """Look at what a provider's firewall lets in to a machine, and change it. It may be repeated."""
    CONSOLE = "console"
    """Read what a machine printed on its console. It may be repeated, so it counts as a read."""


class ProviderError(Exception):
    """A provider call failed. `code` is the provider's own error code, empty where it gave none."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class Rejected(ProviderError):  # noqa: N818 - the tree above reads as sentences
    """A definite no. Nothing was bought and nothing changed.

    `scope` is what else would be refused now, where the provider's answer says so; None leaves it to
    `control_plane/domain/block.py`.
    """

    def __init__(self, message: str, *, code: str = "", scope: BlockScope | None = None) -> None:
        super().__init__(message, code=code)
        self.scope = scope


class NoCapacity(Rejected):
    """The offer is sold out now."""


class QuotaReached(Rejected):
    """Our account with this provider may not hold more."""


class OrderRefused(Rejected):
    """The provider refuses this order as it is: a parameter is wrong, or the offer is gone."""


class Unauthorized(Rejected):
    """The key is not valid, or the account is blocked."""


class Throttled(ProviderError):  # noqa: N818
    """Too many requests; nothing changed. `retry_after_seconds` comes from the provider or is our estimate."""

    def __init__(self, message: str, *, retry_after_seconds: float, code: str = "") -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ProviderError):  # noqa: N818
    """A read got no usable answer, or a write never left us. Asking again is safe."""


class OutcomeUnknown(ProviderError):  # noqa: N818
    """A write left us and no readable answer came. Look for its effect; never send the write again."""


class NotYet(ProviderError):  # noqa: N818
    """The provider refuses to end or switch this machine for now; ask again later."""


class MachineNotFound(ProviderError):  # noqa: N818
    """The provider knows no such machine."""


class Confidence(StrEnum):
    """How far a provider's stock information can be trusted."""

    LIVE = "live"
    ADVISORY = "advisory"
    """Listed capacity may still be refused: Lambda, RunPod, Prime."""
    STATIC = "static"
    """The provider publishes no stock at all."""


class PriceSource(StrEnum):
    """Where the price of an offer is from."""

    LISTING = "listing"
    """The provider's list."""
    ESTIMATE = "estimate"
    """A calculation that the provider made for us."""
    TABLE = "table"
    """A table of ours, because the provider publishes no prices to programs."""


class LeftOutFor(StrEnum):
    """Why something that a provider lists is no offer of ours."""

    UNKNOWN_GPU = "unknown_gpu"
    UNKNOWN_REGION = "unknown_region"
    NO_PRICE = "no_price"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something with GPUs that a provider lists and that cannot be an offer: it is reported, and nothing is guessed."""

    reason: LeftOutFor
    name: str
    """What is unknown, in the provider's word: the GPU or the region; the type where its price is missing."""


@dataclass(frozen=True, slots=True)
class ListedOffer:
    """A provider's capacity at a price, as it lists it now. A sold-out type is listed with `available=False`."""

    native_type: str
    region: str
    """Our name for the region, such as `us-east-1`; it begins with the jurisdiction."""
    native_region: str
    shape: Shape
    capacity: CapacityShape
    cost_nano_per_hour: Nano
    """For the whole machine."""
    available: bool
    confidence: Confidence
    architecture: Architecture = Architecture.X86_64
    """Of the CPUs. It is ARM64 for hosts of GH200 and GB200."""
    spot: bool = False
    """Whether the provider may take the machine back. Where it sells a type in both ways, both offers have its name."""
    eviction_notice_seconds: int | None = None
    """How long before that it says so; None where it does not."""
    price_source: PriceSource = PriceSource.LISTING
    network_gbps: int | None = None
    """Gigabits per second between machines, with the network cards that it is ordered with; None where the listing does
    not say."""
    ephemeral_gib: int | None = None
    """Local disk besides that of the shape, whose content ends with the machine; None where it is not listed."""
    stopped_cost_nano_per_hour: Nano | None = None
    """What the provider bills while the machine is stopped: its disk and its addresses, or nothing. None where it bills
    as much as for one that runs."""
    supplier: str | None = None
    """Who owns the machine, as the provider names them, where it sells machines of others. Failures of such machines
    count for all offers of the supplier."""


Listed = ListedOffer | LeftOut
"""What a listing of offers consists of."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    launch_key: LaunchKey
    native_type: str
    native_region: str
    user_data: str = field(repr=False)
    """Of the provider's `Capabilities.user_data_kind`, and at most `user_data_bytes_max` bytes. It holds the machine's
    private host key."""
    ssh_public_key: str
    """For providers that start no machine without a registered key: the public key of our SSH authority. Nobody logs
    in with it. The user data has the machine's sshd accept no plain key, and the bootstrap deletes this one."""
    withdrawn_ssh_keys: tuple[str, ...] = ()
    """Public keys that were our SSH authority's and must not open a machine any more, because they leaked or were
    replaced. A provider that gives its machines every key of the account deletes these first."""
    spot: bool = False
    """Whether it is for spot capacity, which the provider may take back."""
    cost_nano_per_hour_max: Nano | None = None
    """The most that an hour of a spot machine may cost us. What is billed beside the machine, such as its volume, comes
    on top."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A machine as the provider lists it now. Only machines that carry one of our launch keys are sightings."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    state: ListedState
    native_status: str
    address: str | None = None
    """The IP address, IPv4 or IPv6; None while the machine has none."""
    ssh_port: int = 22
    native_type: str | None = None
    """As in the offer it was bought by; None where the list does not say. It prices machines without a record."""
    eviction: Eviction | None = None
    """That the provider takes the machine back, in its own words; None while it says nothing of the kind."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a listing, as `listings.whole_listing` reads them."""

    items: Sequence[Item]
    next_cursor: str | None
    """What the next page is asked for with; None on the last page."""
    listed: int | None = None
    """How many entries the provider showed on this page, including those that are left out of `items`."""
    total: int | None = None
    """How many entries the provider says there are on all pages; None where it does not say."""


class CountedBy(StrEnum):
    """Whose calls a provider counts together."""

    ACCOUNT = "account"
    """Those of an account, its key or its project."""
    SOURCE_ADDRESS = "source_address"
    """Those from an address. All our processes count as one address, with every account at the provider."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `calls` in any `seconds`, over every replica together. A minimum interval is one call in that time."""

    bucket: str
    calls: int
    seconds: float
    verbs: frozenset[Verb]
    """The verbs that draw from this bucket. One call draws from every bucket that names its verb."""
    burst: int | None = None
    """For a token bucket: how many tokens it holds, while `calls` in `seconds` is what it is refilled with."""
    counted_by: CountedBy = CountedBy.ACCOUNT
    requests: Mapping[Verb, int] = field(default_factory=dict[Verb, int])
    """How many requests a call of a verb makes that this limit counts, where it is more than one."""


@dataclass(frozen=True, slots=True)
class ToldLimit:
    """What a provider says about a limit with its answers."""

    bucket: str
    calls: int
    seconds: float
    left: int
    """Calls that it would take now."""
    resets_seconds: float
    """Until then it takes no more than those."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a provider, as data."""

    list_lag_seconds: float
    """How long a machine may be missing from the inventory after its launch was accepted."""
    boot_seconds_max: float
    """A machine that does not run this long after its launch is given up."""
    user_data_bytes_max: int
    user_data_kind: UserDataKind = UserDataKind.CLOUD_CONFIG
    rate_limits: tuple[RateLimit, ...] = ()
    terminate_may_be_refused: bool = False
    billed_while_booting: bool = True
    boot_seconds_usual: float = 300.0
    """How long a boot usually takes; it counts where it is billed."""
    billed_seconds_unit: int = 1
    """What the provider rounds the time of a machine up to."""
    billed_seconds_min: int = 0
    """What the provider bills of each run of a machine at least."""
    power: frozenset[PowerAction] = frozenset()
    """What `HasPower` can do; nothing for a provider that cannot."""
    sells_spot: bool = False
    """Whether launches can order spot capacity. Spot offers of the others are listed, and never ordered."""
    firewall: ProviderFirewall = ProviderFirewall.NONE
    """What is filtered before a machine. `HasFirewall` belongs to FOLLOWS."""
    ingress_max: int = 0
    """How many entries `HasFirewall` takes for a machine, besides SSH and WireGuard."""
    console: bool = False
    """Whether it is `HasConsole`: whether programs can read what a machine printed."""
    planned_work: bool = False
    """Whether it is `TellsPlannedWork`."""
    answer_seconds: Mapping[Verb, float] = field(default_factory=dict[Verb, float])
    """How long to wait for an answer to a verb, where the guard's own timeout is too short. At most
    `guard.ANSWER_SECONDS_MAX`."""


class Provider(Protocol):
    capabilities: Capabilities

    async def offers(self) -> tuple[Listed, ...]:
        """Everything the account could buy, and what had to be left out.

        Raises Unauthorized, Throttled, Unavailable.
        """
        ...

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        """Buy one machine. Raises Rejected, Throttled, Unavailable (never left us), OutcomeUnknown."""
        ...

    async def inventory(self) -> tuple[Sighting, ...]:
        """Every machine of ours, complete. Raises Unauthorized, Throttled, Unavailable."""
        ...

    async def terminate(self, provider_ref: ProviderRef) -> None:
        """Ask for the end of a machine. Raises MachineNotFound, NotYet, Throttled, Unavailable, OutcomeUnknown
        and Unauthorized.
        """
        ...

    async def close(self) -> None:
        """Close the connections to the provider."""
        ...
