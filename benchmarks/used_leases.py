"""Customers with leases that were used from the start of October 2026 on, for the benchmarks of money.

SQL writes the leases with their machines, claims, holds and lines of the journal, in the states in which the loops
would have left them. What is measured starts from there: the meter, the prices, the ledger.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from benchmarks import ground
from control_plane.db import accounts
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.invoice import BillingDetails
from control_plane.domain.ledger import Approval
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.services import billing_details, catalogue, ledger, organizations
from control_plane.world import World, uuid7
from reconciler.loop import Report
from reconciler.loops.money import meter_usage, rate_usage
from reconciler.world import World as LoopWorld

MONTH = datetime(2026, 10, 1, tzinfo=UTC)
LEASES = 10_000
CUSTOMERS = 100
_ACCOUNT = AccountName("fake")
_MONEY = Nano(10**8 * NANO_PER_USD)

_ANALYZE = text("ANALYZE")
_LEASES = text("""
INSERT INTO leases (id, organization_id, project_id, environment_id, name, sku, gpu_model, gpu_count, purchase,
  on_eviction, sla, nano_per_unit_hour, stopped_nano_per_unit_hour, list_nano_per_unit_hour,
  price_book, proof, regions, providers, priority,
  ssh_keys, wait_timeout_seconds, state, due_at, created_at, ready_at, attempts, network_id)
SELECT gen_random_uuid(), p.organization_id, p.id, e.id, 'train-' || n, 'h100-sxm.8x', 'h100-sxm-80gb', 8, 'on_demand',
  'end', 'bronze', 3490000000, 3490000000, 3490000000,
  (SELECT max(version) FROM price_books), 'listed', '{}', '{}', 50, '[]', 1800, 'ready',
  :month, :month, CAST(:month AS timestamptz) + interval '1 second' * (n * 97 % 3600), 1,
  (SELECT id FROM networks WHERE project_id = p.id AND name = 'default')
FROM generate_series(1, CAST(:each AS int)) n, projects p JOIN environments e ON e.project_id = p.id
JOIN organizations o ON o.id = p.organization_id AND NOT o.platform
""")
_WITH_THEM = (
    text("""
INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at, due_at)
SELECT id, organization_id, 800 * 8 * nano_per_unit_hour, ready_at, NULL FROM leases
"""),
    text("""
INSERT INTO machines (id, purpose, account, provider, region, native_region, native_type, offer_key, cost_nano_per_hour,
  spot, increment_seconds, minimum_seconds, billed_while_booting, power, gpu_model, gpu_count, vcpus, memory_gib,
  proof, launch_key, state, due_at, created_at, asked_at, host_key, provider_ref, address, sighted_at, step)
SELECT id, 'lease', 'fake', 'fake', 'us-east-1', 'us-east-1', 'h100-sxm-80gb.8', 'x', 1, false, 1, 0, true, '[]',
  gpu_model, gpu_count, 208, 1800, 'listed',
  'sp-' || (SELECT code FROM installation) || '-' || replace(id::text, '-', ''),
  'verified', created_at, created_at, created_at, 'k', 'fake-' || id, '10.0.0.1', created_at, 'gpus_verified'
FROM leases
"""),
    text("""
INSERT INTO attempts (lease_id, number, organization_id, project_id, machine_id, offer_key, started_at, ended_at,
  outcome)
SELECT id, 1, organization_id, project_id, id, 'x', created_at, ready_at, 'admitted' FROM leases
"""),
    text("""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, attempt, due_at, step, claimed_at,
  admitted_at)
SELECT gen_random_uuid(), organization_id, project_id, id, id, 1, ready_at, 'certificates_accepted', created_at,
  ready_at
FROM leases
"""),
    text("""
INSERT INTO journal (organization_id, project_id, lease_id, at, actor_kind, actor, event, state_before, state_after)
SELECT organization_id, project_id, id, ready_at, 'loop', 'admit_customers', 'admitted', 'preparing', 'ready'
FROM leases
"""),
    text(
        "UPDATE standings SET held_nano = (SELECT sum(amount_nano) FROM holds h WHERE h.organization_id = "
        "standings.organization_id) WHERE organization_id IN (SELECT organization_id FROM holds)"
    ),
    _ANALYZE,
)
_LISTED = text("UPDATE provider_accounts SET listing_asked_at = :now")
_RELEASED = (
    text("""
