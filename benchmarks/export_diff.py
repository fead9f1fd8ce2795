"""The comparison of two exports in which every row differs: seconds, and memory, which must not grow with the rows.

A process of its own runs `splitplane export diff` on files of 10,000 and of 100,000 rows, once for the screen and once
as JSON. Its memory is what Linux says was resident at most (VmHWM).
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from benchmarks.results import Figure
from control_plane.cli import export_files
from control_plane.cli.errors import Exit
from control_plane.cli.main import main
from control_plane.cli.terminal import Terminal
from control_plane.domain.money import Nano
from control_plane.exports.csv_file import CsvEncoder
from tests.support.charges import FACTS, SELLER, ChargeFacts, usage_row

ROWS = (10_000, 100_000)
_BATCH = 1_000


async def measure() -> list[Figure]:
    figures = []
    for rows in ROWS:
        with TemporaryDirectory() as work:
            before, after = (_export(Path(work) / name, rows, more) for name, more in (("a", 0), ("b", 1)))
            size = (after / export_files.CSV).stat().st_size / 1e6
            for option in ((), ("--json",)):
                found = await _run(before, after, *option)
                form = "JSON" if option else "the screen"
                figures += [
                    Figure(f"{rows:,} rows that differ, for {form}", found["seconds"], "s"),
                    Figure("  peak memory", found["peak_mb"], "MB", note=f"two files of {size:,.0f} MB"),
                ]
    return figures


def _export(folder: Path, rows: int, more: int) -> Path:
    """An export whose rows bill by `more` nano-dollars more."""
    folder.mkdir()
    encoder = CsvEncoder()
    with (folder / export_files.CSV).open("wb") as file:
        file.write(encoder.begin())
        charges = _charges(rows, more)
        while part := list(islice(charges, _BATCH)):
            file.write(encoder.encode([usage_row(charge, seller=SELLER) for charge in part]))
    return folder


def _charges(rows: int, more: int) -> Iterator[ChargeFacts]:
    for number in range(1, rows + 1):
        since = FACTS.started_at + timedelta(seconds=number)
        yield replace(
            FACTS,
            id=UUID(int=number),
            started_at=since,
            ended_at=since + timedelta(hours=1),
            amount_nano=Nano(FACTS.amount_nano + more),
        )


async def _run(before: Path, after: Path, *options: str) -> dict[str, float]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.export_diff", str(before), str(after), *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, printed = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"the comparison ended with {child.returncode}: {printed.decode()}")
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found


def _compare(arguments: list[str]) -> None:
    begun = time.perf_counter()
    code = main(["export", "diff", *arguments], Terminal())
    if code is not Exit.REFUSED:
        raise RuntimeError(f"{code} for exports in which every row differs")
    (peak,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    figures = {"seconds": time.perf_counter() - begun, "peak_mb": int(peak.split()[1]) * 1_024 / 1e6}
    print(json.dumps(figures), file=sys.stderr)


if __name__ == "__main__":
    _compare(sys.argv[1:])
