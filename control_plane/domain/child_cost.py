"""What a child cost that outlived its machine: a volume, an address.

While a machine exists, the price of its offer includes what its launch made beside it. From then on the provider
charges for a child by itself, at the price that its lists named when it was first seen, until a list lacks it. Those
amounts are nano-USD.
"""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife, cost_between


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCost:
    """A child that was left behind, and whose it had been."""

    account: AccountName
    provider: str
    kind: str
    """In the provider's word, such as `volume`."""
    ref: str
    """The provider's reference of it."""
    nano_per_hour: Nano
    first_seen_at: datetime
    last_seen_at: datetime | None
    """When a list showed it last; None while lists show it."""
    left_at: datetime
    """Since when it serves nobody: when its machine was gone, or when it was first listed as not needed."""
    gone_at: datetime | None
    """When a list that is believed lacked it; None while lists show it."""
    machine_id: MachineId | None
    """The machine that it was made for; None where no record has its launch key."""
    ending_at: datetime | None
    """When the provider took the request to end that machine, or its lists began to miss it."""
    lease_id: LeaseId | None
    """The lease that held the machine last; None where none did."""
    lease: str | None
    organization_id: OrganizationId | None
    organization: str | None

    @property
    def terms(self) -> BillingTerms:
        return BillingTerms(
            nano_per_hour=self.nano_per_hour, stopped_nano_per_hour=None, billed_while_booting=False
        )

    @property
    def life(self) -> MachineLife:
        """When it was billed by itself: for certain from the end of its machine to the last list that showed it, and at
        most from the request to end the machine to the first list that lacked it.
        """
        earliest = self.left_at if self.ending_at is None else min(self.ending_at, self.left_at)
        return MachineLife(
            ordered_at=earliest,
            running_at=self.left_at,
            ending_at=self.last_seen_at,
            ended_at=self.gone_at,
        )

    def cost(self, since: datetime, until: datetime) -> Nano:
        """What its provider bills for it from `since` to `until`."""
        return cost_between(self.terms, self.life, since, until)
