"""What it costs to know who asks and what they may do, with 10,000 organizations in the database.

The door is measured in this process, without sockets: authentication by a remembered key, the bounds on requests, and
the decision about the permission. A look-up is what happens once a second for each key that is used. How long a key is
checked must not tell whether it ever was one: each kind of refused key is compared with unknown ones.
"""

import math
import random
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from litestar.types import Scope
from sqlalchemy import text

from benchmarks import ground
from benchmarks.results import Figure, median, percentile
from control_plane.api import observe
from control_plane.api.auth import Authenticator
from control_plane.api.door import Door
from control_plane.api.errors import ApiError
from control_plane.api.requests import require
from control_plane.db.engine import Database, Role
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import principals
from control_plane.settings import Settings
from control_plane.world import World

ORGANIZATIONS = 10_000
ROLES_OF_ONE = 20
"""Roles of the service account that is asked for, each at a project of its own."""
ROUNDS = 15
REQUESTS = 2_000
LOOK_UPS = 1_500
_FILL = (
    (
        "INSERT INTO organizations (id, name, created_at) SELECT gen_random_uuid(), 'o' || n, now()"
        " FROM generate_series(1, :count) n"
    ),
    (
        "INSERT INTO projects (id, organization_id, name, created_at)"
        " SELECT gen_random_uuid(), id, 'default', now() FROM organizations"
    ),
    (
        "INSERT INTO service_accounts (id, organization_id, name, state, created_at)"
        " SELECT gen_random_uuid(), id, 'owner', 'active', now() FROM organizations"
    ),
    (
        "INSERT INTO role_bindings (id, organization_id, service_account_id, role, scope, created_at, granted_by)"
        " SELECT gen_random_uuid(), organization_id, id, 'owner', 'organization', now(), 'bench' FROM service_accounts"
    ),
    (
        "INSERT INTO api_keys (id, organization_id, service_account_id, name, secret_sha256, hint, created_at,"
        " revoked_at, expires_at) SELECT gen_random_uuid(), s.organization_id, s.id, 'k',"
        " sha256(convert_to('spk_' || o.name || kind, 'UTF8')), '', now(),"
        " CASE WHEN kind = '-revoked' THEN now() END,"
        " CASE WHEN kind = '-expired' THEN now() - interval '1 day' END"
        " FROM service_accounts s JOIN organizations o ON o.id = s.organization_id,"
        " unnest(ARRAY['', '-revoked', '-expired']) kind"
    ),
    # Of every fourth organization the account is suspended, and every fourth is closed.
    (
        "UPDATE service_accounts s SET state = 'suspended' FROM organizations o WHERE o.id = s.organization_id"
        " AND substr(o.name, 2)::int % 4 = 0 AND s.name = 'owner'"
    ),
    "UPDATE organizations SET state = 'closed' WHERE substr(name, 2)::int % 4 = 3",
    (
        "INSERT INTO projects (id, organization_id, name, created_at) SELECT gen_random_uuid(), o.id, 'p' || n, now()"
        " FROM organizations o, generate_series(1, :roles) n WHERE o.name = 'o1'"
    ),
    (
        "INSERT INTO role_bindings (id, organization_id, service_account_id, role, scope, project_id, created_at,"
        " granted_by) SELECT gen_random_uuid(), p.organization_id, s.id, 'member', 'project', p.id, now(), 'bench'"
        " FROM projects p JOIN service_accounts s USING (organization_id)"
        " JOIN organizations o ON o.id = s.organization_id WHERE o.name = 'o1' AND p.name <> 'default'"
    ),
    "ANALYZE",
)


async def _filled(url: str) -> None:
    database = Database(url, role=Role.RECONCILER, pool_size=1, readers=1)
    async with database.transaction() as connection:
        for statement in _FILL[:-1]:
            values = {"count": ORGANIZATIONS, "roles": ROLES_OF_ONE}
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            await connection.execute(text(statement), used)
    await database.close()


def _settings() -> Settings:
    return Settings(
        database_url="unused",
        requests_per_second=1e9,
        requests_burst=10**9,
        organization_requests_per_second=1e9,
        organization_requests_burst=10**9,
        anonymous_requests_per_second=1e9,
    )


async def measure() -> list[Figure]:
    url = await ground.empty_database("authentication")
    await _filled(url)
    database = Database(url, role=Role.API, pool_size=2, readers=2)
    world = World(database)
    try:
        return [*await _door(world), *await _look_ups(world)]
    finally:
        await database.close()


