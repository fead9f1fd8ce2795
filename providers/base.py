"""The port every provider implements, and the laws it must keep.

  1. `launch` returns a reference only when the provider accepted the machine. It carries the
     launch key on the machine (tag or name), so that a lost answer can be found again.
  2. `launch` that raises anything but OutcomeUnknown has bought nothing.
  3. `inventory` shows every machine of the account that carries our mark, whatever its state, or
     raises. It never answers a part of the list: an incomplete list is an error.
  4. `terminate` of a machine that is gone raises InstanceNotFound, never succeeds silently.
     Returning means "accepted", not "gone": only the inventory shows an end.
  5. An unknown status word is UNKNOWN, never GONE.
  6. Nothing but ProviderError leaves a provider, and no error text holds a secret.
  7. A provider neither retries, sleeps, paces nor reads the environment: the guard and the
     registry do. One call here is a fixed number of calls there.

`tests/contract/` runs these laws over every provider.

    ProviderError
    |-- Rejected                  a definite no: nothing was bought, nothing changed
    |   |-- NoCapacity            sold out; another offer may do
    |   |-- QuotaReached          our account may not hold more
    |   |-- OrderRefused          the request is wrong or the offer is gone
    |   `-- Unauthorized          key revoked, account blocked
    |-- Throttled                 asked too often; says when to come back. Nothing changed
    |-- Unavailable               no answer to a read, or the request never left
    |-- OutcomeUnknown            no readable answer to a write: look before anything else
    |-- NotYet                    the provider will not end this machine now (still creating it)
    `-- InstanceNotFound          no such machine
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.sighting import ListedState as ListedState  # noqa: PLC0414 - part of the port
from control_plane.domain.money import Nano
from control_plane.domain.sku import CapacityShape, Shape


class ProviderError(Exception):
    """A provider call failed."""


class Rejected(ProviderError):  # noqa: N818 - the tree above reads as sentences
    """A definite no. Nothing was bought and nothing changed."""


class NoCapacity(Rejected):
    """Sold out for this offer, now."""


class QuotaReached(Rejected):
    """Our account with this provider may not hold more."""


class OrderRefused(Rejected):
    """The provider refuses this order as it is: a bad parameter, or the offer is gone."""


class Unauthorized(Rejected):
    """The key is not valid, or the account is blocked."""


class Throttled(ProviderError):  # noqa: N818
    """Too many requests; nothing changed. `retry_after_seconds` is the provider's word or our estimate."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ProviderError):  # noqa: N818
    """A read got no usable answer, or a write never left us. Asking again is safe."""


class OutcomeUnknown(ProviderError):  # noqa: N818
    """A write left us and no readable answer came. Look before asking again; never post it twice."""


class NotYet(ProviderError):  # noqa: N818
    """The provider refuses to end this machine for now; ask again later."""


class InstanceNotFound(ProviderError):  # noqa: N818
    """The provider knows no such machine."""


class Confidence(StrEnum):
    """How much a provider's word on stock is worth."""

    LIVE = "live"
    ADVISORY = "advisory"
    """Listed capacity may still be refused: Lambda, RunPod, Prime."""
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class ListedOffer:
    """A provider's capacity at a price, as it lists it now. A sold-out type is listed with `available=False`."""

    native_type: str
    region: str
    """Our word, such as `us-east-1`."""
    native_region: str
    shape: Shape
    capacity: CapacityShape
    cost_nano_per_hour: Nano
    """For the whole machine."""
    available: bool
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    launch_key: LaunchKey
    native_type: str
    native_region: str
    user_data: str = field(repr=False)
    """cloud-init, at most `Capabilities.user_data_bytes_max` bytes. It holds the machine's private host key."""
    ssh_public_key: str
    """Ours, for providers that insist on a key of their own registry beside user data."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A machine as the provider lists it now. Only machines that carry our mark are sightings."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    state: ListedState
    native_status: str
    address: str | None = None
    """IPv4 or IPv6 text; None while booting."""
    ssh_port: int = 22


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `calls` in any `seconds`, over every replica that uses the account together."""

    bucket: str
    calls: int
    seconds: float
    verbs: frozenset[str]
    """Which of the port's verbs draw from this bucket. A call draws from all that name it, together."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a provider, as data."""

    list_lag_seconds: float
    """How long a machine may take to show in the inventory after its launch was accepted."""
    boot_seconds_max: float
    """After this an instance that never ran is given up."""
    user_data_bytes_max: int
    rate_limits: tuple[RateLimit, ...] = ()
    terminate_may_be_refused: bool = False
    billed_while_booting: bool = True


class Provider(Protocol):
    capabilities: Capabilities

    async def offers(self) -> tuple[ListedOffer, ...]:
        """Everything the account could buy. Raises Unauthorized, Throttled, Unavailable."""
        ...

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        """Buy one machine. Raises Rejected, Throttled, Unavailable (never left us), OutcomeUnknown."""
        ...

    async def inventory(self) -> tuple[Sighting, ...]:
        """Every machine of ours, complete. Raises Unauthorized, Throttled, Unavailable."""
        ...

    async def terminate(self, provider_ref: ProviderRef) -> None:
        """Ask for the end of a machine. Raises InstanceNotFound, NotYet, Throttled, Unavailable, OutcomeUnknown."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
