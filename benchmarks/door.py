"""What a request costs before its handler: authentication and rates, with 10,000 organizations.

Also how far two API processes overshoot a rate that they share, and whether the time of a key's check tells what kind
of key it is. Add what else stands before a handler here.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import httpx
from sqlalchemy import text

from benchmarks import api, ground
from benchmarks.results import Figure, median, percentile
from control_plane.api.auth import Authenticator
from control_plane.api.budgets import Budgets
from control_plane.api.errors import ApiError
from control_plane.api.limits import Limiter
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import OrganizationId
from control_plane.world import World

ORGANIZATIONS = 10_000
ROUNDS = 20_000
CHECKS = 3_000
RATE, BURST, SECONDS = 100, 200, 20.0
# Copies of the first organization's rows, whatever columns they have.
_COPIES = (
    text("""
    INSERT INTO organizations SELECT (jsonb_populate_record(o, jsonb_build_object(
      'id', md5('organization ' || n)::uuid, 'name', 'bench ' || n))).*
    FROM organizations o, generate_series(1, :count) n WHERE o.id = :id
    """),
    text("""
    INSERT INTO service_accounts SELECT (jsonb_populate_record(s, jsonb_build_object(
      'id', md5('account ' || n)::uuid, 'organization_id', md5('organization ' || n)::uuid))).*
    FROM service_accounts s, generate_series(1, :count) n WHERE s.organization_id = :id
    """),
    text("""
    INSERT INTO api_keys SELECT (jsonb_populate_record(k, jsonb_build_object(
      'id', md5('key ' || n)::uuid, 'organization_id', md5('organization ' || n)::uuid,
      'service_account_id', md5('account ' || n)::uuid, 'secret_sha256', sha256(('spk_bench' || n)::bytea),
      'revoked_at', CASE WHEN n % 10 = 0 THEN now() END))).*
    FROM api_keys k, generate_series(1, :count) n WHERE k.organization_id = :id
    """),
    text("ANALYZE"),
)


def _secret(number: int) -> str:
    return f"spk_bench{number}"


def _pair(number: int) -> tuple[OrganizationId, UUID]:
    return OrganizationId(UUID(int=number)), UUID(int=number)


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_door")
    async with ground.customer(url) as (owner, organization_id, secret):
        async with owner.db.transaction() as connection:
            for statement in _COPIES:
                await connection.execute(statement, {"id": organization_id, "count": ORGANIZATIONS})
        db = Database(ground.login_url(url, Role.API), role=Role.API, pool_size=4, readers=4)
        try:
            world = World(db)
            figures = [
                *await _authentication(world),
                *_rates(),
                *await _sharing(world),
                *await _timing(world),
            ]
        finally:
            await db.close()
        return figures + await _overshoot(url, secret)


async def _authentication(world: World) -> list[Figure]:
    authenticator = Authenticator(world, None)
    numbers = random.Random(1)
    keys = [f"Bearer {_secret(number)}" for number in range(1, ORGANIZATIONS) if number % 10]
    looked_up = []
    for authorization in numbers.sample(keys, CHECKS):
        looked_up.append(await _seconds(partial(authenticator.principal, authorization)))
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        await authenticator.principal(authorization)
    known = (time.perf_counter() - begun) / ROUNDS
    return [
        Figure("authentication, key looked up, p50", median(looked_up) * 1e6, "us"),
        Figure("authentication, key looked up, p99", percentile(looked_up, 0.99) * 1e6, "us"),
        Figure("authentication, key known (no query)", known * 1e6, "us", "<= 50"),
    ]


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


def _rates() -> list[Figure]:
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
    """One round of sharing when 1,000 organizations need tokens."""
    limiter = Limiter(rate=RATE, burst=BURST)
    shared = Budgets(world, [limiter])
    known = [UUID(bytes=_md5(f"organization {number}")) for number in range(1, 1_001)]
    times = []
    for _ in range(30):
        now = world.now().timestamp()
        for organization in known:
            for _ in range(3):
                limiter.take((OrganizationId(organization), organization), now, 60)
        times.append(await _seconds(shared.share))
    if shared.failures:
        raise RuntimeError("the shared buckets were not reached")
    return [Figure("a round of sharing, 1,000 organizations", median(times) * 1e3, "ms", "<= 250")]


def _md5(name: str) -> bytes:
    return hashlib.md5(name.encode()).digest()


async def _timing(world: World) -> list[Figure]:
    """The check of an unknown key and of a revoked one, in turns, each with a query."""
    authenticator = Authenticator(world, None)
    times: dict[str, list[float]] = {"unknown": [], "revoked": []}
    for number in range(CHECKS):
        pair = [
            ("unknown", f"spk_nobody{number}"),
            ("revoked", _secret((number % (ORGANIZATIONS // 10) + 1) * 10)),
        ]
        # The second check of a pair finds warmer caches, so each kind comes first in half of the pairs.
        for kind, secret in pair if number % 2 else reversed(pair):
            authenticator.forget_all()
            times[kind].append(await _seconds(partial(_refused, authenticator, secret)))
    unknown, revoked = times["unknown"], times["revoked"]
    # How often a check of an unknown key is slower than the next one of a revoked key: 50 % tells nothing.
    slower = sum(left > right for left, right in zip(unknown, revoked, strict=True)) / CHECKS
    return [
        Figure("check of an unknown key, p50", median(unknown) * 1e6, "us"),
        Figure("check of a revoked key, p50", median(revoked) * 1e6, "us"),
        Figure(
            "an unknown key takes longer than a revoked one", slower * 100, "%", note="50 % tells nothing"
        ),
    ]


async def _refused(authenticator: Authenticator, secret: str) -> None:
    try:
        await authenticator.principal(f"Bearer {secret}")
    except ApiError:
        return
    raise RuntimeError("a wrong key was right")


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
