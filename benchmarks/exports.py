"""What an export of 1,000,000 charges costs once they are read: both files and the manifest, in time and in memory.

Reading the charges from the database is not in it. A process of its own writes them, because a peak of memory is a
process's.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from benchmarks.results import Figure
from control_plane.domain.export_run import FileName
from control_plane.domain.focus import ChargeFacts, usage_row
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.rating import charge
from control_plane.exports.csv_file import CsvEncoder
from control_plane.exports.encoder import Encoder
from control_plane.exports.manifest import Described, ExportedFile, manifest
from control_plane.exports.parquet_file import ParquetEncoder
from control_plane.exports.totals import Totals
from control_plane.services.exports import ROWS_PER_READ
from tests.support.charges import FACTS, PRICE, SELLER, START

ROWS = 1_000_000
HOURS = 744
"""Of October: each lease has a charge for each of them."""
LEASES_PER_ORGANIZATION = 10
_MIB = 1 << 20


async def measure() -> list[Figure]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.exports", stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"the export ended with {child.returncode}")
    found = json.loads(printed)
    return [
        Figure("CSV of 1,000,000 charges", found["csv"], "s", note=f"{found['csv_mb']:,.0f} MB"),
        Figure("Parquet of 1,000,000 charges", found["parquet"], "s", note=f"{found['parquet_mb']:,.0f} MB"),
        Figure("both files and the manifest", found["all"], "s", "<= 60", "CPU time of one core"),
        Figure("peak memory", found["peak_mib"], "MiB", "<= 500"),
    ]


def _charges() -> Iterator[list[ChargeFacts]]:
    for first in range(0, ROWS, ROWS_PER_READ):
        yield [_charge(number) for number in range(first, min(ROWS, first + ROWS_PER_READ))]


def _charge(number: int) -> ChargeFacts:
    lease, hour = divmod(number, HOURS)
    units = FACTS.unit_seconds
    at = START + timedelta(hours=hour)
    return replace(
        FACTS,
        id=UUID(int=number),
        organization_id=OrganizationId(UUID(int=lease // LEASES_PER_ORGANIZATION)),
        lease_id=LeaseId(UUID(int=lease)),
        number=hour + 1,
        started_at=at,
        ended_at=at + timedelta(hours=1),
        unit_seconds_before=hour * units,
        amount_nano=charge(PRICE, hour * units, units),
    )


def _written(name: FileName, encoder: Encoder, folder: Path) -> tuple[float, ExportedFile]:
    """Write a file as the API streams it. Returns the seconds of CPU from charges to bytes, and what the file is."""
    digest, totals, spent = sha256(), Totals(), 0.0
    with (folder / name).open("wb") as file:
        for charges in _charges():
            begun = time.process_time()
            rows = [usage_row(facts, seller=SELLER) for facts in charges]
            totals.add(rows)
            content = (b"" if file.tell() else encoder.begin()) + encoder.encode(rows)
            digest.update(content)
            file.write(content)
            spent += time.process_time() - begun
        begun = time.process_time()
        content = encoder.end()
        digest.update(content)
        file.write(content)
        size = file.tell()
    return spent + time.process_time() - begun, ExportedFile(name, size, digest.digest(), totals)


def _main() -> None:
    with TemporaryDirectory() as folder:
        csv, csv_file = _written(FileName.CSV, CsvEncoder(), Path(folder))
        parquet, parquet_file = _written(FileName.PARQUET, ParquetEncoder(), Path(folder))
    begun = time.process_time()
    month = {"since": START, "until": datetime(2026, 11, 1, tzinfo=UTC)}
    described = Described(
        run="exp_1",
        covers="all",
        period="2026-10",
        final=True,
        cut_at=month["until"],
        created_at=month["until"],
        price_books=[FACTS.price_book],
        previous=None,
        **month,
    )
    manifest(described, [csv_file, parquet_file])
    print(
        json.dumps(
            {
                "csv": csv,
                "parquet": parquet,
                "all": csv + parquet + time.process_time() - begun,
                "csv_mb": csv_file.size / 1e6,
                "parquet_mb": parquet_file.size / 1e6,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MIB,
            }
        )
    )


if __name__ == "__main__":
    _main()
