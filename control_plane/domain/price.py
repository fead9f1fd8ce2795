"""What a SKU costs: by region and tier, bought in each way, and what of it is set aside for a lease."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self, TypeVar

from control_plane.domain.ids import PriceAgreementId
from control_plane.domain.money import Nano, accrued, usd
from control_plane.domain.purchase import KEPT, PurchaseKind
from control_plane.domain.sku import Sku, covers
from control_plane.domain.sla import SlaTier

PricedSku = TypeVar("PricedSku", bound="ListPrice")
HOLD_SECONDS = 3_600
"""A lease is admitted when its first hour can be set aside, or the whole term that it is committed to."""
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class OtherPrice:
    """What a SKU costs a request that is limited to a region, or that asks for a tier, or both."""

    region: str | None
    """A jurisdiction or a region; None: anywhere."""
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano | None = None
    """None: that of the line which this one replaces, or this price where that is lower. The same of the next one."""
    spot_nano_per_unit_hour: Nano | None = None
    book: int | None = None
    """The version of the price book that the price is from; None in a book that is not loaded yet."""
    sla: SlaTier | None = None
    """None: all tiers that have no price of their own."""
    interruptible_nano_per_unit_hour: Nano | None = None
    """None: that of the line which this one replaces, or this price where that is lower. The same of the next one."""
    committed_nano_per_unit_hour: Nano | None = None


@dataclass(frozen=True, slots=True)
class ListPrice:
    """A line of a price book: a SKU and its price."""

    sku: Sku
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano | None = field(default=None, kw_only=True)
    """The price while the machine is stopped; None when it is the same, which is also the most that it can be."""
    spot_nano_per_unit_hour: Nano | None = field(default=None, kw_only=True)
    """The price as spot; None when it is not sold so."""
    interruptible_nano_per_unit_hour: Nano | None = field(default=None, kw_only=True)
    """The price of an interruptible lease; None when it is not sold so."""
    committed_nano_per_unit_hour: Nano | None = field(default=None, kw_only=True)
    """The price for a term; None when it is not sold so."""
    committed_days: int | None = field(default=None, kw_only=True)
    """The term that this price is for."""
    purchase: PurchaseKind = field(default=PurchaseKind.ON_DEMAND, kw_only=True)
    """What the prices are for."""
    others: tuple[OtherPrice, ...] = field(default=(), kw_only=True)
    """Its other prices, by region and tier."""

    def within(self, region: str | None, sla: SlaTier) -> Self:
        """The same SKU with the price that it has in a region with a tier. None: anywhere.

        A line of the tier applies before one for all tiers, also where that one is of a narrower region. Of several,
        the narrowest applies.
        """
        if self.purchase is not PurchaseKind.ON_DEMAND:
            raise ValueError("the price of a region is chosen before that of a kind of purchase")
        if not self.others:
            return self
        found = self
        for each in (None, sla):
            line = self._narrowest(region, each)
            if line is not None:
                found = found.with_line(line)
        return replace(found, others=())

    def _narrowest(self, region: str | None, sla: SlaTier | None) -> OtherPrice | None:
        """The line of a tier, or for all tiers, that applies in a region; None where there is none."""
        covering = (price for price in self.others if price.sla is sla and covers(price.region, region))
        return max(covering, key=lambda price: len(price.region or ""), default=None)

    def with_line(self, line: OtherPrice) -> Self:
        """The same SKU with the price of one of its lines."""
        price = line.nano_per_unit_hour
        return replace(
            self,
            nano_per_unit_hour=price,
            stopped_nano_per_unit_hour=_at_most(
                price, line.stopped_nano_per_unit_hour, self.stopped_nano_per_unit_hour
            ),
            spot_nano_per_unit_hour=_at_most(
                price, line.spot_nano_per_unit_hour, self.spot_nano_per_unit_hour
            ),
            interruptible_nano_per_unit_hour=_at_most(
                price, line.interruptible_nano_per_unit_hour, self.interruptible_nano_per_unit_hour
            ),
            committed_nano_per_unit_hour=_at_most(
                price, line.committed_nano_per_unit_hour, self.committed_nano_per_unit_hour
            ),
        )

    def bought(self, purchase: PurchaseKind) -> Self | None:
        """The same SKU with the price of a purchase kind; None when it is not sold so.

        A spot machine cannot be stopped, so there is no other price for that. One of an interruptible lease keeps its
        price while it is stopped, because it occupies the same capacity, and a term costs the same however it is used.
        """
        if purchase is self.purchase:
            return self
        price = {
            PurchaseKind.SPOT: self.spot_nano_per_unit_hour,
            PurchaseKind.INTERRUPTIBLE: self.interruptible_nano_per_unit_hour,
            PurchaseKind.COMMITTED: self.committed_nano_per_unit_hour,
        }.get(purchase)
        if price is None:
            return None
        return replace(self, nano_per_unit_hour=price, stopped_nano_per_unit_hour=None, purchase=purchase)

    @property
    def stopped_nano(self) -> Nano:
        """The price of a stopped unit for an hour, where the provider bills us no more."""
        stopped = self.stopped_nano_per_unit_hour
        return self.nano_per_unit_hour if stopped is None else min(stopped, self.nano_per_unit_hour)

    @property
    def nano_per_gpu_hour(self) -> Nano | None:
        """What customers compare; None when there are no GPUs."""
        return self.nano_per_unit_hour if self.sku.shape.gpu_count > 0 else None

    @property
    def nano_per_hour(self) -> Nano:
        return Nano(self.nano_per_unit_hour * self.sku.shape.units)

    @property
    def term_days(self) -> int | None:
        """The term that a lease at this price is committed to; None unless it is the price for one."""
        return self.committed_days if self.purchase is PurchaseKind.COMMITTED else None

    @property
    def hold_seconds(self) -> int:
        """For how long a lease is paid ahead: the first hour, or the whole term."""
        days = self.term_days
        return HOLD_SECONDS if days is None else days * _DAY_SECONDS


def _at_most(price: Nano, narrow: Nano | None, wide: Nano | None) -> Nano | None:
    """A line's price of another kind: its own, or that of the wider line, up to the price of the line."""
    if narrow is not None or wide is None:
        return narrow
    return min(price, wide)


