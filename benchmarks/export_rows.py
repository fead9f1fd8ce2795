"""An export of 1,000,000 charges, from the database to files on a disk: seconds of each file, and memory.

A process of its own makes both files and the manifest by the function behind the API, in the API's role and under
row-level security. Its memory is what Linux says was resident at most (VmHWM). PostgreSQL runs beside it. Then the
files are checked: the CSV against the manifest (`splitplane export verify`), the Parquet file against the sums of the
manifest, and the first rows by the official validator where it is built, which takes minutes for more.
"""

import asyncio
import json
import sys
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import asyncpg
import pyarrow.compute as pc
import pyarrow.parquet as pq
import uvloop

from benchmarks import ground, used_leases
from benchmarks.results import Figure
from benchmarks.used_leases import MONTH, Clock
from control_plane.cli import export_files
from control_plane.db.engine import Database, Role
from control_plane.domain.export_run import FileName
from control_plane.domain.ids import OrganizationId
from control_plane.domain.period import month_after
from control_plane.domain.refusal import Refused
from control_plane.services import exports
from control_plane.world import World
from tests.support import focus_validator

LEASES = 2_000
HOURS = 500
ROWS = LEASES * HOURS
VALIDATED = 2_000
"""Rows that the official validator reads."""
_AFTER = month_after(MONTH) + timedelta(days=1)

# A million rows are planted without triggers, which would take minutes; they are as the loops would have made them.
_CHARGES = (
    "SET session_replication_role = replica",
    """
    INSERT INTO intervals (lease_id, number, organization_id, project_id, machine_id, provider, region, started_at,
      ended_at, unit_seconds_before, unit_seconds, final, stopped, recorded_at)
    SELECT l.id, n, l.organization_id, l.project_id, l.id, 'lambda_cloud', 'us-east-1',
      l.created_at + interval '1 hour' * (n - 1), l.created_at + interval '1 hour' * n, (n - 1) * 28800, 28800, false,
      false, l.created_at + interval '1 hour' * n
    FROM leases l CROSS JOIN generate_series(1, $1) n
    """,
    """
    INSERT INTO charges (id, organization_id, project_id, lease_id, number, machine_id, provider, region, sku, purchase,
      sla, price_book, started_at, ended_at, unit_seconds, stopped, nano_per_unit_hour, list_nano_per_unit_hour,
      amount_nano, period, rated_at)
    SELECT uuidv7(), i.organization_id, i.project_id, i.lease_id, i.number, i.machine_id, i.provider, i.region, l.sku,
      l.purchase, l.sla, l.price_book, i.started_at, i.ended_at, i.unit_seconds, false, l.nano_per_unit_hour,
      l.list_nano_per_unit_hour,
      8 * l.nano_per_unit_hour, l.created_at, i.recorded_at
    FROM intervals i JOIN leases l ON l.id = i.lease_id
    """,
    """
    INSERT INTO charge_names (lease_id, number, organization_id, project, lease, labels)
    SELECT c.lease_id, c.number, c.organization_id, 'default', l.name, '{"team": "vision"}'
    FROM charges c JOIN leases l ON l.id = c.lease_id
    """,
    "ANALYZE",
)


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_export_rows")
    clock = Clock(MONTH)
    platform = await used_leases.customers(url, clock.now)
    await used_leases.plant(url, LEASES)
    await _plant_charges(url)
    with TemporaryDirectory() as work:
        folder = Path(work)
        before = ground.server_cpu()
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "benchmarks.export_rows", ground.login_url(url, Role.API), str(platform), work),
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await child.communicate()
        server_cpu = ground.server_cpu() - before
        if child.returncode:
            raise RuntimeError(f"the export ended with {child.returncode}")
        found = json.loads(printed)
        checked = await asyncio.to_thread(_check, folder)
        validated = await asyncio.to_thread(_validate, folder)
    size = f"{found['csv_mb']:,.0f} MB, and {found['parquet_mb']:,.0f} MB of Parquet"
    return [
        Figure(f"CSV of {ROWS:,} charges", found["csv"], "s"),
        Figure(f"Parquet of {ROWS:,} charges", found["parquet"], "s"),
        Figure("both files and the manifest", found["csv"] + found["parquet"], "s", "<= 60", size),
        Figure("  CPU of this process", found["cpu"], "s"),
        Figure("  CPU of PostgreSQL", server_cpu, "s"),
        Figure("peak memory", found["peak_mb"], "MB", "<= 500"),
        Figure("checked against the manifest", checked, "s", note="every row of both files"),
        Figure("rules of the official validator passed", validated, "", note=f"the first {VALIDATED:,} rows"),
    ]


async def _plant_charges(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in _CHARGES:
            await connection.execute(statement, *([HOURS] if "$1" in statement else []))
    finally:
        await connection.close()


def _check(folder: Path) -> float:
    """The seconds that it took to find both files right. Raises an error otherwise."""
    begun = time.perf_counter()
    manifest = export_files.check(folder).manifest
    parquet = pq.ParquetFile(folder / FileName.PARQUET)
    if (manifest["rows"], parquet.metadata.num_rows) != (ROWS, ROWS):
        raise RuntimeError(f"not {ROWS:,} rows: {manifest['rows']:,} and {parquet.metadata.num_rows:,}")
    for column, stated in manifest["sums"].items():
        total = sum(pc.sum(batch.column(0)).as_py() for batch in parquet.iter_batches(columns=[column]))
        if f"{total:.12f}" != stated:
            raise RuntimeError(f"{column} of the Parquet file adds up to {total}, and not to {stated}")
    return time.perf_counter() - begun


def _validate(folder: Path) -> int:
    """How many rules the official validator found kept; 0 where it is not built. Raises an error if one is broken."""
    if focus_validator.missing() is not None:
        return 0
    sample = folder / "sample.csv"
    with (folder / FileName.CSV).open(newline="") as whole, sample.open("w", newline="") as part:
        part.writelines(islice(whole, VALIDATED + 1))
    passed, failed = focus_validator.judge(sample, folder)
    if failed:
        raise RuntimeError(f"the official validator refuses {sorted(failed)}")
    return passed


async def _export(url: str, platform: OrganizationId, folder: Path) -> dict[str, float]:
    database = Database(url, role=Role.API)
    world = World(database, now=lambda: _AFTER)
    async with database.transaction(platform) as connection:
        made = await exports.create(
            connection,
            world,
            platform,
            MONTH,
            covers_all=True,
            final=False,
            seller="Neocloud Ltd",
            by="user_bench",
        )
    if isinstance(made, Refused):
        raise TypeError(f"the export was refused: {made}")
    figures = {}
    for name in FileName:
        begun, kind = time.perf_counter(), Path(name).suffix[1:]
        with (folder / name).open("wb") as file:
            async for chunk in exports.file(world, made, name):
                file.write(chunk)
            figures[f"{kind}_mb"] = file.tell() / 1e6
        figures[kind] = time.perf_counter() - begun
    done = await exports.get(world, platform, made.run.id, covers_all=True)
    manifest = None if isinstance(done, Refused) else done.manifest
    if manifest is None:
        raise RuntimeError("the export has no manifest")
    (folder / export_files.MANIFEST).write_bytes(manifest)
    await database.close()
    return figures | {"cpu": time.process_time(), "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Of this process since it began."""
    (peak,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(peak.split()[1]) * 1_024 / 1e6


if __name__ == "__main__":
    made = uvloop.run(_export(sys.argv[1], OrganizationId(UUID(sys.argv[2])), Path(sys.argv[3])))
    print(json.dumps(made))
