"""Reads measured reference times: reports of devices that we measured ourselves, shipped as package data.

Each file in `data_plane/proof/challenger/measured/` is the report of one device:

    {"source": "cuda", "model": "h100-sxm-80gb", "date": "2026-12-03", "driver": "570.124.06",
     "rates": {"fill": 2.0e10, "walk": 2.1e12, "int8": 4.9e14, "bf16": 2.4e14}}

`python -m data_plane.device_report` writes such reports. Rates are in the units of `reference.Times`. Phases may be
missing, and other keys are for people. If the folder is missing, all reference times are estimated or learnt.
"""

import json
from importlib.resources import files

from data_plane.proof.challenger.reference import TIMED_PHASES, Basis, Observed, Pace, driver_major


def parse(content: str) -> Observed:
    """The measurements of one report. Raises ValueError or KeyError, since a bad file among ours is a bug."""
    report = json.loads(content)
    if "failed" in report:
        raise ValueError(f"the run failed: {report['failed']}")
    if report["source"] != "cuda":
        raise ValueError("an emulation was measured, not a GPU")
    unknown = report["rates"].keys() - set(TIMED_PHASES)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not a timed phase")
    rates = {phase: float(report["rates"][phase]) for phase in TIMED_PHASES if phase in report["rates"]}
    if not all(0 < rate < float("inf") for rate in rates.values()):
        raise ValueError("a rate is not a positive number")
    note = f"{report['date']}, driver {report['driver']}"
    return Observed(
        report["model"],
        driver_major(report["driver"]),
        {phase: Pace(rate, Basis.MEASURED, note) for phase, rate in rates.items()},
    )


def load() -> tuple[Observed, ...]:
    """The measurements of every report that is shipped with this version."""
    folder = files("data_plane.proof.challenger") / "measured"
    if not folder.is_dir():
        return ()
    reports = sorted(
        (one for one in folder.iterdir() if one.name.endswith(".json")), key=lambda one: one.name
    )
    return tuple(parse(one.read_text()) for one in reports)
