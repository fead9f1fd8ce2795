"""A fleet of 10,000 running leases: one observe pass, one round of all loops, memory of the reconciler.

SQL writes the fleet, and the fake provider lists it, so only the loops on a steady fleet are measured. Memory is
the peak of what Python allocates during one round, traced from just before it. The growth of the process would
miss memory that the loops reuse after the fleet was built.
"""

import random
import time
import tracemalloc

from sqlalchemy import text

from benchmarks import ground
from benchmarks.results import Figure, median
from control_plane.db import accounts
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import AccountName, LaunchKey, OrganizationId
from control_plane.world import utc_now, uuid7
from data_plane.access.port import HostKey
from data_plane.inspection.bundle import Bundle
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.reference import References
from data_plane.proof.verifier.recompute import LocalVerifier
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.hub import FakeHub
from data_plane.simulation.kubernetes import FakeClusters
from data_plane.simulation.servers import FakeServers
from providers.base import LaunchOrder
from providers.fake import FakeProvider, Settings
from reconciler import registry, simulated
from reconciler.loop import AccountLoop
from reconciler.ssh_authorities import FixedAuthority
from reconciler.worlds.complete import CompleteWorld
from tests.support.rows import rows

FLEET = 10_000
PASSES = 7
FAKE = AccountName("fake")

_LEASES = text("""
INSERT INTO leases (id, organization_id, project_id, environment_id, name, sku, gpu_model, gpu_count, purchase,
  on_eviction, sla, nano_per_unit_hour, stopped_nano_per_unit_hour, list_nano_per_unit_hour,
  price_book, proof, regions, providers, priority,
  ssh_keys, wait_timeout_seconds, state, due_at, created_at, ready_at, attempts, network_id)
SELECT gen_random_uuid(), p.organization_id, p.id, e.id, 'n' || n, 'h100-sxm.1x', 'h100-sxm-80gb', 1, 'on_demand',
  'end', 'bronze', 3490000000, 3490000000, 3490000000,
  (SELECT max(version) FROM price_books), 'listed', '{}', '{}', 50, '[]', 1800, 'ready',
  now(), now(), now(), 1, (SELECT id FROM networks WHERE project_id = p.id AND name = 'default')
FROM generate_series(1, :fleet) n, projects p JOIN environments e ON e.project_id = p.id
WHERE p.organization_id = :organization_id AND p.name = 'default'
""")
_HOLDS = text("""
INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at, due_at)
SELECT id, organization_id, 3490000000, now(), now() + interval '30 minutes' FROM leases
""")
_MACHINES = text("""
INSERT INTO machines (id, purpose, account, provider, region, native_region, native_type, offer_key, cost_nano_per_hour,
  spot, increment_seconds, minimum_seconds, billed_while_booting, power, gpu_model, gpu_count, vcpus, memory_gib,
  proof, launch_key, state, due_at, created_at, asked_at, host_key, provider_ref, address, sighted_at,
  step)
SELECT l.id, 'lease', 'fake', 'fake', 'us-east-1', 'us-east-1', 'h100-sxm-80gb.1', 'x', 1, false, 1, 0, true, '[]',
  l.gpu_model, l.gpu_count, 26, 200, 'listed',
  'sp-' || (SELECT code FROM installation) || '-' || replace(l.id::text, '-', ''),
  'verified', now(), now(), now(), 'k', 'fake-' || lpad(to_hex(row_number() OVER (ORDER BY l.id) - 1), 8, '0'),
  '10.0.0.1', now(), 'gpus_verified'
FROM leases l
""")
_ATTEMPTS = text("""
INSERT INTO attempts (lease_id, number, organization_id, project_id, machine_id, offer_key, started_at, ended_at,
  outcome)
SELECT id, 1, organization_id, project_id, id, 'x', now(), now(), 'admitted' FROM leases
""")
_CLAIMS = text("""
INSERT INTO claims (id, organization_id, project_id, lease_id, machine_id, attempt, due_at, step, claimed_at,
  admitted_at)
SELECT gen_random_uuid(), organization_id, project_id, id, id, 1, now(), 'certificates_accepted', now(), now()
FROM leases
""")
_DUE = text("""
UPDATE provider_accounts SET listing_due_at = now() - interval '1 second', offers_due_at = now() - interval '1 second'
""")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_fleet")
    async with ground.customer(url) as (_, organization_id, _):
        db = Database(url, role=Role.RECONCILER, pool_size=16, readers=16, rings=True)
        cloud = FakeProvider(now=utc_now, settings=Settings(stock=10**6))
        world = await world_of(db, cloud)
        await _round(world)  # Statements compiled, connections opened: the process's fixed cost.
        await _fleet(db, organization_id, cloud)
        passes = [await _observe(world) for _ in range(PASSES)]
        rounds = [await _round(world) for _ in range(PASSES)]
        tracemalloc.start()
        await _round(world)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await db.close()
    return [
        Figure("one observe pass over 10,000 machines", median(passes), "s", "<= 1"),
        Figure("one round of every loop over 10,000 leases", median(rounds), "s"),
        Figure("memory per active lease, at a round's peak", peak / FLEET / 1e6, "MB", "<= 0.1"),
    ]


