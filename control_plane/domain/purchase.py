"""How capacity is bought: on demand, as spot, which its provider may take back, or interruptible, which we may.

A spot lease has spot capacity of the provider. An interruptible lease has a machine on demand, like every other one,
and yields it to a lease whose readiness is promised when capacity is short (`preemption.py`).
"""

from enum import StrEnum


class PurchaseKind(StrEnum):
    """How a lease is bought."""

    ON_DEMAND = "on_demand"
    """Until it is released."""
    SPOT = "spot"
    """Until it is released, or until the provider takes its machine back."""
    INTERRUPTIBLE = "interruptible"
    """Until it is released, or until we take its machine back, with notice."""


class OnEviction(StrEnum):
    """What happens to a ready lease whose machine is taken back, by its provider or by us."""

    END = "end"
    """The lease ends."""
    REPLACE = "replace"
    """Its bill is paused, and it waits for another machine, at the same price."""


def capacity_for(purchase: PurchaseKind) -> PurchaseKind:
    """The kind of the offers that serve a lease which is bought so."""
    return PurchaseKind.ON_DEMAND if purchase is PurchaseKind.INTERRUPTIBLE else purchase


def kind_of(*, spot: bool) -> PurchaseKind:
    """The kind of an offer or a machine."""
    return PurchaseKind.SPOT if spot else PurchaseKind.ON_DEMAND
