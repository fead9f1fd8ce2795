"""How capacity is bought: on demand, or as spot, which its provider may take back."""

from enum import StrEnum


class PurchaseKind(StrEnum):
    """How a lease is bought. An offer serves leases of its own kind alone."""

    ON_DEMAND = "on_demand"
    """Until it is released."""
    SPOT = "spot"
    """Until it is released, or until the provider takes its machine back."""


class OnEviction(StrEnum):
    """What happens to a ready lease whose provider takes its machine back."""

    END = "end"
    """The lease ends."""
    REPLACE = "replace"
    """Its bill is paused, and it waits for another machine, at the same price."""


def kind_of(*, spot: bool) -> PurchaseKind:
    """The kind of an offer or a machine."""
    return PurchaseKind.SPOT if spot else PurchaseKind.ON_DEMAND
