"""A charge as a row of FOCUS 1.2, the FinOps Open Cost and Usage Specification. Rows of documents: focus_documents.py.

Columns, nullability and units: https://focus.finops.org/focus-specification/v1-2/ (ratified 2025-05-29; read
2026-11-20). All 57 columns are always there, in the order of that list, and then our own, whose names start with `x_`.

What each cost means for a charge of ours:

- ListCost: the price book's price of the charge's version, tier and kind of purchase.
- ContractedCost: the price that was agreed when the lease was admitted, which a negotiated price or a burst changes.
- BilledCost: what is invoiced. EffectiveCost: the same, because nothing is paid ahead for several periods.

A lease that was committed to for a term is its own commitment discount: its rows are Used, and what its customer did
not use of the term, after a release, is one row that is Unused. Nothing is paid ahead, so both are billed when they
arise.

A cost and a quantity of a row are differences of two totals of the lease, each rounded once, so that the rows of a
lease add up to the same however its time is cut (law 7). The unit price is the one that people know, of an hour, and
most hourly prices have no exact price of a second. So price x quantity agrees with the cost to
`product_tolerance`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NewType
from uuid import UUID

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, Prefix, ProjectId, on_wire
from control_plane.domain.money import NANO_PER_USD, SECONDS_PER_HOUR, Nano
from control_plane.domain.period import month_after
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.rating import charge
from control_plane.domain.sku import CapacityShape, Unit, unit_of
from control_plane.domain.sla import SlaTier

VERSION = "1.2"
DECIMAL_PLACES = 12
"""Of every decimal column: nine for nano-USD, and enough for hours that are made of seconds."""
Scaled = NewType("Scaled", int)
"""A decimal times 10^12, exactly."""
_ONE: int = 10**DECIMAL_PLACES
_PER_NANO = _ONE // NANO_PER_USD
CURRENCY = "USD"


class Kind(StrEnum):
    """The type of a column."""

    TEXT = "text"
    JSON = "json"
    DECIMAL = "decimal"
    TIME = "time"
    INTEGER = "integer"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind = Kind.TEXT
    nullable: bool = True


Value = str | Scaled | datetime | None
Row = tuple[Value, ...]
"""The values of a row, one for each of `COLUMNS`, in their order."""


def _columns(names: str, kind: Kind = Kind.TEXT, *, nullable: bool = True) -> list[Column]:
    return [Column(name, kind, nullable) for name in names.split()]


FOCUS_COLUMNS: tuple[Column, ...] = tuple(
    sorted(
        [
            *_columns("BilledCost ContractedCost EffectiveCost ListCost", Kind.DECIMAL, nullable=False),
            *_columns(
                "CommitmentDiscountQuantity ConsumedQuantity ContractedUnitPrice ListUnitPrice PricingQuantity"
                " PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice",
                Kind.DECIMAL,
            ),
            *_columns(
                "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
                Kind.TIME,
                nullable=False,
            ),
            *_columns("SkuPriceDetails Tags", Kind.JSON),
            *_columns(
                "BillingAccountId BillingAccountType BillingCurrency ChargeCategory ChargeFrequency InvoiceIssuerName"
                " ProviderName PublisherName ServiceCategory ServiceName ServiceSubcategory",
                nullable=False,
            ),
            *_columns(
                "AvailabilityZone BillingAccountName CapacityReservationId CapacityReservationStatus ChargeClass"
                " ChargeDescription CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName"
                " CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit InvoiceId"
                " PricingCategory PricingCurrency PricingUnit RegionId RegionName ResourceId ResourceName ResourceType"
                " SkuId SkuMeter SkuPriceId SubAccountId SubAccountName SubAccountType"
            ),
        ],
        key=lambda column: column.name,
    )
)
"""The 57 columns of FOCUS 1.2, in the order of the specification."""
OWN_COLUMNS: tuple[Column, ...] = (
    Column("x_ChargeId", nullable=False),
    Column("x_CorrectsInvoiceId"),
    Column("x_CorrectsInvoiceLine"),
    Column("x_HostProviderName"),
    Column("x_IntervalNumber"),
    Column("x_MachineId"),
    Column("x_NodePoolName"),
    Column("x_PriceBookVersion"),
)
COLUMNS = FOCUS_COLUMNS + OWN_COLUMNS
NAMES = tuple(column.name for column in COLUMNS)
SUMMED = ("BilledCost", "ConsumedQuantity", "ContractedCost", "EffectiveCost", "ListCost", "PricingQuantity")
"""The columns whose sums a manifest states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeFacts:
    """What the rows of many charges say alike, as most hours of a lease do.

    Names and labels are those of when it was rated.
    """

    organization_id: OrganizationId
    organization: str
    project_id: ProjectId
    project: str | None
    lease_id: LeaseId
    lease: str | None
    machine_id: MachineId
    provider: str
    region: str
    sku: str
    gpu_model: GpuModel | None
    gpu_count: int
    capacity: CapacityShape
    purchase: PurchaseKind
    sla: SlaTier
    price_book: int
    period: datetime
    """The first instant of the month in which it is booked: a later one than its own if that was closed already."""
    unit_seconds: int
    stopped: bool
    unused: bool
    """Whether it is what its customer did not use of a term."""
    nano_per_unit_hour: Nano
    list_nano_per_unit_hour: Nano
    amount_nano: Nano
    labels: Mapping[str, str]
    node_pool: str | None
    invoice: str | None
    """The number of its invoice; None unless that was issued a minute before the export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFacts:
    """What a row says of its charge alone."""

    id: UUID
    number: int
    """The number of its interval in the lease."""
    started_at: datetime
    ended_at: datetime
    unit_seconds_before: int
    """Of the lease at the same price, before this interval."""


# Rows of one lease name the same ids, most rows of a file begin in the same month, and many leases run hour by hour.
_wire = lru_cache(maxsize=8_192)(on_wire)
_month_after = lru_cache(maxsize=32)(month_after)
_encode_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


class Pattern:
    """The row of charges for the use of leases that are alike, made once; what differs from charge to charge is put
    into it. `seller` is the company that sells and invoices.
    """

    __slots__ = ("_until", "_values", "facts")

    def __init__(self, facts: AlikeFacts, *, seller: str) -> None:
        self.facts = facts
        self._until = _month_after(facts.period)
        # All others are null: there are no availability zones or reservations to name.
        self._values = list(map(_alike(facts, seller).get, NAMES))

    def row(self, own: OwnFacts) -> Row:
        """The row of one of the charges."""
        facts, values = self.facts, self._values.copy()
        values[_CLASS] = None if facts.period <= own.started_at < self._until else "Correction"
        values[_START] = own.started_at
        values[_END] = own.ended_at
        values[_LIST_COST] = _cost(facts.list_nano_per_unit_hour, own.unit_seconds_before, facts.unit_seconds)
        values[_QUANTITY] = _quantity(own.unit_seconds_before, facts.unit_seconds)
        if facts.purchase is PurchaseKind.COMMITTED:
            values[_COMMITTED_QUANTITY] = values[_QUANTITY]
        values[_ID] = on_wire(Prefix.CHARGE, own.id)
        values[_NUMBER] = str(own.number)
        return tuple(values)


_CLASS, _END, _START, _LIST_COST, _QUANTITY, _COMMITTED_QUANTITY, _ID, _NUMBER = map(
    NAMES.index,
    (
        "ChargeClass",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "ListCost",
        "PricingQuantity",
        "CommitmentDiscountQuantity",
        "x_ChargeId",
        "x_IntervalNumber",
    ),
)


def _alike(facts: AlikeFacts, seller: str) -> dict[str, Value]:
    """The values by column that charges have in common."""
    unit = unit_of(facts.gpu_count)
    word = "GPU" if unit is Unit.GPU else "Machine"
    cost = usd(facts.amount_nano)
    list_price, contracted_price = usd(facts.list_nano_per_unit_hour), usd(facts.nano_per_unit_hour)
    account = _wire(Prefix.ORGANIZATION, facts.organization_id)
    values: dict[str, Value] = {
        "BilledCost": cost,
        "BillingAccountId": account,
        "BillingAccountName": facts.organization,
        "BillingAccountType": "Organization",
        "BillingCurrency": CURRENCY,
        "BillingPeriodEnd": _month_after(facts.period),
        "BillingPeriodStart": facts.period,
        "ChargeCategory": "Usage",
        "ChargeDescription": _description(facts, word),
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": Scaled(facts.unit_seconds * _ONE),
        "ConsumedUnit": f"{word}-Seconds",
        "ContractedCost": cost,
        "ContractedUnitPrice": contracted_price,
        "EffectiveCost": cost,
        "InvoiceId": facts.invoice,
        "InvoiceIssuerName": seller,
        "ListUnitPrice": list_price,
        "PricingCategory": PRICING_CATEGORIES.get(facts.purchase, "Standard"),
        # These must not be null where the columns are present, and the price book is in the currency of the bill.
        "PricingCurrency": CURRENCY,
        "PricingCurrencyContractedUnitPrice": contracted_price,
        "PricingCurrencyEffectiveCost": cost,
        "PricingCurrencyListUnitPrice": list_price,
        "PricingUnit": f"{word}-Hours",
        "ProviderName": seller,
        "PublisherName": seller,
        "RegionId": facts.region,
        "RegionName": facts.region,
        "ResourceId": _wire(Prefix.LEASE, facts.lease_id),
        "ResourceName": facts.lease or None,
        "ResourceType": f"{word} Lease",
        **LEASE_SERVICES[facts.capacity],
        "SkuId": facts.sku,
        "SkuMeter": f"Stopped {word} Time" if facts.stopped else f"{word} Time",
        "SkuPriceDetails": _price_details(facts.sku, facts.gpu_model, facts.sla),
        # The same for every customer and in every price book: the version has a column of its own.
        "SkuPriceId": sku_price_id(facts.sku, facts.purchase, facts.sla, stopped=facts.stopped),
        "SubAccountId": _wire(Prefix.PROJECT, facts.project_id),
        "SubAccountName": facts.project,
        "SubAccountType": "Project",
        "Tags": _json(facts.labels) if facts.labels else "{}",
        "x_HostProviderName": facts.provider,
        "x_MachineId": _wire(Prefix.MACHINE, facts.machine_id),
        "x_NodePoolName": facts.node_pool,
        "x_PriceBookVersion": f"v{facts.price_book}",
    }
    return values if facts.purchase is not PurchaseKind.COMMITTED else values | _of_commitment(facts, word)


def _of_commitment(facts: AlikeFacts, word: str) -> dict[str, Value]:
    """What a row of a lease says that was committed to for a term."""
    commitment = f"{_wire(Prefix.LEASE, facts.lease_id)}/commitment"
    values: dict[str, Value] = {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": commitment,
        "CommitmentDiscountName": facts.lease or commitment,
        "CommitmentDiscountStatus": "Unused" if facts.unused else "Used",
        "CommitmentDiscountType": f"Committed {word} Lease",
        "CommitmentDiscountUnit": f"{word}-Hours",
    }
    if not facts.unused:
        return values
    nothing: dict[str, Value] = {"ConsumedQuantity": None, "ConsumedUnit": None}
    return values | nothing | {"ResourceId": commitment, "ResourceType": "Commitment"}


PRICING_CATEGORIES: Mapping[PurchaseKind, str] = {
    PurchaseKind.SPOT: "Dynamic",
    PurchaseKind.COMMITTED: "Committed",
}
"""Others are Standard."""


def usd(amount: Nano) -> Scaled:
    """An amount of money as a decimal of US dollars."""
    return Scaled(amount * _PER_NANO)


LEASE_SERVICES: Mapping[CapacityShape, Mapping[str, Value]] = {
    CapacityShape.VM: {
        "ServiceCategory": "Compute",
        "ServiceName": "Leases",
        "ServiceSubcategory": "Virtual Machines",
    },
    CapacityShape.BAREMETAL: {
        "ServiceCategory": "Compute",
        "ServiceName": "Bare Metal Leases",
        "ServiceSubcategory": "Other (Compute)",
    },
}
"""A service has one subcategory."""


def sku_price_id(sku: str, purchase: PurchaseKind, sla: SlaTier, *, stopped: bool) -> str:
    return f"{sku}/{purchase}/{sla}{'/stopped' if stopped else ''}"


def product_tolerance(unit_price: Scaled) -> Scaled:
    """How far unit price x quantity may be from a cost.

    A cost is the difference of two totals, each rounded by at most half a nano-USD, and so is the quantity, at half of
    its last place.
    """
    return Scaled(_PER_NANO + -(-abs(unit_price) // _ONE))


def decimal_text(value: int) -> str:
    """All twelve places: a reader that infers types takes `3600` for an integer.

    >>> decimal_text(-2_490_000_000_000)
    '-2.490000000000'
    """
    whole, rest = divmod(abs(value), _ONE)
    return f"{'-' if value < 0 else ''}{whole}.{rest:012d}"


def parse_decimal(text: str) -> Scaled:
    """The inverse of `decimal_text`. Raises ValueError."""
    sign = -1 if text.startswith("-") else 1
    whole, _, rest = text.removeprefix("-").partition(".")
    if len(rest) != DECIMAL_PLACES or not (whole + rest).isdecimal() or not whole:
        raise ValueError(f"not a decimal with {DECIMAL_PLACES} places: {text!r}")
    return Scaled(sign * (int(whole) * _ONE + int(rest)))


def time_text(at: datetime) -> str:
    """As `2026-10-01T00:00:00Z`."""
    return f"{at.astimezone(UTC).isoformat(timespec='seconds').removesuffix('+00:00')}Z"


def _hours(unit_seconds: int) -> int:
    """Scaled hours, rounded half to even."""
    whole, rest = divmod(unit_seconds * _ONE, SECONDS_PER_HOUR)
    half = SECONDS_PER_HOUR // 2
    return whole + 1 if rest > half or (rest == half and whole % 2 == 1) else whole


@lru_cache(maxsize=8_192)
def _cost(nano_per_unit_hour: Nano, unit_seconds_before: int, unit_seconds: int) -> Scaled:
    return usd(charge(nano_per_unit_hour, unit_seconds_before, unit_seconds))


@lru_cache(maxsize=8_192)
def _quantity(unit_seconds_before: int, unit_seconds: int) -> Scaled:
    """In hours: the difference of two totals, each rounded once."""
    return Scaled(_hours(unit_seconds_before + unit_seconds) - _hours(unit_seconds_before))


def _description(facts: AlikeFacts, word: str) -> str:
    bought = facts.purchase.replace("_", " ")
    stopped = ", machine stopped" if facts.stopped else ""
    tier = "" if facts.sla is SlaTier.BRONZE else f", {facts.sla}"
    if facts.unused:
        rest = f"{facts.unit_seconds} {word}-seconds of the term that were not used"
        return f"{facts.sku}, {bought}{tier}, in {facts.region}: {rest}"
    return f"{facts.sku}, {bought}{tier}, in {facts.region}{stopped}: {facts.unit_seconds} {word}-seconds"


@lru_cache(maxsize=1_024)
def _price_details(sku: str, gpu_model: GpuModel | None, sla: SlaTier) -> str:
    """What one pricing unit is: a GPU, or a machine without GPUs, and the tier that it is sold with."""
    details: dict[str, object] = {"InstanceType": sku, "x_SlaTier": sla}
    if gpu_model is not None:
        details |= {"GpuCount": 1, "x_GpuModel": gpu_model}
    return _json(details)


def _json(value: Mapping[str, object]) -> str:
    """The same text for the same value."""
    return _encode_json(dict(value))
