"""Queries on what we sell (SKUs, the price book) and what we can buy (offers)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.admission import ListPrice, Price
from control_plane.domain.cpu import Architecture
from control_plane.domain.effective_price import History, Terms
from control_plane.domain.firewall import ProviderFirewall
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.placement import OFFERED_WITHIN, Offer
from control_plane.domain.power_action import PowerAction
from control_plane.domain.proof import Tier
from control_plane.domain.sku import CapacityShape, Shape, Sku


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a price book, one field per column."""

    sku: str
    gpu_model: GpuModel | None
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: CapacityShape
    proof: Tier
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano | None
    spot_nano_per_unit_hour: Nano | None


@dataclass(frozen=True, slots=True)
class _PriceRow(_Line):
    book: int


_PRICES = text("""
SELECT DISTINCT ON (s.name) s.name AS sku, s.gpu_model, s.gpu_count, s.vcpus, s.memory_gib, s.disk_gib, s.capacity,
       s.proof, p.nano_per_unit_hour, p.stopped_nano_per_unit_hour, p.spot_nano_per_unit_hour,
       p.price_book AS book
FROM skus s JOIN prices p ON p.sku = s.name AND p.effective_from <= :now
WHERE CAST(:sku AS text) IS NULL OR s.name = :sku
ORDER BY s.name, p.effective_from DESC
""")
_BOOK = Recordset(_Line, "book")
# The shape of a SKU never changes. The proof that it demands may change, and then applies to new leases.
_PUT_SKUS = text(f"""
INSERT INTO skus (name, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof)
SELECT sku, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof FROM {_BOOK}
ON CONFLICT (name) DO UPDATE SET proof = excluded.proof WHERE skus.proof <> excluded.proof
""")
# An unchanged price is not written again, and a book without changes makes no new version.
_PUT_PRICES = text(f"""
WITH changed AS (
  SELECT book.sku, book.nano_per_unit_hour, book.stopped_nano_per_unit_hour, book.spot_nano_per_unit_hour FROM {_BOOK}
  LEFT JOIN LATERAL (
    SELECT p.nano_per_unit_hour, p.stopped_nano_per_unit_hour, p.spot_nano_per_unit_hour FROM prices p
    WHERE p.sku = book.sku AND p.effective_from <= :now ORDER BY p.effective_from DESC LIMIT 1
  ) old ON true
  WHERE old.nano_per_unit_hour IS DISTINCT FROM book.nano_per_unit_hour
     OR old.stopped_nano_per_unit_hour IS DISTINCT FROM book.stopped_nano_per_unit_hour
     OR old.spot_nano_per_unit_hour IS DISTINCT FROM book.spot_nano_per_unit_hour
), made AS (
  INSERT INTO price_books (effective_from) SELECT :now WHERE EXISTS (SELECT FROM changed) RETURNING version
), put AS (
  INSERT INTO prices (sku, effective_from, price_book, nano_per_unit_hour, stopped_nano_per_unit_hour,
    spot_nano_per_unit_hour)
  SELECT changed.sku, :now, made.version, changed.nano_per_unit_hour, changed.stopped_nano_per_unit_hour,
    changed.spot_nano_per_unit_hour
  FROM changed, made
)
SELECT version FROM made
""")
# Two books that are loaded at the same time become two consecutive versions.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('price_books'))")


async def prices(connection: Connection, *, now: datetime, sku: str | None = None) -> list[Price]:
    """The prices in force at `now`, of every SKU or of one."""
    return [
        Price(
            Sku(row.sku, _shape(row), row.capacity, row.proof),
            row.nano_per_unit_hour,
            row.book,
            stopped_nano_per_unit_hour=row.stopped_nano_per_unit_hour,
            spot_nano_per_unit_hour=row.spot_nano_per_unit_hour,
        )
        for row in await read(connection, _PRICES, _PriceRow, now=now, sku=sku)
    ]


async def put_price_book(connection: Connection, book: Sequence[ListPrice], *, now: datetime) -> int | None:
    """Put SKUs and prices in force from `now` on. Returns the new version; None when no price changed."""
    lines = Recordset.document([_line(price) for price in book])
    await connection.execute(_ONE_AT_A_TIME, {})
    await write(connection, _PUT_SKUS, book=lines)
    return await read_one(connection, _PUT_PRICES, int, book=lines, now=now)