INSERT INTO journal (organization_id, project_id, lease_id, at, actor_kind, actor, event, state_before, state_after)
SELECT organization_id, project_id, id, ready_at + CAST(:used AS interval), 'customer', 'bench', 'released', 'ready',
  'ending'
FROM leases
"""),
    text("""
UPDATE leases SET state = 'ended', end_reason = 'released', billed_until = ready_at + CAST(:used AS interval),
  ended_at = ready_at + CAST(:used AS interval)
"""),
    text(
        "UPDATE claims c SET ended_at = l.ended_at, released_at = l.ended_at FROM leases l WHERE l.id = c.lease_id"
    ),
)


class Clock:
    """The time of the benchmark, which it sets."""

    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time


async def customers(url: str, now: Callable[[], datetime]) -> OrganizationId:
    """Make customers with money and billing details. Returns the platform's own organization."""
    database = Database(url, role=None)
    world = World(database, now=now)
    platform, *ids = [OrganizationId(uuid7()) for _ in range(CUSTOMERS + 1)]
    address = ("1 Main Street", "Springfield")
    buyer = BillingDetails(
        legal_name="Heliotrope Inc",
        address=address,
        country="US",
        tax_id=None,
        tax_rate=1_900,
        reverse_charge=False,
    )
    async with database.transaction() as connection:
        await catalogue.load_price_book(connection, world, ground.book())
        await organizations.create(connection, world, platform, "bench-platform", platform=True)
        await accounts.register(connection, _ACCOUNT, "fake", now=now())
    for organization_id in ids:
        async with database.transaction() as connection:
            await organizations.create(connection, world, organization_id, f"bench-{organization_id.hex}")
            await ledger.top_up(
                connection,
                world,
                organization_id,
                _MONEY,
                key="bench",
                approval=Approval("administrator", "bench"),
            )
        await billing_details.put(world, organization_id, buyer, platform=platform, by="bench")
    await database.close()
    return platform


async def plant(url: str, leases: int = LEASES) -> None:
    """Give the customers so many running leases, the first of which are ready at the start of the month."""
    database = Database(url, role=None)
    async with database.transaction() as connection:
        await connection.execute(_LEASES, {"month": MONTH, "each": leases // CUSTOMERS})
        for statement in _WITH_THEM:
            await connection.execute(statement)
    await database.close()


async def release(url: str, used: timedelta) -> None:
    """End every lease after this time of use."""
    database = Database(url, role=None)
    async with database.transaction() as connection:
        for statement in _RELEASED:
            await connection.execute(statement, {"used": used} if ":used" in statement.text else None)
    await database.close()


async def analyze(url: str) -> None:
    """Give PostgreSQL the statistics that it has of a database in use, where autovacuum keeps them."""
    database = Database(url, role=None)
    async with database.transaction() as connection:
        await connection.execute(_ANALYZE)
    await database.close()


async def listed(world: LoopWorld) -> None:
    """Let the provider list every machine at this moment."""
    async with world.db.transaction() as connection:
        await connection.execute(_LISTED, {"now": world.now()})


def loop_world(url: str, now: Callable[[], datetime]) -> LoopWorld:
    """The world of the loops of money, as in a process of its own."""
    database = Database(ground.login_url(url, Role.RECONCILER), role=Role.RECONCILER)
    return LoopWorld(db=database, now=now, new_id=uuid7)


async def meter(world: LoopWorld) -> int:
    """Meter all that is due. Returns the number of intervals."""
    return await _to_the_end(world, meter_usage.activate)


async def rate(world: LoopWorld) -> int:
    """Rate and post all that was metered. Returns the number of intervals."""
    return await _to_the_end(world, rate_usage.activate)


async def _to_the_end(world: LoopWorld, activate: Callable[[LoopWorld], Awaitable[Report]]) -> int:
    done, more = 0, True
    while more:
        report = await activate(world)
        if report.errors:
            raise RuntimeError(f"a loop failed: {report.errors}")
        done, more = done + report.acted_on, report.more
    return done
