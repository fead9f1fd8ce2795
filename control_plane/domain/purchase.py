"""How capacity is bought: on demand, as spot, which its provider may take back, interruptible, which we may, or
committed, for a term.

A spot lease has spot capacity of the provider. An interruptible lease has a machine on demand, like every other one,
and yields it to a lease whose readiness is promised when capacity is short (`preemption.py`). A committed lease has a
machine on demand as well, costs less, and is paid for its whole term, used or not (docs/decisions/0116).
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
    COMMITTED = "committed"
    """For a term. A customer who releases it earlier pays the rest of the term at once."""


TAKEN_BACK = frozenset({PurchaseKind.SPOT, PurchaseKind.INTERRUPTIBLE})
"""What costs less because its machine may be taken back. Nothing is promised with it."""
KEPT = frozenset(PurchaseKind) - TAKEN_BACK
"""What keeps its machine, and may have a service level."""
COMMITTED_DAYS_MAX = 1_100
"""Of a term: three years, and some days."""


class OnEviction(StrEnum):
    """What happens to a ready lease whose machine is taken back, by its provider or by us."""

    END = "end"
    """The lease ends."""
    REPLACE = "replace"
    """Its bill is paused, and it waits for another machine, at the same price."""


def capacity_for(purchase: PurchaseKind) -> PurchaseKind:
    """The kind of the offers that serve a lease which is bought so."""
    return PurchaseKind.SPOT if purchase is PurchaseKind.SPOT else PurchaseKind.ON_DEMAND


def kind_of(*, spot: bool) -> PurchaseKind:
    """The kind of an offer or a machine."""
    return PurchaseKind.SPOT if spot else PurchaseKind.ON_DEMAND