def _line(price: ListPrice) -> _Line:
    shape = price.sku.shape
    return _Line(
        sku=price.sku.name,
        gpu_model=shape.gpu_model,
        gpu_count=shape.gpu_count,
        vcpus=shape.vcpus,
        memory_gib=shape.memory_gib,
        disk_gib=shape.disk_gib,
        capacity=price.sku.capacity,
        proof=price.sku.proof,
        nano_per_unit_hour=price.nano_per_unit_hour,
        stopped_nano_per_unit_hour=price.stopped_nano_per_unit_hour,
        spot_nano_per_unit_hour=price.spot_nano_per_unit_hour,
    )


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """Which offers are wanted; None is every one."""

    gpu_model: GpuModel | None = None
    provider: str | None = None
    region: str | None = None
    """A jurisdiction (`eu`) or a region (`eu-central-1`)."""
    network_gbps_min: int | None = None
    """Leaves out also those whose provider does not say."""


@dataclass(frozen=True, slots=True)
class _OfferRow:
    """An offer, one field per column."""

    key: str
    account: str
    provider: str
    region: str
    native_region: str
    native_type: str
    gpu_model: GpuModel | None
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: str
    cost_nano_per_hour: Nano
    available: bool
    confidence: str
    observed_at: datetime
    architecture: Architecture
    spot: bool
    orderable: bool
    eviction_notice_seconds: int | None
    price_source: str
    network_gbps: int | None
    ephemeral_gib: int | None
    setup_seconds: int
    increment_seconds: int
    minimum_seconds: int
    billed_while_booting: bool
    tried: int
    failed: int
    power: tuple[PowerAction, ...]
    firewall: ProviderFirewall
    stopped_cost_nano_per_hour: Nano | None


_OFFER_COLUMNS = ", ".join(field.name for field in fields(_OfferRow))
_LISTED_ANEW = ", ".join(
    f"{field.name} = excluded.{field.name}"
    for field in fields(_OfferRow)
    if field.name not in ("key", "account", "provider")
)
_OFFERS = text(f"SELECT {_OFFER_COLUMNS} FROM offers ORDER BY cost_nano_per_hour, key")
# By the key, which is the primary key and the same after every refresh. A price is not, and not everybody may see it.
_PAGE = text(f"""
SELECT {_OFFER_COLUMNS} FROM offers
WHERE (CAST(:gpu_model AS text) IS NULL OR gpu_model = :gpu_model)
  AND (CAST(:provider AS text) IS NULL OR provider = :provider)
  AND (CAST(:region AS text) IS NULL OR region = :region OR region LIKE :region || '-%')
  AND (CAST(:network_gbps_min AS bigint) IS NULL OR network_gbps >= :network_gbps_min)
  AND (CAST(:after AS text) IS NULL OR key > :after)
ORDER BY key LIMIT :limit
""")
# The conditions are those of an index, also in a plan that is made once for all values.
_OF_SHAPE = f"""
SELECT {_OFFER_COLUMNS} FROM offers
WHERE gpu_model {{model}} AND gpu_count = :gpu_count
  AND (CAST(:accounts AS text[]) IS NULL OR account = ANY(:accounts))
ORDER BY cost_nano_per_hour, key
"""
_OFFERS_WITH_GPUS = text(_OF_SHAPE.format(model="= :gpu_model"))
_OFFERS_WITHOUT_GPUS = text(_OF_SHAPE.format(model="IS NULL"))
# Replaces the offers of a whole account. An offer that is no longer listed stays, as unavailable, with its age, until
# it is old; one whose machine still runs stays as long as that, because it says what filters before the machine. What
# is deleted and what becomes unavailable are different rows: one statement must not change a row twice.
_REPLACE_OFFERS = text(f"""
WITH listed AS (
  SELECT * FROM {Recordset(_OfferRow, "offers")}
), missing AS (
  UPDATE offers SET available = false
  WHERE account = :account AND available AND observed_at >= :before AND key NOT IN (SELECT key FROM listed)
), pruned AS (
  DELETE FROM offers
  WHERE account = :account AND observed_at < :before AND key NOT IN (SELECT key FROM listed) AND NOT EXISTS (
    SELECT FROM machines m
    WHERE m.account = :account AND m.offer_key = offers.key AND m.state <> '{MachineState.GONE}')
)
INSERT INTO offers ({_OFFER_COLUMNS})
SELECT {_OFFER_COLUMNS} FROM listed
ON CONFLICT (key) DO UPDATE SET {_LISTED_ANEW}
""")


