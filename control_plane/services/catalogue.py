"""The price book (what we sell) and the offers (what we can buy)."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from control_plane.db import catalogue, price_agreements
from control_plane.db.catalogue import OfferFilter
from control_plane.db.connection import Connection
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import NANO_MAX, Nano, parse_usd
from control_plane.domain.placement import Offer
from control_plane.domain.price import ListPrice, OtherPrice, Price, promises_more_for_less
from control_plane.domain.price_agreement import PriceAgreement, priced
from control_plane.domain.proof import DEMANDED, Tier
from control_plane.domain.purchase import COMMITTED_DAYS_MAX, PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import REGION_PATTERN, CapacityShape, Shape, Sku
from control_plane.domain.sla import SlaTier
from control_plane.world import World

__all__ = ["OfferFilter"]  # For the controller, which must not import the layer below.


class CatalogueError(ValueError):
    """A price book is invalid. The message names the entry and its fault."""


def parse_price_book(text: str) -> list[ListPrice]:
    """Read a price book in TOML: one `[[sku]]` table per SKU, with its price as a string.

    The price is `usd_per_gpu_hour`, or `usd_per_machine_hour` for a SKU without GPUs, whose `gpu_count` is 0 and which
    has no `gpu_model`.

    The price while the machine is stopped is `stopped_usd_per_gpu_hour` or `stopped_usd_per_machine_hour`. When it is
    left out, it is the same. Where a provider bills us more for a stopped machine, customers pay that instead.

    The price as spot is `spot_usd_per_gpu_hour` or `spot_usd_per_machine_hour`, that of interruptible leases
    `interruptible_usd_per_gpu_hour` or `interruptible_usd_per_machine_hour`. When one is left out, the SKU is not sold
    so. That of a lease that is committed to for a term is `committed_usd_per_gpu_hour` or
    `committed_usd_per_machine_hour`, with `committed_days`, the term.

    `[[sku.region]]` after a SKU is its price for requests that are limited to a region or a jurisdiction: the same
    fields of prices, and `region`. Where it leaves out the price of a stopped machine, of spot, of interruptible leases
    or of a term, the SKU's own one applies, up to the price of the region. The term is the same everywhere.

    `[[sku.tier]]` is its price with an SLA tier: the fields of the price and of those of a stopped machine and of a
    term, `tier`, and `region` where it is that of a region alone. A tier without one has the price that names none. No
    tier may cost less than one that promises less, anywhere that the SKU names.

    `proof` is the tier that the SKU's machines have to prove. The default is `proven`, and `listed` where there are no
    GPUs to prove; emulated machines need `listed`.
    """
    try:
        entries = tomllib.loads(text).get("sku", [])
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"not TOML: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CatalogueError("`sku` must be a list of tables: write [[sku]]")
    book: dict[str, ListPrice] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            price = _list_price(entry)
        except ValueError as error:
            raise CatalogueError(f"SKU number {number}: {error}") from error
        if price.sku.name in book:
            raise CatalogueError(f"SKU number {number}: there is another {price.sku.name!r} before it")
        book[price.sku.name] = price
    return list(book.values())


_PRICES = ("usd_per_gpu_hour", "usd_per_machine_hour")
"""The field of the price, with GPUs and without."""
_STOPPED_PRICES = tuple(f"stopped_{field}" for field in _PRICES)
_SPOT_PRICES = tuple(f"spot_{field}" for field in _PRICES)
_INTERRUPTIBLE_PRICES = tuple(f"interruptible_{field}" for field in _PRICES)
_COMMITTED_PRICES = tuple(f"committed_{field}" for field in _PRICES)
_FIELDS = {field.name for field in fields(Shape)} | {
    *("name", "capacity", "proof"),
    *_PRICES,
    *_STOPPED_PRICES,
    *_SPOT_PRICES,
    *_INTERRUPTIBLE_PRICES,
    *_COMMITTED_PRICES,
    "committed_days",
    "region",
    "tier",
}
_REGION_FIELDS = {
    "region",
    *_PRICES,
    *_STOPPED_PRICES,
    *_SPOT_PRICES,
    *_INTERRUPTIBLE_PRICES,
    *_COMMITTED_PRICES,
}
_TIER_FIELDS = {"tier", "region", *_PRICES, *_STOPPED_PRICES, *_COMMITTED_PRICES}
_COUNT_MAX = 2**31 - 1
"""The largest number that the columns of a SKU hold."""
_Words = TypeVar("_Words", bound=StrEnum)


def _list_price(entry: dict[str, Any]) -> ListPrice:
    """The price of one SKU. Raises ValueError, which names the field."""
    unknown = sorted(entry.keys() - _FIELDS)
    if unknown:
        raise ValueError(f"there is no field {unknown[0]!r}; the fields are {', '.join(sorted(_FIELDS))}")
    gpu_count = _count(entry, "gpu_count")
    shape = Shape(
        gpu_model=_gpu_model(entry, gpu_count),
        gpu_count=gpu_count,
        vcpus=_count(entry, "vcpus"),
        memory_gib=_count(entry, "memory_gib"),
        disk_gib=_count(entry, "disk_gib"),
    )
    capacity = _word(entry, "capacity", CapacityShape) if "capacity" in entry else CapacityShape.VM
    sku = Sku(_text(entry, "name"), shape, capacity, _demanded(entry, gpu_count))
    price, stopped, spot = _prices(entry, gpu_count)
    committed = _committed(entry, gpu_count, price)
    listed = ListPrice(
        sku,
        price,
        stopped_nano_per_unit_hour=stopped,
        spot_nano_per_unit_hour=spot,
        interruptible_nano_per_unit_hour=_interruptible(entry, gpu_count, price),
        committed_nano_per_unit_hour=committed,
        committed_days=None if committed is None else _term(entry),
        others=(*_of_regions(entry, gpu_count), *_of_tiers(entry, gpu_count)),
    )
    if committed is None:
        _refuse_terms(entry)
    else:
        _refuse_too_much(listed)
    cheaper = promises_more_for_less(listed)
    if cheaper is not None:
        raise ValueError(f"{sku.name}: {cheaper}")
    return listed


def _of_regions(sku: dict[str, Any], gpu_count: int) -> tuple[OtherPrice, ...]:
    found: dict[str, OtherPrice] = {}
    for entry in _tables(sku, "region", _REGION_FIELDS):
        region = _region(entry)
        if region in found:
            raise ValueError(f"there is another price for the region {region!r} before it")
        prices = _prices(entry, gpu_count)
        interruptible = _interruptible(entry, gpu_count, prices[0])
        found[region] = OtherPrice(
            region,
            *prices,
            interruptible_nano_per_unit_hour=interruptible,
            committed_nano_per_unit_hour=_committed(entry, gpu_count, prices[0]),
        )
    return tuple(found.values())


def _of_tiers(sku: dict[str, Any], gpu_count: int) -> tuple[OtherPrice, ...]:
    found: dict[tuple[SlaTier, str | None], OtherPrice] = {}
    for entry in _tables(sku, "tier", _TIER_FIELDS):
        sla, region = _word(entry, "tier", SlaTier), _region(entry) if "region" in entry else None
        if (sla, region) in found:
            where = "" if region is None else f" in {region!r}"
            raise ValueError(f"there is another price for the tier {sla.value!r}{where} before it")
        prices = _prices(entry, gpu_count)
        committed = _committed(entry, gpu_count, prices[0])
        found[sla, region] = OtherPrice(region, *prices, sla=sla, committed_nano_per_unit_hour=committed)
    return tuple(found.values())


def _tables(sku: dict[str, Any], name: str, known: set[str]) -> list[dict[str, Any]]:
    """The `[[sku.NAME]]` of a SKU, which have only these fields."""
    entries = sku.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{name!r} must be a list of tables: write [[sku.{name}]]")
    for entry in entries:
        unknown = sorted(entry.keys() - known)
        if unknown:
            raise ValueError(
                f"a {name} has no field {unknown[0]!r}; the fields are {', '.join(sorted(known))}"
            )
    return entries


def _region(entry: dict[str, Any]) -> str:
    region = _text(entry, "region")
    if not REGION_PATTERN.fullmatch(region):
        raise ValueError(
            f"'region' is {region!r}, and must be a region or a jurisdiction, such as eu-central-1 or eu"
        )
    return region


def _prices(entry: dict[str, Any], gpu_count: int) -> tuple[Nano, Nano | None, Nano | None]:
    """The prices of a unit: on demand, while its machine is stopped, and as spot."""
    price = _price(entry, _PRICES, gpu_count)
    stopped = _price(entry, _STOPPED_PRICES, gpu_count) if entry.keys() & {*_STOPPED_PRICES} else None
    if stopped is not None and stopped > price:
        raise ValueError("a machine that is stopped must not cost more than one that is on")
    spot = _price(entry, _SPOT_PRICES, gpu_count) if entry.keys() & {*_SPOT_PRICES} else None
    if spot is not None and spot > price:
        raise ValueError("a spot machine must not cost more than one on demand")
    return price, stopped, spot


def _interruptible(entry: dict[str, Any], gpu_count: int, on_demand: Nano) -> Nano | None:
    """The price of a unit of an interruptible lease; None when it is not sold so."""
    if not entry.keys() & {*_INTERRUPTIBLE_PRICES}:
        return None
    price = _price(entry, _INTERRUPTIBLE_PRICES, gpu_count)
    if price > on_demand:
        raise ValueError("an interruptible lease must not cost more than one on demand")
    return price


def _committed(entry: dict[str, Any], gpu_count: int, on_demand: Nano) -> Nano | None:
    """The price of a unit for a term; None when it is not sold so."""
    if not entry.keys() & {*_COMMITTED_PRICES}:
        return None
    price = _price(entry, _COMMITTED_PRICES, gpu_count)
    if price > on_demand:
        raise ValueError("a lease for a term must not cost more than one on demand")
    return price


def _term(entry: dict[str, Any]) -> int:
    days = _count(entry, "committed_days")
    if not 1 <= days <= COMMITTED_DAYS_MAX:
        raise ValueError(f"'committed_days' must be a whole number from 1 to {COMMITTED_DAYS_MAX:,}")
    return days


def _refuse_terms(sku: dict[str, Any]) -> None:
    """Raise ValueError where something is said about a term of a SKU that is not sold for one."""
    tables = [sku, *sku.get("region", []), *sku.get("tier", [])]
    if any(entry.keys() & {"committed_days", *_COMMITTED_PRICES} for entry in tables):
        raise ValueError("the price for a term is missing: write it where the SKU's other prices are")


def _refuse_too_much(price: ListPrice) -> None:
    """Raise ValueError where a term costs more than can be held for it."""
    days = price.committed_days or 0
    dearest = max(price.nano_per_unit_hour, *(each.nano_per_unit_hour for each in price.others), Nano(0))
    if dearest * price.sku.shape.units * days * 24 > NANO_MAX:
        raise ValueError(f"a term of {days:,} days would cost more than the ledger can hold")


def _gpu_model(entry: dict[str, Any], gpu_count: int) -> GpuModel | None:
    if gpu_count > 0:
        return _word(entry, "gpu_model", GpuModel)
    if "gpu_model" in entry:
        raise ValueError("'gpu_model' must be left out where 'gpu_count' is 0")
    return None


def _price(entry: dict[str, Any], names: Sequence[str], gpu_count: int) -> Nano:
    """The price of one unit for an hour: of a GPU, or of the machine where there are none."""
    field, other = names if gpu_count > 0 else reversed(names)
    if other in entry:
        raise ValueError(f"the price of a SKU with {gpu_count} GPUs is {field!r}, and not {other!r}")
    price = parse_usd(_text(entry, field))
    if price < 0:
        raise ValueError(f"{field!r} must not be negative")
    return price


def _text(entry: dict[str, Any], field: str) -> str:
    if field not in entry:
        raise ValueError(f"the field {field!r} is missing")
    value = entry[field]
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{field!r} must be a text in quotation marks")
    return value


def _count(entry: dict[str, Any], field: str) -> int:
    if field not in entry:
        raise ValueError(f"the field {field!r} is missing")
    value = entry[field]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _COUNT_MAX:
        raise ValueError(f"{field!r} must be a whole number from 0 to {_COUNT_MAX}")
    return value


def _word(entry: dict[str, Any], field: str, kind: type[_Words]) -> _Words:
    value = _text(entry, field)
    if value not in set(kind):
        raise ValueError(f"{field!r} is {value!r}, and must be one of {', '.join(sorted(kind))}")
    return kind(value)


def _demanded(entry: dict[str, Any], gpu_count: int) -> Tier:
    """The tier that machines of a SKU have to prove: `proven`, unless the price book says otherwise."""
    unless_given = Tier.PROVEN if gpu_count > 0 else Tier.LISTED
    tier = _word(entry, "proof", Tier) if "proof" in entry else unless_given
    if gpu_count == 0 and tier is not Tier.LISTED:
        raise ValueError(f"'proof' is {tier.value!r}, and without GPUs nothing can be proven; leave it out")
    if tier not in DEMANDED:
        raise ValueError(f"no new machine can be {tier}; use one of {', '.join(sorted(DEMANDED))}")
    return tier


async def load_price_book(
    connection: Connection,
    world: World,
    book: Sequence[ListPrice],
    *,
    effective_from: datetime | None = None,
) -> int | Refused | None:
    """Put SKUs and prices in force from now on, or from a moment to come.

    Returns the new version of the price book; None when no price changed, which makes no new version. Refused when
    another book would come into force after it: that one was made without knowing of it, and withdrawn books are gone.
    """
    now = world.now()
    since = now if effective_from is None else effective_from
    if since < now:
        why = f"It is {now:%Y-%m-%d %H:%M:%S} UTC; what was used before is charged already. Choose a later time."
        return Refused(RefusalCode.PRICE_IN_PAST, why)
    newest = await catalogue.lock_price_books(connection)
    if newest is not None and (
        newest.effective_from > since or (newest.effective_from == since and since > now)
    ):
        why = (
            f"The price book v{newest.version} is in force from {newest.effective_from:%Y-%m-%d %H:%M:%S} UTC;"
            " choose a later time, or withdraw that book first."
        )
        return Refused(RefusalCode.PRICE_OVERLAPS, why)
    return await catalogue.put_price_book(connection, book, effective_from=since, now=now)


async def withdraw_price_book(connection: Connection, world: World, version: int) -> Refused | None:
    """Let a price book that is not in force yet never be. One that is in force may be in use, and stays."""
    now = world.now()
    await catalogue.lock_price_books(connection)
    found = await catalogue.price_book(connection, version)
    if found is None:
        return Refused(RefusalCode.NOT_FOUND, f"There is no price book v{version}, or it was withdrawn.")
    if found.effective_from <= now:
        since = f"{found.effective_from:%Y-%m-%d %H:%M:%S} UTC"
        why = f"The price book v{version} is in force since {since}, and may be in use; load another one."
        return Refused(RefusalCode.PRICE_IN_PAST, why)
    await catalogue.withdraw_price_book(connection, version, now=now)
    return None


@dataclass(frozen=True, slots=True)
class Sold:
    """A SKU with what was agreed on with a customer."""

    listed: Price
    """The price book's price, with those of regions and tiers."""
    agreements: tuple[PriceAgreement, ...] = ()
    """Those that are in force for the SKU."""

    def at(
        self, purchase: PurchaseKind, region: str | None = None, sla: SlaTier = SlaTier.BRONZE
    ) -> Price | None:
        """What the customer pays in a region, or anywhere, with a tier; None when it is not sold so."""
        return priced(self.listed, purchase, sla, () if region is None else (region,), self.agreements)

    @property
    def regions(self) -> tuple[str, ...]:
        """Where there is another price."""
        named = {each.region for each in self.listed.others} | {each.region for each in self.agreements}
        return tuple(sorted(region for region in named if region is not None))

    @property
    def tiers(self) -> tuple[SlaTier, ...]:
        """Those that have another price somewhere, the least first."""
        named = {each.sla for each in self.listed.others} | {each.sla for each in self.agreements}
        return tuple(sla for sla in SlaTier if sla in named)


async def skus(world: World) -> Sequence[Price]:
    """The price book in force."""
    async with world.db.reading() as connection:
        return await catalogue.prices(connection, now=world.now())


async def sold_to(world: World, organization_id: OrganizationId) -> Sequence[Sold]:
    """What an organization can have, at its own prices."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        book = await catalogue.prices(connection, now=now)
        agreements = await price_agreements.in_force(connection, organization_id, now=now)
    return [
        Sold(listed, tuple(each for each in agreements if each.sku == listed.sku.name)) for listed in book
    ]


async def offers(world: World, only: OfferFilter, *, after: str | None, limit: int) -> Sequence[Offer]:
    """Offers after the one with a key, in the order of their keys."""
    async with world.db.reading() as connection:
        return await catalogue.page(connection, only, after=after, limit=limit)