async def world_of(db: Database, cloud: FakeProvider) -> CompleteWorld:
    async with db.transaction() as connection:
        installation = await accounts.installation(connection)
        await accounts.register(connection, FAKE, "fake", now=utc_now())
    hub, agents = FakeHub(), FakeAgents()
    access = simulated.access(db, hub)
    return CompleteWorld(
        db=db,
        now=utc_now,
        new_id=uuid7,
        installation=installation,
        account_names=(FAKE,),
        accounts={FAKE: cloud},
        access=access,
        ssh_authorities=FixedAuthority(),
        hub=hub,
        collector=FakeCollector(access.machines),
        servers=FakeServers(),
        kubernetes=FakeClusters(utc_now),
        agents=agents,
        members=agents.members,
        agent=Bundle(b"", "0" * 64),
        new_host_key=lambda: HostKey("private", "public"),
        challenger=ProofChallenger(LocalVerifier(), References()),
        chance=random.random,
        accept_emulated=True,
    )


async def plant(connection: Connection, organization_id: OrganizationId, count: int) -> None:
    """Store so many ready leases, each with a machine of its own."""
    await connection.execute(_LEASES, {"organization_id": organization_id, "fleet": count})
    for statement in (_HOLDS, _MACHINES, _ATTEMPTS, _CLAIMS):
        await connection.execute(statement)


async def _fleet(db: Database, organization_id: OrganizationId, cloud: FakeProvider) -> None:
    async with db.transaction() as connection:
        await plant(connection, organization_id, FLEET)
        planted = await rows(connection, text("SELECT launch_key FROM machines ORDER BY provider_ref"))
    for row in planted:
        order = LaunchOrder(LaunchKey(row.launch_key), "h100-sxm-80gb.1", "us-east-1", "", "")
        cloud.plant(order)


async def _observe(world: CompleteWorld) -> float:
    await _all_due(world)
    loop = registry.discovered()["observe_machines"]
    if not isinstance(loop, AccountLoop):
        raise TypeError("observing is per account")
    begun = time.perf_counter()
    report = await loop.activate(world, FAKE)
    seconds = time.perf_counter() - begun
    if report.looked_at != FLEET or report.acted_on or report.errors:
        raise RuntimeError(f"the fleet was not steady: {report}")
    return seconds


async def _round(world: CompleteWorld) -> float:
    """Run every loop once, listing and offers included. Returns the seconds it took."""
    await _all_due(world)
    begun = time.perf_counter()
    for loop in registry.discovered().values():
        await (loop.activate(world, FAKE) if isinstance(loop, AccountLoop) else loop.activate(world))
    return time.perf_counter() - begun


async def _all_due(world: CompleteWorld) -> None:
    """Make every listing due: normally one replica lists an account every two seconds."""
    async with world.db.transaction() as connection:
        await connection.execute(_DUE)
