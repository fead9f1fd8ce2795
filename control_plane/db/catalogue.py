"""Queries on what we sell (SKUs, the price book) and what we can buy (offers)."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.admission import Price
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer
from control_plane.domain.proof import Tier
from control_plane.domain.sku import CapacityShape, Shape, Sku


def _shape(row: Any) -> Shape:
    return Shape(
        gpu_model=GpuModel(row.gpu_model),
        gpu_count=row.gpu_count,
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        disk_gib=row.disk_gib,
    )


_PRICES = text("""
SELECT DISTINCT ON (s.name) s.name, s.gpu_model, s.gpu_count, s.vcpus, s.memory_gib, s.disk_gib, s.capacity, s.proof,
       p.nano_per_gpu_hour
FROM skus s JOIN prices p ON p.sku = s.name AND p.effective_from <= :now
WHERE CAST(:sku AS text) IS NULL OR s.name = :sku
ORDER BY s.name, p.effective_from DESC
""")
_PUT_SKU = text("""
INSERT INTO skus (name, gpu_model, gpu_count, vcpus, memory_gib, disk_gib, capacity, proof)
VALUES (:name, :gpu_model, :gpu_count, :vcpus, :memory_gib, :disk_gib, :capacity, :proof)
ON CONFLICT (name) DO UPDATE SET proof = excluded.proof WHERE skus.proof <> excluded.proof
""")
# A price that did not change is not written again: the book stays readable.
_PUT_PRICE = text("""
INSERT INTO prices (sku, effective_from, nano_per_gpu_hour)
SELECT :sku, :effective_from, :nano
WHERE (SELECT nano_per_gpu_hour FROM prices WHERE sku = :sku AND effective_from <= :effective_from
       ORDER BY effective_from DESC LIMIT 1) IS DISTINCT FROM CAST(:nano AS bigint)
""")


async def prices(connection: AsyncConnection, *, now: datetime, sku: str | None = None) -> list[Price]:
    """The price book at `now`: all of it, or the entry of one SKU."""
    return [
        Price(
            sku=Sku(row.name, _shape(row), CapacityShape(row.capacity), Tier(row.proof)),
            nano_per_gpu_hour=Nano(row.nano_per_gpu_hour),
        )
        for row in await rows(connection, _PRICES, now=now, sku=sku)
    ]


async def put_price(connection: AsyncConnection, price: Price, *, effective_from: datetime) -> None:
    """Add a SKU and its price from `effective_from` on.

    Its shape never changes afterwards. What it demands as proof may: new leases go by it.
    """
    shape = price.sku.shape
    values = {
        "name": price.sku.name,
        "gpu_model": shape.gpu_model.value,
        "gpu_count": shape.gpu_count,
        "vcpus": shape.vcpus,
        "memory_gib": shape.memory_gib,
        "disk_gib": shape.disk_gib,
        "capacity": price.sku.capacity.value,
        "proof": price.sku.proof.value,
    }
    await connection.execute(_PUT_SKU, values)
    await connection.execute(
        _PUT_PRICE,
        {"sku": price.sku.name, "effective_from": effective_from, "nano": price.nano_per_gpu_hour},
    )


_OFFERS = text("""
SELECT key, account, provider, region, native_region, native_type, gpu_model, gpu_count, vcpus, memory_gib, disk_gib,
       capacity, cost_nano_per_hour, available, confidence, observed_at
FROM offers
WHERE (CAST(:gpu_model AS text) IS NULL OR gpu_model = :gpu_model)
  AND (CAST(:gpu_count AS int) IS NULL OR gpu_count = :gpu_count)
ORDER BY cost_nano_per_hour, key
""")
# The whole account at once: an offer that is no longer listed stays, unavailable, with its age.
_REPLACE_OFFERS = text("""
WITH listed AS (
  SELECT * FROM jsonb_to_recordset(CAST(:offers AS jsonb)) AS o(
    key text, provider text, region text, native_region text, native_type text, gpu_model text, gpu_count int,
    vcpus int, memory_gib int, disk_gib int, capacity text, cost_nano_per_hour bigint, available boolean,
    confidence text)
), missing AS (
  UPDATE offers SET available = false
  WHERE account = :account AND available AND key NOT IN (SELECT key FROM listed)
)
INSERT INTO offers (key, account, provider, region, native_region, native_type, gpu_model, gpu_count, vcpus,
                    memory_gib, disk_gib, capacity, cost_nano_per_hour, available, confidence, observed_at)
SELECT key, :account, provider, region, native_region, native_type, gpu_model, gpu_count, vcpus,
       memory_gib, disk_gib, capacity, cost_nano_per_hour, available, confidence, :now FROM listed
ON CONFLICT (key) DO UPDATE SET
  region = excluded.region, native_region = excluded.native_region, native_type = excluded.native_type,
  gpu_model = excluded.gpu_model, gpu_count = excluded.gpu_count, capacity = excluded.capacity,
  vcpus = excluded.vcpus, memory_gib = excluded.memory_gib, disk_gib = excluded.disk_gib,
  cost_nano_per_hour = excluded.cost_nano_per_hour, available = excluded.available,
  confidence = excluded.confidence, observed_at = excluded.observed_at
""")


async def offers(
    connection: AsyncConnection, *, gpu_model: GpuModel | None = None, gpu_count: int | None = None
) -> list[Offer]:
    """Every offer, or those with these GPUs; cheapest first."""
    model = None if gpu_model is None else gpu_model.value
    found = await rows(connection, _OFFERS, gpu_model=model, gpu_count=gpu_count)
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
            cost_nano_per_hour=Nano(row.cost_nano_per_hour),
            available=row.available,
            confidence=row.confidence,
            observed_at=row.observed_at,
        )
        for row in found
    ]


async def replace_offers(
    connection: AsyncConnection, account: AccountName, listed: Sequence[Offer], *, now: datetime
) -> None:
    """Make the account's offers what it lists now."""
    document = [
        {
            "key": offer.key,
            "provider": offer.provider,
            "region": offer.region,
            "native_region": offer.native_region,
            "native_type": offer.native_type,
            "gpu_model": offer.shape.gpu_model,
            "gpu_count": offer.shape.gpu_count,
            "vcpus": offer.shape.vcpus,
            "memory_gib": offer.shape.memory_gib,
            "disk_gib": offer.shape.disk_gib,
            "capacity": offer.capacity,
            "cost_nano_per_hour": offer.cost_nano_per_hour,
            "available": offer.available,
            "confidence": offer.confidence,
        }
        for offer in listed
    ]
    await connection.execute(
        _REPLACE_OFFERS, {"offers": json.dumps(document), "account": account, "now": now}
    )
