"""A customer's request for capacity, as stored with the lease."""

from dataclasses import dataclass

from control_plane.domain.money import Nano
from control_plane.domain.sku import region_within


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    sku: str
    regions: tuple[str, ...] = ()
    """Regions or jurisdictions (`eu`, `us-east-1`); empty means anywhere."""
    providers: tuple[str, ...] = ()
    """Provider names; empty means any."""
    price_nano_per_hour_max: Nano | None = None
    """The most that the customer pays per hour for the whole machine."""

    def allows_region(self, region: str) -> bool:
        return not self.regions or any(region_within(region, wanted) for wanted in self.regions)

    def allows_provider(self, provider: str) -> bool:
        return not self.providers or provider in self.providers
