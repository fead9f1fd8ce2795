"""A SKU without GPUs on a stage, and what providers offer for it."""

from control_plane.domain.money import Nano
from control_plane.domain.price import Price
from control_plane.domain.proof import Tier
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.services import catalogue
from tests.support.stage import BOOK, Stage

NANO_PER_SECOND = 200_000
CPU = Price(
    Sku("cpu.16x", Shape(None, 0, 16, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(3_600 * NANO_PER_SECOND),
    book=0,
)
"""0.72 USD per hour."""


async def sell(stage: Stage) -> None:
    """Put the SKU into the price book, after the organization was made. The fake offers machines for it."""
    async with stage.db.transaction() as connection:
        await catalogue.load_price_book(connection, stage.api, [*BOOK, CPU])
