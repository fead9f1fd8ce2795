"""Measured reference times: reports of devices that we held in our own hands, shipped as package data.

Each file in `data_plane/proof/challenger/measured/` is one run on one device:

    {"source": "cuda", "model": "h100-sxm-80gb", "date": "2026-12-03", "driver": "570.124.06",
     "rates": {"fill": 2.0e10, "walk": 2.1e12, "int8": 4.9e14, "bf16": 2.4e14}}

That is what `python -m data_plane.device_report` writes, among much else. Rates are in the units of
`reference.Times`; phases may be missing; other keys are for people. The folder may be missing too: then every
time is an estimate or learnt.
"""

import json
from importlib.resources import files

from data_plane.proof.challenger.reference import TIMED_PHASES, Basis, Observed, Pace, driver_major


def parse(content: str) -> Observed:
    """One report. Raises ValueError or KeyError: these files are ours, so a bad one is a bug of ours."""
    report = json.loads(content)
    if "failed" in report:
        raise ValueError(f"the run did not come to its end: {report['failed']}")
    if report["source"] != "cuda":
        raise ValueError("an emulation was measured, not a GPU")
    unknown = report["rates"].keys() - set(TIMED_PHASES)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is no timed phase")
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
    """Every report that shipped with this version."""
    folder = files("data_plane.proof.challenger") / "measured"
    if not folder.is_dir():
        return ()
    reports = sorted(
        (one for one in folder.iterdir() if one.name.endswith(".json")), key=lambda one: one.name
    )
    return tuple(parse(one.read_text()) for one in reports)
