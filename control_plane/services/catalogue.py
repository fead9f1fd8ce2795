"""The price book (what we sell) and the offers (what we can buy)."""

import tomllib
from collections.abc import Sequence
from typing import Any

from control_plane.db import catalogue
from control_plane.db.connection import Connection
from control_plane.domain.admission import ListPrice, Price
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import parse_usd
from control_plane.domain.placement import Offer
from control_plane.domain.proof import DEMANDED, Tier
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.world import World


class CatalogueError(ValueError):
    """A price book is invalid. The message names the entry and its fault."""


def parse_price_book(text: str) -> list[ListPrice]:
    """Read a price book in TOML: one `[[sku]]` table per SKU, `usd_per_gpu_hour` as a string.

    `proof` is the tier that the SKU's machines have to prove. The default is `proven`; emulated machines need `listed`.
    """
    try:
        entries = tomllib.loads(text).get("sku", [])
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"not TOML: {error}") from error
    book: dict[str, ListPrice] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            price = _list_price(entry)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CatalogueError(f"SKU number {number}: {error}") from error
        if price.sku.name in book:
            raise CatalogueError(f"SKU number {number}: there is another {price.sku.name!r} before it")
        book[price.sku.name] = price
    return list(book.values())


def _list_price(entry: dict[str, Any]) -> ListPrice:
    shape = Shape(
        gpu_model=GpuModel(entry["gpu_model"]),
        gpu_count=int(entry["gpu_count"]),
        vcpus=int(entry["vcpus"]),
        memory_gib=int(entry["memory_gib"]),
        disk_gib=int(entry["disk_gib"]),
    )
    capacity = CapacityShape(entry.get("capacity", CapacityShape.VM))
    sku = Sku(str(entry["name"]), shape, capacity, _demanded(entry))
    return ListPrice(sku, parse_usd(entry["usd_per_gpu_hour"]))


def _demanded(entry: dict[str, Any]) -> Tier:
    """The tier that machines of a SKU have to prove: `proven`, unless the price book says otherwise."""
    tier = Tier(entry.get("proof", Tier.PROVEN))
    if tier not in DEMANDED:
        raise ValueError(f"no new machine can be {tier}; use one of {', '.join(sorted(DEMANDED))}")
    return tier


async def load_price_book(connection: Connection, world: World, book: Sequence[ListPrice]) -> int | None:
    """Put SKUs and prices in force from now on.

    Returns the new version of the price book; None when no price changed, which makes no new version.
    """
    return await catalogue.put_price_book(connection, book, now=world.now())


async def skus(world: World) -> Sequence[Price]:
    async with world.db.reading() as connection:
        return await catalogue.prices(connection, now=world.now())


async def offers(world: World, *, gpu_model: GpuModel | None) -> Sequence[Offer]:
    async with world.db.reading() as connection:
        return await catalogue.offers(connection, gpu_model=gpu_model)
