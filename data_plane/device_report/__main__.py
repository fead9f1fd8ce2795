"""`python -m data_plane.device_report` measures the GPUs of this machine, writes a JSON report and prints it.

It takes about two minutes for each GPU; all GPUs must be idle. It needs the driver and our whole installation (numpy),
because it checks every answer. The exit status is

    0  if the arithmetic is exact and the challenge is passed, whether or not the aims are met;
    1  if not, or if a GPU fails meanwhile: the report then contains what was measured before, and the reason
       under `failed`;
    3  if there is no GPU to measure.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from data_plane.agent.kernel_log_source import Unreadable
from data_plane.agent.monitor import Monitor
from data_plane.agent.schedule import Schedule
from data_plane.device_report import render, report
from data_plane.documents.health import Health
from data_plane.nvml import emulation_file, selection
from data_plane.nvml.library import Library, Unanswered
from data_plane.proof.challenger.port import Outcome
from data_plane.proof.prover import command
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.verifier.recompute import one_blas_thread


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    one_blas_thread()
    nvml_costs = _nvml_costs(options.emulation)  # Before CUDA initialises the cards.
    began = time.monotonic()
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        # An empty cache, so that the report includes the time for compiling the kernels.
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["CUDA_CACHE_PATH"] = cache
        try:
            machine = command.machine(options.emulation, stack)
        except DeviceError as error:
            print(f"no GPU to measure: {error}", file=sys.stderr)
            return 3
        prepared = time.monotonic() - began
        print(
            f"{len(machine.devices)} GPUs prepared in {prepared:.1f} s; measuring, about two minutes for each"
        )
        try:
            asyncio.run(report.report(found, machine, prepared, nvml_costs, _prover(options.emulation)))
        except (DeviceError, report.NotOneModel) as error:
            found["failed"] = str(error)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    if "failed" in found:
        print(f"{found['failed']}\nthe measurements before the failure are in {options.out}", file=sys.stderr)
        return 1
    for line in render.lines(found):
        print(line)
    print(f"\nwritten to {options.out}")
    exact = all(all(gpu["exactness"].values()) for gpu in found["gpus"])
    passed = found["challenge"]["outcome"] in (Outcome.PASSED, Outcome.EMULATED)
    return 0 if exact and passed else 1


def _prover(emulation: Path) -> list[str]:
    """The agent's command `prove`, with this emulation file."""
    start = "import sys, pathlib; from data_plane.agent.__main__ import main; "
    return [
        sys.executable,
        "-c",
        start + "sys.exit(main(['prove'], pathlib.Path(sys.argv[1])))",
        str(emulation),
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_plane.device_report",
        description="Measures the GPUs of this machine: reference times for data_plane/proof/challenger/measured/.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("device-report.json"), help="where the report goes (%(default)s)"
    )
    parser.add_argument(
        "--emulation",
        type=Path,
        default=emulation_file.PATH,
        help="without a driver: the file that describes emulated GPUs, to try this program (%(default)s)",
    )
    return parser.parse_args(arguments)


def _nvml_costs(emulation: Path) -> dict[str, Any]:
    """Microseconds for reading each group of the health document on all GPUs, measured twice.

    At the first look the cards may not be initialised, unless a persistence daemon or another process keeps them so;
    at the second look they are.
    """
    try:
        with selection.opened(emulation) as opened:
            looks = {name: _whole_look(opened) for name in ("first", "second")}
    except Unanswered as error:
        return {"failed": f"{error.code}: {error.detail}"}
    return {
        name: {one.group: {"microseconds": one.microseconds, "calls": one.calls} for one in look.readings}
        for name, look in looks.items()
    }


def _whole_look(opened: Library) -> Health:
    """A look that reads every group, as the first look of a monitor does."""
    return Monitor(opened, Schedule(0), Unreadable(), monotonic=time.monotonic, unix=time.time).look()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
