"""A quote over a catalogue of 50,000 offers: from the request to the ranking, without HTTP.

The offers are of 20 accounts, all GPU models and counts, and 40 regions, so a SKU has about 780 of them. A second
catalogue has a tenth of all its offers in the one shape that is asked for. The machine may do other work as well, so
the CPU time that this process takes for each quote is measured, too; PostgreSQL's is not in it.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from itertools import cycle, islice, product

from benchmarks.ground import SKU, customer, empty_database
from benchmarks.results import Figure, median, percentile
from control_plane.db import accounts, catalogue
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Shape
from control_plane.services import quotes
from control_plane.world import World

OFFERS = 50_000
ACCOUNTS = 20
CROWDED = 5_000
"""Offers of the one shape that is asked for, in the second catalogue."""
WARM_UP = 20
QUOTES = 200
COUNTS = (1, 2, 4, 8)
ASKED = (GpuModel.H100_SXM_80GB, 1)


def _offers(
    account: AccountName, shapes: Iterator[tuple[GpuModel, int]], count: int, now: datetime
) -> list[Offer]:
    return [
        _offer(account, model, gpus, number, now)
        for number, (model, gpus) in enumerate(islice(shapes, count))
    ]


def _offer(account: AccountName, model: GpuModel, gpus: int, number: int, now: datetime) -> Offer:
    region = f"{('eu', 'us', 'ca', 'jp')[number // 64 % 4]}-zone-{number // 64 % 40}"
    return Offer(
        key=f"{account}:{region}:{model}.{gpus}.{number}",
        account=account,
        provider="fake",
        region=region,
        native_region=region,
        native_type=f"{model}.{gpus}.{number}",
        shape=Shape(model, gpus, 26 * gpus, 225 * gpus, 1_000 * gpus),
        capacity="vm",
        cost_nano_per_hour=Nano((2_000_000_000 + 7_919 * number % 3_000_000_000) * gpus),
        available=number % 3 > 0,
        confidence=("live", "advisory", "static")[number % 3],
        observed_at=now,
    )


def crowded() -> Iterator[tuple[GpuModel, int]]:
    """The shapes of the second catalogue."""
    spread = list(product(GpuModel, COUNTS))
    for number in range(OFFERS):
        yield ASKED if number % (OFFERS // CROWDED) == 0 else spread[number % len(spread)]


async def fill(world: World, shapes: Iterator[tuple[GpuModel, int]]) -> list[AccountName]:
    """Store OFFERS offers of these shapes. Returns their accounts."""
    names = [AccountName(f"fake/{number:02}") for number in range(ACCOUNTS)]
    async with world.db.transaction() as connection:
        for account in names:
            await accounts.register(connection, account, "fake", now=world.now())
            listed = _offers(account, shapes, OFFERS // ACCOUNTS, world.now())
            await catalogue.replace_offers(connection, account, listed, now=world.now())
            await accounts.record_refresh(connection, account, now=world.now())
    return names


async def _quoted(
    world: World, organization_id: OrganizationId, request: CapacityRequest
) -> tuple[list[float], list[float], int]:
    """Seconds of each quote, seconds of CPU time of each, and how many offers it ranked."""
    ranked = 0
    seconds: list[float] = []
    cpu: list[float] = []
    for _ in range(WARM_UP + QUOTES):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        quote = await quotes.quote(world, organization_id, request, reach=EVERYWHERE)
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - cpu_begun)
        if isinstance(quote, Refused) or not quote.ranking.candidates:
            raise AssertionError(f"nothing was ranked: {quote}")
        rejected = sum(1 + rejection.more for rejection in quote.ranking.rejected)
        ranked = len(quote.ranking.candidates) + quote.ranking.more_candidates + rejected
    return seconds[WARM_UP:], cpu[WARM_UP:], ranked


async def _catalogue(name: str, shapes: Iterator[tuple[GpuModel, int]]) -> list[Figure]:
    url = await empty_database(f"bench_quotes_{name}")
    async with customer(url) as (world, organization_id, _):
        await fill(world, shapes)
        figures: list[Figure] = []
        for words, request in (
            ("anywhere", CapacityRequest(SKU)),
            ("in the EU", CapacityRequest(SKU, regions=("eu",))),
        ):
            seconds, cpu, ranked = await _quoted(world, organization_id, request)
            title, note = f"{OFFERS:,} offers, {name}, {words}", f"{ranked:,} offers ranked"
            figures += [
                Figure(f"{title}: p50", 1_000 * median(seconds), "ms", note=note),
                Figure(f"{title}: p99", 1_000 * percentile(seconds, 0.99), "ms", "<= 20"),
                Figure(f"{title}: CPU p50", 1_000 * median(cpu), "ms", note="of this process"),
                Figure(f"{title}: CPU p99", 1_000 * percentile(cpu, 0.99), "ms"),
            ]
    return figures


async def measure() -> list[Figure]:
    spread = cycle(product(GpuModel, COUNTS))
    return [*await _catalogue("spread", spread), *await _catalogue("crowded", crowded())]