def promises_more_for_less(price: ListPrice) -> str | None:
    """Where a tier would cost less than one that promises less, as a sentence; None where none does."""
    for region in (None, *sorted({other.region for other in price.others if other.region is not None})):
        for purchase in (kind for kind in PurchaseKind if kind in KEPT):
            sold = [(sla, price.within(region, sla).bought(purchase)) for sla in SlaTier]
            by_tier = [(sla, found.nano_per_unit_hour) for sla, found in sold if found is not None]
            for (less, lower), (more, higher) in pairwise(by_tier):
                if higher < lower:
                    where = "" if region is None else f" in {region}"
                    term = " for its term" if purchase is PurchaseKind.COMMITTED else ""
                    return (
                        f"{more}{where} would cost {usd(higher)} USD{term}, less than {less} with {usd(lower)} USD;"
                        f" write [[sku.tier]] with its price{where}"
                    )
    return None


def bought_as(purchase: PurchaseKind, book: Iterable[PricedSku]) -> list[PricedSku]:
    """What a price book sells as a purchase kind, at its price."""
    priced = (price.bought(purchase) for price in book)
    return [price for price in priced if price is not None]


@dataclass(frozen=True, slots=True)
class Price(ListPrice):
    """A price that is in force."""

    book: int
    """The version of the price book that the price is from, or the listed price that stands beside an agreed one."""
    listed_nano_per_unit_hour: Nano | None = field(default=None, kw_only=True)
    """What the price book says, where the price was agreed on or raised; None: the price is that."""
    agreement_id: PriceAgreementId | None = field(default=None, kw_only=True)
    """The agreement with the customer that the price is from; None: the price book."""

    @property
    def listed_nano(self) -> Nano:
        """What the price book says, without an agreement and the factor of a burst."""
        listed = self.listed_nano_per_unit_hour
        return self.nano_per_unit_hour if listed is None else listed

    def with_line(self, line: OtherPrice) -> Self:
        here = ListPrice.with_line(self, line)
        return here if line.book is None else replace(here, book=line.book)


def hold_for(price: Price) -> Nano:
    """What is set aside for a lease when it is admitted."""
    return accrued(price.nano_per_unit_hour, price.sku.shape.units * price.hold_seconds)
