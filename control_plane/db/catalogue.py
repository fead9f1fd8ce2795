"""Queries on what we sell (SKUs, the price book) and what we can buy (offers)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.cpu import Architecture
from control_plane.domain.effective_price import History, Terms
from control_plane.domain.firewall import ProviderFirewall
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.placement import OFFERED_WITHIN, Offer
from control_plane.domain.power_action import PowerAction
from control_plane.domain.price import ListPrice, OtherPrice, Price
from control_plane.domain.proof import Tier
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.domain.sla import SlaTier


@dataclass(frozen=True, slots=True)
class _Line:
    """A SKU, one field per column."""

    sku: str
    gpu_model: GpuModel | None
    gpu_count: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    capacity: CapacityShape
    proof: Tier


@dataclass(frozen=True, slots=True)
class _PriceLine:
    """What a SKU costs in a place with a tier, one field per column."""

    sku: str
    region: str
    """ANYWHERE, or a region."""
    sla: str
    """ANY_TIER, or a tier."""
    nano_per_unit_hour: Nano | None
    """None in a region or of a tier: it has no other price from then on."""
    stopped_nano_per_unit_hour: Nano | None
    spot_nano_per_unit_hour: Nano | None
    interruptible_nano_per_unit_hour: Nano | None
    committed_nano_per_unit_hour: Nano | None
    committed_days: int | None


@dataclass(frozen=True, slots=True)
class _PriceRow(_PriceLine):
    book: int


ANYWHERE = "anywhere"
"""What the column `region` holds for the price of a SKU in all regions that have no other."""
ANY_TIER = "any"
"""What the column `sla` holds for the price of a SKU with all tiers that have no other."""
# Of each SKU, region and tier, the line of the newest book that is in force at a moment.
_IN_FORCE = """
SELECT DISTINCT ON (p.sku, p.region, p.sla) p.sku, p.region, p.sla, p.nano_per_unit_hour,
       p.stopped_nano_per_unit_hour, p.spot_nano_per_unit_hour, p.interruptible_nano_per_unit_hour,
       p.committed_nano_per_unit_hour, p.committed_days, p.price_book AS book
FROM prices p
WHERE p.effective_from <= {at} AND NOT EXISTS (SELECT FROM price_book_withdrawals w WHERE w.version = p.price_book)
"""
_SKUS = text("""
SELECT name AS sku, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof FROM skus
WHERE CAST(:sku AS text) IS NULL OR name = :sku ORDER BY name
""")
_PRICES = text(f"""
{_IN_FORCE.format(at=":now")} AND (CAST(:sku AS text) IS NULL OR p.sku = :sku)
ORDER BY p.sku, p.region, p.sla, p.effective_from DESC
""")
_BOOK = Recordset(_Line, "book")
_LINES = Recordset(_PriceLine, "lines")
# The shape of a SKU never changes. The proof that it demands may change, and then applies to new leases.
_PUT_SKUS = text(f"""
INSERT INTO skus (name, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof)
SELECT sku, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof FROM {_BOOK}
ON CONFLICT (name) DO UPDATE SET proof = excluded.proof WHERE skus.proof <> excluded.proof AND NOT :scheduled
""")
# An unchanged price is not written again, and a book without changes makes no new version.
_PUT_PRICES = text(f"""
WITH old AS (
  {_IN_FORCE.format(at=":effective_from")} ORDER BY p.sku, p.region, p.sla, p.effective_from DESC
), book AS (
  SELECT * FROM {_LINES}
), changed AS (
  SELECT book.* FROM book LEFT JOIN old USING (sku, region, sla)
  WHERE old.nano_per_unit_hour IS DISTINCT FROM book.nano_per_unit_hour
     OR old.stopped_nano_per_unit_hour IS DISTINCT FROM book.stopped_nano_per_unit_hour
     OR old.spot_nano_per_unit_hour IS DISTINCT FROM book.spot_nano_per_unit_hour
     OR old.interruptible_nano_per_unit_hour IS DISTINCT FROM book.interruptible_nano_per_unit_hour
     OR old.committed_nano_per_unit_hour IS DISTINCT FROM book.committed_nano_per_unit_hour
     OR old.committed_days IS DISTINCT FROM book.committed_days
  UNION ALL
  SELECT old.sku, old.region, old.sla, NULL, NULL, NULL, NULL, NULL, NULL FROM old
  WHERE (old.region, old.sla) <> ('{ANYWHERE}', '{ANY_TIER}') AND old.nano_per_unit_hour IS NOT NULL
    AND EXISTS (SELECT FROM book WHERE book.sku = old.sku)
    AND NOT EXISTS (SELECT FROM book WHERE (book.sku, book.region, book.sla) = (old.sku, old.region, old.sla))
), made AS (
  INSERT INTO price_books (effective_from) SELECT :effective_from WHERE EXISTS (SELECT FROM changed) RETURNING version
), put AS (
  INSERT INTO prices (sku, region, sla, effective_from, price_book, nano_per_unit_hour, stopped_nano_per_unit_hour,
    spot_nano_per_unit_hour, interruptible_nano_per_unit_hour, committed_nano_per_unit_hour, committed_days)
  SELECT changed.sku, changed.region, changed.sla, :effective_from, made.version, changed.nano_per_unit_hour,
    changed.stopped_nano_per_unit_hour, changed.spot_nano_per_unit_hour, changed.interruptible_nano_per_unit_hour,
    changed.committed_nano_per_unit_hour, changed.committed_days
  FROM changed, made
)
SELECT version FROM made
""")
_NEWEST = text("""
SELECT version, effective_from FROM price_books b
WHERE NOT EXISTS (SELECT FROM price_book_withdrawals w WHERE w.version = b.version)
ORDER BY effective_from DESC, version DESC LIMIT 1
""")
_GET_BOOK = text("""
SELECT version, effective_from FROM price_books b WHERE version = :version
  AND NOT EXISTS (SELECT FROM price_book_withdrawals w WHERE w.version = b.version)
