"""Incidents of machines with GPUs, written down as series of samples, and what our rules make of them.

A case is a JSON file in tests/fixtures/incidents/: where it is from, what a machine with eight GPUs sends every 15 s, when
we look at it, and what becomes of it. Only what differs from a healthy machine is written:

- `samples`: series. `from` and `until` in seconds, `gpus` by index with fields of data_plane.documents.sample.Gpu, `xids`
  (in the first sample of the series, as an agent reports each error once), `failure` when the GPUs cannot be read;
- `looks`: readings that we took over SSH, in the same way, `at` a second; an error stays in the driver's log, so it is
  named again, with how long `ago` it was;
- `rows`: what rows of ours say from a second on, such as that a proof was `passed` or that it was `reset`.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from control_plane.db.samples import StoredSample
from control_plane.domain.gpu_faults import AcceptedGpu, Reading, ShownLink
from control_plane.domain.health import RULES, Source, Verdict
from control_plane.domain.health_watch import Assessment, Watched, assess, notice_for
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.proof import Tier
from data_plane.documents.sample import SECONDS, Gpu, Host, Sample, Xid, notable
from reconciler.health_readings import of_sample

START = datetime(2026, 11, 28, 12, tzinfo=UTC)
GPUS = 8
LOOP_SECONDS = 5
"""How often machines are judged."""
QUIET_SECONDS = 20
"""How often one is judged here of which nothing new is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A case, as its file has it."""

    title: str
    source: str
    """Where the signals, and what they mean, are described."""
    lasts: int
    """Seconds."""
    samples: Sequence[dict[str, Any]]
    looks: Sequence[dict[str, Any]]
    rows: Sequence[dict[str, Any]]


@cache
def read_case(path: Path) -> Case:
    found = json.loads(path.read_text(encoding="utf-8"))
    return Case(
        found["title"],
        found["source"],
        found["lasts"],
        found.get("samples", []),
        found.get("looks", []),
        found.get("rows", []),
    )


@cache
def timeline(case: Case) -> str:
    """The verdicts, each with its time, what is due, and what the customer is told."""
    lines = [case.title, f"Source: {case.source}", ""]
    watched = verified()
    due = deque(sorted(_readings(case), key=lambda reading: reading.at))
    rows = sorted(case.rows, key=lambda row: row["at"])
    for second in range(0, case.lasts + 1, LOOP_SECONDS):
        now = START + timedelta(seconds=second)
        while rows and rows[0]["at"] <= second:
            watched = _with_rows(watched, rows.pop(0), lines)
        seen = []
        while due and due[0].at <= now:
            seen.append(due.popleft())
        if not seen and second % QUIET_SECONDS:
            continue
        assessed = assess(watched, seen, now)
        lines += _told(watched, assessed, second)
        watched = _stored(watched, assessed, now)
    lines.append(f"{_clock(case.lasts)}  {watched.verdict} at the end")
    return "\n".join(lines) + "\n"


def verified() -> Watched:
    """A healthy machine with eight GPUs that were at work already."""
    return Watched(
        machine_id=MachineId(UUID(int=1)),
        account=AccountName("account"),
        region="us-east-1",
        gpu_count=GPUS,
        proof=Tier.PROVEN,
        created_at=START - timedelta(days=3),
        accepted=tuple(AcceptedGpu(_uuid(index), 18, 5, 16) for index in range(GPUS)),
        down_since=None,
        provider_state=None,
        missed_since=None,
        missed_lists=0,
        relisted_at=None,
        unsteady_until=None,
        suspect_since=None,
        eviction_announced_at=None,
        eviction_withdrawn_at=None,
        last_passed_at=START - timedelta(days=1),
        handed_back_at=None,
        handed_back_why=None,
        maintenance_since=None,
        maintenance_why=None,
        maintenance_planned_at=None,
        work_since=None,
        work_why=None,
        work_planned_at=None,
        verdict=Verdict.HEALTHY,
        why="no fault is known",
        since=START - timedelta(days=3),
        faults=(),
        row_faults=(),
        errors=(),
        links=tuple(ShownLink(_uuid(index), 5) for index in range(GPUS)),
        samples_until=None,
        looked_at=None,
        looked=(),
        look_due_at=None,
        look_failed=False,
        look_asked_at=None,
        reset_at=None,
    )


def _with_rows(watched: Watched, row: dict[str, Any], lines: list[str]) -> Watched:
    at = START + timedelta(seconds=row["at"])
    for word in sorted(row.keys() - {"at"}):
        lines.append(f"{_clock(row['at'])}  -- {word.replace('_', ' ')}")
        match word:
            case "passed_a_proof":
                watched = replace(watched, last_passed_at=at, suspect_since=None)
            case "failed_a_proof":
                watched = replace(watched, suspect_since=at)
            case "was_reset":
                watched = replace(watched, reset_at=at)
            case "is_listed_as_down":
                watched = replace(watched, down_since=at, provider_state="stopped")
            case "is_listed_as_running":
                watched = replace(watched, down_since=None, provider_state=None)
            case _:
                raise ValueError(f"a case has no row {word!r}")
    return watched


def _readings(case: Case) -> Iterator[Reading]:
    for series in case.samples:
        yield of_sample(_stored_sample(series, series["from"], 1))
        following = of_sample(_stored_sample({**series, "xids": []}, series["from"], 2))
        for second in range(series["from"] + SECONDS, series["until"] + 1, SECONDS):
            yield replace(following, at=START + timedelta(seconds=second))
    for look in case.looks:
        yield replace(of_sample(_stored_sample(look, look["at"], 1)), source=Source.LOOK)


def _stored_sample(series: dict[str, Any], second: int, sequence: int) -> StoredSample:
    """The sample as it is stored: composed of the agent's own documents, so a field that they lack is an error."""
    at, failure = START + timedelta(seconds=second), series.get("failure")
    known = series.get("gpus", {})
    gpus = [
        replace(_healthy(index), **known.get(str(index), {})) for index in range(series.get("count", GPUS))
    ]
    read = Sample(
        sequence=sequence,
        at_ms=int(at.timestamp() * 1_000),
        boot="0a2ab135-9d07-4dc4-b84f-559402d87ffd",
        uptime_seconds=259_200 + second,
        spooled=0,
        dropped=0,
        source=None if failure else "nvml",
        failure=failure,
        gpus=() if failure else tuple(gpus),
        xids=tuple(
            Xid(
                kind=xid.get("kind", "xid"),
                number=xid["number"],
                bus_id=None if xid.get("gpu") is None else _bus_id(xid["gpu"]),
                at=int(at.timestamp()) - xid.get("ago", 0),
            )
            for xid in series.get("xids", [])
        ),
        xids_more=0,
        events=True,
        kernel_log="kmsg",
        host=Host(),
        servers=(),
    )
    return StoredSample(
        organization_id=OrganizationId(UUID(int=2)),
        project_id=ProjectId(UUID(int=3)),
        claim_id=ClaimId(UUID(int=4)),
        lease_id=LeaseId(UUID(int=5)),
        machine_id=MachineId(UUID(int=1)),
        sequence=sequence,
        at=at,
        received_at=at,
        skew_ms=0,
        notable=notable(read),
        document=asdict(read),
    )


