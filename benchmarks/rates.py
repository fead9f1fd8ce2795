"""What rates cost, with 10,000 organizations, and how far two API processes overshoot a rate that they share."""

import asyncio
import hashlib
import random
import time
from uuid import UUID

import httpx
from sqlalchemy import text

from benchmarks import api, ground
from benchmarks.results import Figure, median
from control_plane.api.budgets import Budgets
from control_plane.api.limits import Limiter
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import OrganizationId
from control_plane.world import World

ORGANIZATIONS = 10_000
ROUNDS = 20_000
SHARED = 1_000
"""Organizations that need tokens in one round of sharing."""
RATE, BURST, SECONDS = 100, 200, 20.0
_ORGANIZATIONS = text("""
INSERT INTO organizations (id, name, created_at)
SELECT CAST(md5('organization ' || n) AS uuid), 'organization ' || n, now() FROM generate_series(0, :count - 1) n
""")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_rates")
    async with ground.customer(url) as (customers, _, secret):
        async with customers.db.transaction() as connection:
            await connection.execute(_ORGANIZATIONS, {"count": SHARED})
        db = Database(ground.login_url(url, Role.API), role=Role.API, pool_size=4, readers=4)
        try:
            figures = [*_per_request(), *await _sharing(World(db))]
        finally:
            await db.close()
        return figures + await _overshoot(url, secret)


def _pair(number: int) -> tuple[OrganizationId, UUID]:
    return OrganizationId(UUID(int=number)), UUID(int=number)


def _per_request() -> list[Figure]:
    """Both limiters of a request, as the door asks them, for organizations by chance."""
    per_key, per_organization = (Limiter(rate=RATE, burst=BURST) for _ in range(2))
    for limiter in (per_key, per_organization):
        limiter.answer(0, 2, {})
    numbers = random.Random(1)
    pairs = [_pair(numbers.randrange(ORGANIZATIONS)) for _ in range(ROUNDS)]
    begun = time.perf_counter()
    for at, pair in enumerate(pairs):
        now = at / 10_000
        per_key.take(pair, now)
        per_organization.take(pair, now)
    return [Figure("both rates of a request", (time.perf_counter() - begun) / ROUNDS * 1e6, "us", "<= 20")]


async def _sharing(world: World) -> list[Figure]:
    """One round of sharing when many organizations need tokens."""
    limiter = Limiter(rate=RATE, burst=BURST)
    shared = Budgets(world, [limiter])
    known = [UUID(bytes=hashlib.md5(f"organization {number}".encode()).digest()) for number in range(SHARED)]
    times = []
    for _ in range(30):
        now = world.now().timestamp()
        for organization in known:
            for _ in range(3):
                limiter.take((OrganizationId(organization), organization), now, 60)
        begun = time.perf_counter()
        await shared.share()
        times.append(time.perf_counter() - begun)
    if shared.failures:
        raise RuntimeError("the shared buckets were not reached")
    return [Figure(f"a round of sharing, {SHARED:,} organizations", median(times) * 1e3, "ms", "<= 250")]


async def _overshoot(url: str, secret: str) -> list[Figure]:
    """Two API processes, each asked as fast as it answers, by one caller."""
    bounds = {
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": str(RATE),
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": str(BURST),
    }
    with api.started(url, **bounds) as (first, _), api.started(url, **bounds) as (second, _):
        begun = time.perf_counter()
        passed = sum(await asyncio.gather(*(_hammer(base, secret, begun) for base in (first, second))))
        seconds = time.perf_counter() - begun
    allowed = RATE * seconds
    return [
        Figure("two processes: passed beyond the rate", passed - allowed, "requests", f"<= {2 * BURST}"),
        Figure("two processes: passed, of rate and burst", passed / (allowed + BURST) * 100, "%"),
    ]


async def _hammer(base: str, secret: str, begun: float) -> int:
    passed = 0
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=20) as client:
        while time.perf_counter() < begun + SECONDS:
            answers = await asyncio.gather(*(client.get("/v1/organization") for _ in range(8)))
            passed += sum(answer.is_success for answer in answers)
    return passed