""")
_WITHDRAW = text("INSERT INTO price_book_withdrawals (version, withdrawn_at) VALUES (:version, :now)")
# Two books that are loaded at the same time become two consecutive versions.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('price_books'))")


async def prices(connection: Connection, *, now: datetime, sku: str | None = None) -> list[Price]:
    """The prices in force at `now`, of every SKU or of one, with those of regions and tiers."""
    others: dict[str, list[OtherPrice]] = {}
    anywhere: dict[str, tuple[Nano, _PriceRow]] = {}
    for row in await read(connection, _PRICES, _PriceRow, now=now, sku=sku):
        nano = row.nano_per_unit_hour
        if nano is not None and (row.region, row.sla) == (ANYWHERE, ANY_TIER):
            anywhere[row.sku] = (nano, row)
        elif nano is not None:
            others.setdefault(row.sku, []).append(
                OtherPrice(
                    None if row.region == ANYWHERE else row.region,
                    nano,
                    row.stopped_nano_per_unit_hour,
                    row.spot_nano_per_unit_hour,
                    row.book,
                    None if row.sla == ANY_TIER else SlaTier(row.sla),
                    row.interruptible_nano_per_unit_hour,
                    row.committed_nano_per_unit_hour,
                )
            )
    found = []
    for line in await read(connection, _SKUS, _Line, sku=sku):
        if line.sku not in anywhere:
            continue
        nano, row = anywhere[line.sku]
        found.append(
            Price(
                Sku(line.sku, _shape(line), line.capacity, line.proof),
                nano,
                row.book,
                stopped_nano_per_unit_hour=row.stopped_nano_per_unit_hour,
                spot_nano_per_unit_hour=row.spot_nano_per_unit_hour,
                interruptible_nano_per_unit_hour=row.interruptible_nano_per_unit_hour,
                committed_nano_per_unit_hour=row.committed_nano_per_unit_hour,
                committed_days=row.committed_days,
                others=tuple(others.get(line.sku, ())),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class PriceBook:
    """A price book that was loaded."""

    version: int
    effective_from: datetime


async def lock_price_books(connection: Connection) -> PriceBook | None:
    """Let one transaction at a time load or withdraw books. Returns the book that is in force last."""
    await connection.execute(_ONE_AT_A_TIME, {})
    return await read_one(connection, _NEWEST, PriceBook)


async def price_book(connection: Connection, version: int) -> PriceBook | None:
    """A book that was not withdrawn."""
    return await read_one(connection, _GET_BOOK, PriceBook, version=version)


async def withdraw_price_book(connection: Connection, version: int, *, now: datetime) -> None:
    """Let a book that is not in force yet never be."""
    await write(connection, _WITHDRAW, version=version, now=now)


async def put_price_book(
    connection: Connection, book: Sequence[ListPrice], *, effective_from: datetime, now: datetime
) -> int | None:
    """Put SKUs and prices in force from a moment on. Returns the new version; None when no price changed.

    What a SKU has to prove changes now or not at all. The caller holds the lock of the books, and has looked that no
    book is in force after this one.
    """
    scheduled = effective_from > now
    skus = Recordset.document([_line(price) for price in book])
    await write(connection, _PUT_SKUS, book=skus, scheduled=scheduled)
    lines = Recordset.document([line for price in book for line in _price_lines(price)])
    return await read_one(connection, _PUT_PRICES, int, lines=lines, effective_from=effective_from)


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
    )


def _price_lines(price: ListPrice) -> Iterator[_PriceLine]:
    yield _PriceLine(
        price.sku.name,
        ANYWHERE,
        ANY_TIER,
        price.nano_per_unit_hour,
        price.stopped_nano_per_unit_hour,
        price.spot_nano_per_unit_hour,
        price.interruptible_nano_per_unit_hour,
        price.committed_nano_per_unit_hour,
        price.committed_days,
    )
    for other in price.others:
        yield _PriceLine(
            price.sku.name,
            other.region or ANYWHERE,
            other.sla or ANY_TIER,
            other.nano_per_unit_hour,
            other.stopped_nano_per_unit_hour,
            other.spot_nano_per_unit_hour,
            other.interruptible_nano_per_unit_hour,
            other.committed_nano_per_unit_hour,
            None,
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