async def offers(connection: Connection) -> list[Offer]:
    """Every offer, cheapest first."""
    return _offers(await read(connection, _OFFERS, _OfferRow))


async def page(connection: Connection, only: OfferFilter, *, after: str | None, limit: int) -> list[Offer]:
    """Offers after the one with a key, in the order of their keys."""
    wanted = {field.name: getattr(only, field.name) for field in fields(only)}
    return _offers(await read(connection, _PAGE, _OfferRow, **wanted, after=after, limit=limit))


async def offers_of_shape(
    connection: Connection,
    gpu_model: GpuModel | None,
    gpu_count: int,
    *,
    accounts: Sequence[AccountName] | None = None,
) -> list[Offer]:
    """The offers with this GPU model (None: without GPUs) and count, of these accounts or of all; cheapest first."""
    statement, model = _OFFERS_WITHOUT_GPUS, {}
    if gpu_model is not None:
        statement, model = _OFFERS_WITH_GPUS, {"gpu_model": gpu_model.value}
    return _offers(
        await read(connection, statement, _OfferRow, gpu_count=gpu_count, accounts=accounts, **model)
    )


def _offers(rows: Sequence[_OfferRow]) -> list[Offer]:
    return [
        Offer(
            key=row.key,
            account=row.account,
            provider=row.provider,
            region=row.region,
            native_region=row.native_region,
            native_type=row.native_type,
            shape=_shape(row),
            capacity=row.capacity,
            cost_nano_per_hour=row.cost_nano_per_hour,
            available=row.available,
            confidence=row.confidence,
            observed_at=row.observed_at,
            architecture=row.architecture,
            spot=row.spot,
            orderable=row.orderable,
            eviction_notice_seconds=row.eviction_notice_seconds,
            price_source=row.price_source,
            network_gbps=row.network_gbps,
            ephemeral_gib=row.ephemeral_gib,
            terms=Terms(
                row.setup_seconds, row.increment_seconds, row.minimum_seconds, row.billed_while_booting
            ),
            history=History(row.tried, row.failed),
            power=row.power,
            firewall=row.firewall,
            stopped_cost_nano_per_hour=row.stopped_cost_nano_per_hour,
        )
        for row in rows
    ]


async def replace_offers(
    connection: Connection, account: AccountName, listed: Sequence[Offer], *, now: datetime
) -> None:
    """Replace the account's offers with those that it lists at `now`, and forget those that it has not listed lately.

    A marketplace gives each ask a key of its own, so its offers would grow for ever.
    """
    rows = [
        _OfferRow(
            key=offer.key,
            account=account,
            provider=offer.provider,
            region=offer.region,
            native_region=offer.native_region,
            native_type=offer.native_type,
            gpu_model=offer.shape.gpu_model,
            gpu_count=offer.shape.gpu_count,
            vcpus=offer.shape.vcpus,
            memory_gib=offer.shape.memory_gib,
            disk_gib=offer.shape.disk_gib,
            capacity=offer.capacity,
            cost_nano_per_hour=offer.cost_nano_per_hour,
            available=offer.available,
            confidence=offer.confidence,
            observed_at=now,
            architecture=offer.architecture,
            spot=offer.spot,
            orderable=offer.orderable,
            eviction_notice_seconds=offer.eviction_notice_seconds,
            price_source=offer.price_source,
            network_gbps=offer.network_gbps,
            ephemeral_gib=offer.ephemeral_gib,
            setup_seconds=offer.terms.setup_seconds,
            increment_seconds=offer.terms.increment_seconds,
            minimum_seconds=offer.terms.minimum_seconds,
            billed_while_booting=offer.terms.billed_while_booting,
            tried=offer.history.tried,
            failed=offer.history.failed,
            power=offer.power,
            firewall=offer.firewall,
            stopped_cost_nano_per_hour=offer.stopped_cost_nano_per_hour,
        )
        for offer in listed
    ]
    await write(
        connection,
        _REPLACE_OFFERS,
        offers=Recordset.document(rows),
        account=account,
        before=now - OFFERED_WITHIN,
    )


def _shape(row: _Line | _OfferRow) -> Shape:
    return Shape(
        gpu_model=row.gpu_model,
        gpu_count=row.gpu_count,
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        disk_gib=row.disk_gib,
    )
