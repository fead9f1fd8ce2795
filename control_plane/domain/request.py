"""A customer's request for capacity, as stored with the lease."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.money import Nano
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.sku import region_within
from control_plane.domain.sla import SlaTier

PRIORITY_DEFAULT = 50
PRIORITY_MAX = 100


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    sku: str
    regions: tuple[str, ...] = ()
    """Regions or jurisdictions (`eu`, `us-east-1`); empty means anywhere."""
    providers: tuple[str, ...] = ()
    """Provider names; empty means any."""
    price_nano_per_hour_max: Nano | None = None
    """The most that the customer pays per hour for the whole machine."""
    priority: int = PRIORITY_DEFAULT
    """Which of an organization's leases is placed first when capacity is short: the one with the highest number."""
    purchase: PurchaseKind = PurchaseKind.ON_DEMAND
    sla: SlaTier = SlaTier.BRONZE
    """How much is promised with it."""
    network_gbps_min: int | None = None
    """Gigabits per second between machines, at least; None means any, also where the provider does not say."""
    committed_days: int | None = None
    """The term that the customer commits to, which has to be that of the SKU; None for that one, or for none."""

    def allows_region(self, region: str) -> bool:
        return not self.regions or any(region_within(region, wanted) for wanted in self.regions)

    def allows_provider(self, provider: str) -> bool:
        return not self.providers or provider in self.providers

    def allows_network(self, gbps: int | None) -> bool:
        """Whether an offer with this network will do. None is one of which the provider does not say."""
        return self.network_gbps_min is None or (gbps is not None and gbps >= self.network_gbps_min)


WAIT_SECONDS_DEFAULT = 1_800
"""How long a lease waits for an offer, unless its request says otherwise."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What a request for a lease says besides the capacity."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_timeout_seconds: int = WAIT_SECONDS_DEFAULT
    auto_release: AutoRelease = field(default_factory=AutoRelease)
    on_eviction: OnEviction = OnEviction.END
