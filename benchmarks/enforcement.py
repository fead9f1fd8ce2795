"""`python -m benchmarks enforcement`: what a look at 10,000 leases costs that run, every 15 s.

Each machine has 8 GPUs and an inference server, a sample of a moment ago, and 20 hours of usual throughput. Nothing is
wrong with any of them. CPU seconds say more than times where other work runs on the machine.
"""

import asyncio
import time
from datetime import timedelta

import asyncpg
import psutil

from benchmarks import ground, used_leases
from benchmarks.results import Figure, median
from benchmarks.telemetry import Cpu
from benchmarks.used_leases import LEASES, MONTH, Clock
from control_plane.db.engine import Database, Role
from control_plane.db.tables.telemetry import SAMPLE_SLOTS
from control_plane.world import uuid7
from data_plane.documents.sample import encode_sample
from reconciler.loops.enforcement import enforce_rules
from reconciler.worlds.enforcement import EnforcementWorld
from tests.support.samples import busy_sample

ROUNDS = 2
HOURS = 20
_SAMPLES = f"""
INSERT INTO samples (slot, organization_id, project_id, claim_id, lease_id, machine_id, sequence, at, received_at,
  skew_ms, notable, document)
SELECT mod(floor(extract(epoch FROM $1::timestamptz) / 3600)::bigint, {SAMPLE_SLOTS}), c.organization_id,
  c.project_id, c.id, c.lease_id, c.machine_id, 1, $1, $1, 0, false, $2::jsonb
FROM claims c
"""
_HOURS = f"""
INSERT INTO throughput_hours (organization_id, claim_id, hour, batch, throughput)
SELECT c.organization_id, c.id, $1::timestamptz - interval '1 hour' * h, 3, 1000000
FROM claims c, generate_series(1, {HOURS}) h
"""


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_enforcement")
    clock = Clock(MONTH)
    await used_leases.customers(url, clock.now)
    await used_leases.plant(url)
    clock.time = MONTH + timedelta(hours=HOURS + 2, minutes=30)
    owner = await asyncpg.connect(url)
    await owner.execute("SET session_replication_role = replica")  # The triggers of tables are not measured.
    await owner.execute(_HOURS, clock.time.replace(minute=0))
    await owner.execute(_SAMPLES, clock.time, encode_sample(busy_sample(1)).decode())
    await used_leases.analyze(url)
    database = Database(ground.login_url(url, Role.RECONCILER), role=Role.RECONCILER)
    world = EnforcementWorld(db=database, now=clock.now, new_id=uuid7)
    figures = await _looks(world)
    await database.close()
    await owner.close()
    return figures


async def _looks(world: EnforcementWorld) -> list[Figure]:
    """The first look of a fleet stores what it found, so it is left out."""
    seconds, own, of_postgres = [], [], []
    for _ in range(ROUNDS + 1):
        cpu, began = Cpu(psutil.Process()), time.perf_counter()
        report = await enforce_rules.activate(world)
        if report.errors or report.looked_at != LEASES:
            raise RuntimeError(f"looked at {report.looked_at}: {report.errors[:3]}")
        seconds.append(time.perf_counter() - began)
        mine, postgres = await asyncio.to_thread(cpu.used)
        own.append(mine)
        of_postgres.append(postgres)
    return [
        Figure(f"a look at {LEASES:,} leases", median(seconds[1:]), "s", "<= 15"),
        Figure("  CPU of the process", median(own[1:]), "s"),
        Figure("  CPU of PostgreSQL", median(of_postgres[1:]), "s"),
    ]