def _bus_id(index: int) -> str:
    return f"0000:{0x1B + 0x10 * index:02x}:00.0"


def _uuid(index: int) -> str:
    return f"GPU-0000000{index}-0000-4000-8000-000000000000"


def _healthy(index: int) -> Gpu:
    """One of eight H100s at work: near its power limit, which is usual under load (bit 4), with all of its links."""
    return Gpu(
        index=index,
        uuid=_uuid(index),
        bus_id=_bus_id(index),
        utilisation_percent=97,
        power_mw=640_000,
        power_limit_mw=700_000,
        temperature_c=62,
        throttle_reasons=4,
        rows_pending=False,
        rows_failed=False,
        recovery_action=0,
        nvlinks=18,
        nvlinks_active=18,
        pcie_generation=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_generation_max=5,
        fabric_state="completed",
        fabric_health="healthy",
    )


def _told(watched: Watched, assessed: Assessment, second: int) -> list[str]:
    judged = assessed.judgement
    found = []
    if (judged.verdict, judged.why) != (watched.verdict, watched.why):
        found.append(f"{_clock(second)}  {judged.verdict:<21} {judged.why}")
    known = {fault.key for fault in watched.faults}
    found += [
        f"{_clock(second)}  > noted: {RULES[fault.code].words}: {fault.detail}"
        for fault in assessed.faults
        if fault.key not in known and fault.verdict is Verdict.HEALTHY
    ]
    if assessed.challenge:
        found.append(f"{_clock(second)}  > its GPUs are to prove themselves now")
    if (assessed.look_due_at is None) is not (watched.look_due_at is None):
        words = "nothing is left to look for" if assessed.look_due_at is None else "we look at it ourselves"
        found.append(f"{_clock(second)}  > {words}")
    notice = notice_for(watched, judged)
    if notice is not None:
        found.append(f"{_clock(second)}  > told: {notice.message}")
    return found


def _stored(watched: Watched, assessed: Assessment, now: datetime) -> Watched:
    judged = assessed.judgement
    return replace(
        watched,
        faults=assessed.faults,
        row_faults=assessed.row_faults,
        errors=assessed.errors,
        looked_at=assessed.looked_at,
        looked=assessed.looked,
        look_due_at=assessed.look_due_at,
        verdict=judged.verdict,
        why=judged.why,
        since=watched.since if judged.verdict is watched.verdict else now,
    )


def _clock(second: int) -> str:
    return f"{second // 3_600}:{second // 60 % 60:02d}:{second % 60:02d}".rjust(8)
