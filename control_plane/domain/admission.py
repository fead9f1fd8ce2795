"""Whether a request may become a lease: decided when it arrives, before anything is bought.

The checks run in the order in which a customer can act on them. A quote runs the same checks, so a
quote and a create never disagree on the same facts.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from control_plane.domain.money import Nano, accrued, dollars_down, dollars_up
from control_plane.domain.organization import EFFECTS, OrganizationState
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Sku

HOLD_SECONDS = 3_600
"""A lease is admitted when its first hour can be set aside."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What we know of an organization at this moment, read under its lock."""

    state: OrganizationState
    gpu_quota: int
    gpus_held: int
    """GPUs of leases that are placing, starting or ready."""
    available_nano: Nano
    """Posted balance less open holds."""


@dataclass(frozen=True, slots=True)
class ListPrice:
    """A line of a price book: a SKU and its price."""

    sku: Sku
    nano_per_gpu_hour: Nano

    @property
    def nano_per_hour(self) -> Nano:
        return Nano(self.nano_per_gpu_hour * self.sku.shape.gpu_count)


@dataclass(frozen=True, slots=True)
class Price(ListPrice):
    """A price that is in force."""

    book: int
    """The version of the price book that the price is from."""


@dataclass(frozen=True, slots=True)
class Admitted:
    price: Price
    hold_nano: Nano


def hold_for(price: Price, seconds: int = HOLD_SECONDS) -> Nano:
    return accrued(price.nano_per_gpu_hour, price.sku.shape.gpu_count * seconds)


def not_spending(state: OrganizationState) -> Refused:
    """The refusal of what an organization in this state must not do."""
    if state is OrganizationState.SUSPENDED:
        return Refused(
            RefusalCode.ORGANIZATION_SUSPENDED,
            "The organization is suspended; settle its account to lease again.",
        )
    return Refused(RefusalCode.ORGANIZATION_CLOSED, "The organization is closed.")


def admit(
    request: CapacityRequest, price: Price | None, standing: Standing, *, sold: Iterable[str] = ()
) -> Admitted | Refused:
    """Decide on a request.

    `price` is the price book's entry for `request.sku`, or None when we do not sell it; `sold` names the SKUs that a
    refusal then offers instead.
    """
    if not EFFECTS[standing.state].spends:
        return not_spending(standing.state)
    if price is None:
        why = f"There is no SKU {request.sku!r}; {choose(request.sku, sold)} (GET /v1/skus)."
        return Refused(RefusalCode.SKU_UNKNOWN, why)

    ceiling = request.price_nano_per_hour_max
    if ceiling is not None and price.nano_per_hour > ceiling:
        return Refused(
            RefusalCode.PRICE_ABOVE_CEILING,
            f"{request.sku} costs {dollars_up(price.nano_per_hour)} USD per hour, above the ceiling of"
            f" {dollars_down(ceiling)} USD.",
        )

    gpus_after = standing.gpus_held + price.sku.shape.gpu_count
    if gpus_after > standing.gpu_quota:
        return Refused(
            RefusalCode.QUOTA_EXCEEDED,
            f"{gpus_after} GPUs would be held and the quota is {standing.gpu_quota};"
            " release a lease or ask for a higher quota.",
        )

    hold = hold_for(price)
    if standing.available_nano < hold:
        return Refused(
            RefusalCode.BALANCE_TOO_LOW,
            f"The first hour takes a hold of {dollars_up(hold)} USD and {dollars_down(standing.available_nano)} USD"
            " is available; top up the balance.",
        )
    return Admitted(price=price, hold_nano=hold)