async def _door(world: World) -> list[Figure]:
    """The CPU that a request takes until it is allowed."""
    moment = world.now()
    still = World(world.db, now=lambda: moment)  # A remembered key stays remembered.
    authenticator, door = Authenticator(still, None), Door(_settings())
    figures = []
    for name, secret in (("one role", "spk_o2"), (f"{ROLES_OF_ONE + 1} roles", "spk_o1")):
        header = f"Bearer {secret}"
        await authenticator.principal(header)

        async def request(header: str = header) -> None:
            scope = cast("Scope", {"headers": []})  # What the door reads of it.
            principal = await authenticator.principal(header)
            door.enter(scope, principal, moment.timestamp(), 1)
            require(principal, Permission.LEASES_READ, ScopeKind.LEASE)
            observe.stream_begins(scope)  # Leaves the bounds on requests in progress.

        times = [await _cpu_ms(request, REQUESTS) for _ in range(ROUNDS)]
        figures.append(Figure(f"door, remembered key, {name}", median(times), "ms of CPU", "<= 0.3"))
    return figures


async def _cpu_ms(do: Callable[[], Awaitable[object]], count: int) -> float:
    started = time.process_time()
    for _ in range(count):
        await do()
    return (time.process_time() - started) * 1_000 / count


async def _look_ups(world: World) -> list[Figure]:
    figures = []
    for name, secret in (("one role", "spk_o2"), (f"{ROLES_OF_ONE + 1} roles", "spk_o1")):

        async def look_up(secret: str = secret) -> None:
            found = await principals.of_secret(world, secret)
            if found is None:
                raise LookupError(secret)

        await look_up()
        cpu = [await _cpu_ms(look_up, LOOK_UPS // ROUNDS) for _ in range(ROUNDS)]
        figures.append(Figure(f"look-up of a key, {name}", median(cpu), "ms of CPU"))
    return [*figures, *await _refusals(world)]


KINDS = {
    "unknown": lambda number: f"spk_nobodys{number}",
    "one character off": lambda number: f"spk_o{4 * number + 5}_",
    "revoked": lambda number: f"spk_o{4 * number + 5}-revoked",
    "expired": lambda number: f"spk_o{4 * number + 5}-expired",
    "of a suspended account": lambda number: f"spk_o{4 * number + 4}",
    "of a closed organization": lambda number: f"spk_o{4 * number + 3}",
}
"""Keys that are refused, by why."""


async def _refusals(world: World) -> list[Figure]:
    """Each kind in turns, in another order each time: whoever comes later finds warmer caches."""
    authenticator, door, order = Authenticator(world, None), Door(_settings()), random.Random(1)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(LOOK_UPS):
        for kind in order.sample(list(KINDS), len(KINDS)):
            authenticator.forget_all()
            times[kind].append(await _refusal_ms(authenticator, door, KINDS[kind](number)))
    return [figure for kind in KINDS for figure in _compared(kind, times)]


async def _refusal_ms(authenticator: Authenticator, door: Door, secret: str) -> float:
    """The time until the door lets the refusal out."""
    header, started = f"Bearer {secret}", time.perf_counter()
    try:
        async with door.trying_key("127.0.0.1", header, 0.0, _unsigned):
            await authenticator.principal(header)
    except ApiError:
        return (time.perf_counter() - started) * 1_000
    raise LookupError(f"{secret} is valid")


async def _unsigned() -> bool:
    """No API key is an access token."""
    return False


def _compared(kind: str, times: Mapping[str, Sequence[float]]) -> list[Figure]:
    mine, unknown = times[kind], times["unknown"]
    quartiles = f"quartiles {percentile(mine, 0.25):.3f} and {percentile(mine, 0.75):.3f}"
    figures = [Figure(f"refused: {kind}, median", median(mine), "ms", note=quartiles)]
    if kind != "unknown":
        # The Mann-Whitney statistic: how often one of them takes longer than an unknown one, over all pairs.
        ordered = sorted(unknown)
        longer = sum(bisect_left(ordered, value) for value in mine) / (len(mine) * len(unknown)) * 100
        error = 196 * math.sqrt((2 * len(mine) + 1) / (12 * len(mine) ** 2))
        note = f"50 % tells nothing; by chance 95 of 100 runs are within {error:.1f} of it"
        figures.append(Figure(f"refused: {kind}, takes longer than unknown", longer, "%", note=note))
    return figures
