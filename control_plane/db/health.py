"""Queries on the health of machines: what is known about each, what changed, and what customers were told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import samples
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.samples import StoredSample
from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.health import LOOK_AGAIN_AFTER, Fault, FaultCode, Verdict
from control_plane.domain.health_watch import Assessment, NewNotice, Watched
from control_plane.domain.ids import AccountName, LaunchKey, LeaseId, MachineId
from control_plane.domain.machine import MachineState
from control_plane.domain.notice import NoticeKind

_EVICTED = "(m.eviction_announced_at IS NOT NULL AND m.eviction_withdrawn_at IS NULL)"
# What makes a machine worth judging. Each part has a partial index, or reads the verified machines alone.
_WORTH = f"""
  SELECT m.id FROM machines m WHERE m.state = '{MachineState.VERIFIED}'
    AND (m.down_since IS NOT NULL OR m.missed_since IS NOT NULL OR m.suspect_since IS NOT NULL OR {_EVICTED})
  UNION SELECT h.machine_id FROM machine_health h WHERE h.verdict <> '{Verdict.HEALTHY}' OR h.faults <> '[]'
  UNION SELECT t.machine_id FROM maintenances t WHERE t.ended_at IS NULL
  UNION SELECT b.machine_id FROM hand_backs b JOIN claims c ON c.id = b.claim_id WHERE c.ended_at IS NULL
  UNION SELECT s.machine_id FROM samples s LEFT JOIN machine_health h ON h.machine_id = s.machine_id
    WHERE s.notable AND s.received_at < :samples_before AND s.received_at > coalesce(h.samples_until, '-infinity')
"""
# What our reading of a machine said about the links of its GPUs when it was accepted.
_ACCEPTED = """
  SELECT jsonb_agg(jsonb_build_object(
    'uuid', gpu->'uuid',
    'nvlinks', (SELECT count(*) FROM jsonb_array_elements(gpu->'nvlinks') link WHERE link->'active' = 'true'),
    'pcie_generation', gpu->'pcie'->'generation_max',
    'pcie_width', gpu->'pcie'->'width')) AS accepted
  FROM (
    SELECT reading FROM verification_reports r WHERE r.machine_id = m.id AND r.verdict = 'verified'
    ORDER BY r.at DESC LIMIT 1
  ) report, jsonb_array_elements(coalesce(report.reading->'inventory'->'gpus', '[]')) gpu
"""
_WATCHED = f"""
SELECT m.id AS machine_id, m.account, m.region, m.gpu_count, m.proof, m.created_at, m.down_since, m.provider_state,
  coalesce(v.accepted, '[]') AS accepted, m.missed_since, m.missed_lists, m.relisted_at, m.unsteady_until,
  m.suspect_since, m.eviction_announced_at, m.eviction_withdrawn_at, m.last_passed_at,
  b.asked_at AS handed_back_at, b.why AS handed_back_why, t.since AS maintenance_since, t.why AS maintenance_why,
  t.planned_at AS maintenance_planned_at, w.since AS work_since, w.why AS work_why, w.planned_at AS work_planned_at,
  coalesce(h.verdict, '{Verdict.HEALTHY}') AS verdict, coalesce(h.why, '') AS why,
  coalesce(h.since, m.created_at) AS since, coalesce(h.faults, '[]') AS faults,
  coalesce(h.row_faults, '[]') AS row_faults, coalesce(h.errors, '[]') AS errors, coalesce(h.links, '[]') AS links,
  h.samples_until, h.looked_at,
  coalesce(h.looked, '[]') AS looked, h.look_due_at,
  h.looked_why_not IS NOT NULL AS look_failed, h.look_asked_at, h.reset_at
FROM machines m LEFT JOIN machine_health h ON h.machine_id = m.id
LEFT JOIN maintenances t ON t.machine_id = m.id AND t.ended_at IS NULL AND t.event IS NULL
LEFT JOIN LATERAL (
  SELECT p.since, p.why, p.planned_at FROM maintenances p
  WHERE p.machine_id = m.id AND p.ended_at IS NULL AND p.event IS NOT NULL ORDER BY p.planned_at, p.id LIMIT 1
) w ON true
LEFT JOIN LATERAL (
  SELECT b.asked_at, b.why FROM hand_backs b JOIN claims c ON c.id = b.claim_id
  WHERE b.machine_id = m.id AND c.ended_at IS NULL ORDER BY b.asked_at LIMIT 1
) b ON true
LEFT JOIN LATERAL ({_ACCEPTED}) v ON true
"""
_PAGE = text(f"""
{_WATCHED}
WHERE m.state = '{MachineState.VERIFIED}' AND m.id IN ({_WORTH})
  AND (CAST(:after AS uuid) IS NULL OR m.id > :after)
ORDER BY m.id LIMIT :limit
""")
_ENSURE = text(f"""
INSERT INTO machine_health (machine_id, verdict, why, since, judged_at)
SELECT m.id, '{Verdict.HEALTHY}', '', m.created_at, :now FROM machines m
WHERE m.id = :id AND m.state = '{MachineState.VERIFIED}' ON CONFLICT (machine_id) DO NOTHING
""")
_LOCK = text("SELECT machine_id FROM machine_health WHERE machine_id = :id FOR UPDATE")
_ONE = text(f"{_WATCHED} WHERE m.state = '{MachineState.VERIFIED}' AND m.id = :id")
_STORE = text("""
UPDATE machine_health SET verdict = :verdict, fault = :fault, why = :why, judged_at = :now,
  since = CASE WHEN verdict = :verdict THEN since ELSE :now END, faults = CAST(:faults AS jsonb),
  row_faults = CAST(:row_faults AS jsonb),
  errors = CAST(:errors AS jsonb), links = CAST(:links AS jsonb),
  samples_until = :samples_until, looked_at = :looked_at, looked = CAST(:looked AS jsonb), look_due_at = :look_due_at
WHERE machine_id = :id
""")
_CHANGED = text("""
INSERT INTO health_changes (machine_id, at, verdict_before, verdict, fault, why, evidence)
VALUES (:id, :now, :before, :verdict, :fault, :why, CAST(:evidence AS jsonb))
""")


# What a machine sends first comes before what any other one sends next, so that none takes the room of all.
_SAMPLES = text(f"""
SELECT {", ".join(samples.COLUMNS)} FROM (
  SELECT s.*, dense_rank() OVER (PARTITION BY s.machine_id ORDER BY s.received_at) AS turn
  FROM samples s LEFT JOIN machine_health h ON h.machine_id = s.machine_id
  WHERE s.notable AND s.received_at < :before AND s.received_at > coalesce(h.samples_until, '-infinity')
    AND s.machine_id = ANY(CAST(:ids AS uuid[]))
) unseen
ORDER BY turn, received_at, machine_id, claim_id, sequence LIMIT :limit
""")


async def worth_judging(
    connection: Connection, *, samples_before: datetime, after: MachineId | None, limit: int
) -> list[Watched]:
    """Verified machines that have, or may have, something wrong with them; a page in the order of their ids.

    Samples that were received from `samples_before` on are left for the next time (`samples.settled`).
    """
    return await read(connection, _PAGE, Watched, samples_before=samples_before, after=after, limit=limit)


async def new_samples(
    connection: Connection, machine_ids: Sequence[MachineId], *, before: datetime, limit: int
) -> tuple[dict[MachineId, list[StoredSample]], bool]:
    """The notable samples of machines that no judgement has seen yet, oldest first; and whether there are more of them.

    A judgement stores up to when the samples were received that it has seen, so those of a machine that were received
    together stay together. `limit` is larger than what is ever received together.
    """
    values = {"ids": list(machine_ids), "before": before, "limit": limit}
    samples = await read(connection, _SAMPLES, StoredSample, **values) if machine_ids else []
    more = len(samples) == limit
    cut = (samples[-1].machine_id, samples[-1].received_at) if more else None
    found: dict[MachineId, list[StoredSample]] = {}
    for sample in samples:
        if (sample.machine_id, sample.received_at) != cut:
            found.setdefault(sample.machine_id, []).append(sample)
    return found, more


async def lock(connection: Connection, machine_id: MachineId, *, now: datetime) -> Watched | None:
    """Lock what is stored about a verified machine's health, and read the machine. None when it is not verified."""
    await write(connection, _ENSURE, id=machine_id, now=now)
    if await read_one(connection, _LOCK, UUID, id=machine_id) is None:
        return None
    return await read_one(connection, _ONE, Watched, id=machine_id)


async def store(connection: Connection, watched: Watched, assessment: Assessment, *, now: datetime) -> None:
    """Store what is known about a machine that is locked; and what changed of its verdict."""
    judgement = assessment.judgement
    fault = None if judgement.fault is None else judgement.fault.code
    values = {"verdict": judgement.verdict, "fault": fault, "why": judgement.why, "now": now}
    await write(
        connection,
        _STORE,
        id=watched.machine_id,
        faults=document(assessment.faults),
        row_faults=document(assessment.row_faults),
        errors=document(assessment.errors),
        links=document(assessment.links),
        samples_until=assessment.samples_until,
        looked_at=assessment.looked_at,
        looked=document(assessment.looked),
        look_due_at=assessment.look_due_at,
        **values,
    )
    if judgement.differs(watched.judged):
        evidence = document({"faults": assessment.faults, "because_of": judgement.fault})
        await write(
            connection, _CHANGED, id=watched.machine_id, before=watched.verdict, evidence=evidence, **values
        )


@dataclass(frozen=True, slots=True)
class ToLookAt:
    """A machine that we look at ourselves."""

    machine_id: MachineId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None


# A machine that reports although lists show it as down may work: only a look of ours tells (domain/outage.py).
_SPEAKS_WHILE_DOWN = """(
  coalesce(h.looked_at, '-infinity') <= :looked_before AND m.down_since IS NOT NULL AND EXISTS (
    SELECT FROM agents a WHERE a.machine_id = m.id AND a.ended_at IS NULL
      AND a.reported_at > greatest(m.down_since + interval '1 minute', :silent_before)))"""
_TAKE = text(f"""
WITH taken AS (
  SELECT h.machine_id FROM machine_health h JOIN machines m ON m.id = h.machine_id
  WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}'
    AND (h.look_due_at <= :now OR h.look_due_at IS NULL AND {_SPEAKS_WHILE_DOWN})
    AND (h.look_until IS NULL OR h.look_until <= :now)
  ORDER BY h.look_due_at, h.machine_id LIMIT :limit FOR UPDATE OF h SKIP LOCKED
)
UPDATE machine_health h SET look_token = :token, look_until = :until FROM taken, machines m
WHERE h.machine_id = taken.machine_id AND m.id = h.machine_id
RETURNING h.machine_id, m.launch_key, m.address, m.ssh_port, m.host_key
""")
_LOOKED = text("""
UPDATE machine_health SET look_token = NULL, look_until = NULL, looked_why_not = :why_not,
  look_due_at = coalesce(:due_at, look_due_at)
WHERE machine_id = :id AND look_token = :token
""")


async def take_due_looks(
    connection: Connection, account: AccountName, *, token: UUID, until: datetime, now: datetime, limit: int
) -> list[ToLookAt]:
    """Hold machines of an account at which a look is due, until `until`; in the order of their ids."""
    values = {
        "account": account,
        "token": token,
        "until": until,
        "now": now,
        "limit": limit,
        "looked_before": now - LOOK_AGAIN_AFTER,
        "silent_before": now - SILENT_AFTER,
    }
    return sorted(await read(connection, _TAKE, ToLookAt, **values), key=lambda due: due.machine_id)


_ASK_LOOK = text("""
UPDATE machine_health SET look_asked_at = :now, look_due_at = least(look_due_at, :now) WHERE machine_id = :id
""")


async def ask_look(connection: Connection, machine_id: MachineId, *, now: datetime) -> None:
    """Have a verified machine looked at now, whatever is known about it."""
    await write(connection, _ENSURE, id=machine_id, now=now)
    await write(connection, _ASK_LOOK, id=machine_id, now=now)


async def give_back_look(
    connection: Connection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime | None = None,
    why_not: str | None = None,
) -> bool:
    """Give a machine back after a look, or one that could not be made: `why_not`, and due again at `due_at`.

    False when another worker has it.
    """
    return bool(await write(connection, _LOOKED, id=machine_id, token=token, due_at=due_at, why_not=why_not))


_RESET = text("UPDATE machine_health SET reset_at = :now WHERE machine_id = :id")


async def was_reset(connection: Connection, machine_id: MachineId, *, now: datetime) -> None:
    """Store that a machine was rebooted, which clears errors from before."""
    await write(connection, _RESET, id=machine_id, now=now)


_NOTIFY = text("""
INSERT INTO notices (organization_id, project_id, lease_id, machine_id, at, kind, message, planned_at)
SELECT c.organization_id, c.project_id, c.lease_id, c.machine_id, :now, :kind, :message, :planned_at
FROM claims c WHERE c.machine_id = :machine_id AND c.ended_at IS NULL AND c.admitted_at IS NOT NULL
""")


async def notify(connection: Connection, machine_id: MachineId, notice: NewNotice, *, now: datetime) -> None:
    """Tell the customers who use a machine."""
    values = {"kind": notice.kind, "message": notice.message, "planned_at": notice.planned_at}
    await write(connection, _NOTIFY, machine_id=machine_id, now=now, **values)


@dataclass(frozen=True, slots=True)
class Notice:
    """What the customer of a lease was told."""

    number: int
    lease_id: LeaseId
    machine_id: MachineId
    at: datetime
    kind: NoticeKind
    message: str
    planned_at: datetime | None


_NOTICES = text("""
SELECT number, lease_id, machine_id, at, kind, message, planned_at FROM notices
WHERE lease_id = :lease_id AND (CAST(:before AS bigint) IS NULL OR number < :before)
ORDER BY number DESC LIMIT :limit
""")


async def notices_of_lease(
    connection: Connection, lease_id: LeaseId, *, before: int | None, limit: int
) -> list[Notice]:
    """The notices of a lease, the latest first."""
    return await read(connection, _NOTICES, Notice, lease_id=lease_id, before=before, limit=limit)


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one machine, as it is shown."""

    machine_id: MachineId
    verdict: Verdict
    fault: FaultCode | None
    why: str
    since: datetime
    judged_at: datetime
    faults: tuple[Fault, ...]
    looked_at: datetime | None
    looked_why_not: str | None


_OF_MACHINES = text("""
SELECT machine_id, verdict, fault, why, since, judged_at, faults, looked_at, looked_why_not
FROM machine_health WHERE machine_id = ANY(:ids)
""")


async def of_machines(connection: Connection, machine_ids: Sequence[MachineId]) -> dict[MachineId, Health]:
    """What is known about the health of machines. One about which nothing was ever reported is not in the answer."""
    found = await read(connection, _OF_MACHINES, Health, ids=list(machine_ids))
    return {health.machine_id: health for health in found}


@dataclass(frozen=True, slots=True)
class ChangeEvidence:
    """What a verdict was changed by; empty where nothing was stored."""

    faults: tuple[Fault, ...] = ()
    """The open faults, without those that our rows tell of."""
    because_of: Fault | None = None
    """The worst one, of either kind."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the verdict about a machine."""

    at: datetime
    verdict_before: Verdict
    verdict: Verdict
    fault: FaultCode | None
    why: str
    evidence: ChangeEvidence

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All of them."""
        worst, faults = self.evidence.because_of, self.evidence.faults
        return faults if worst is None or worst in faults else (worst, *faults)


_CHANGES = text("""
SELECT * FROM (
  SELECT number, at, verdict_before, verdict, fault, why, evidence FROM health_changes
  WHERE machine_id = :machine_id AND at >= :since AND (CAST(:until AS timestamptz) IS NULL OR at <= :until)
  ORDER BY number DESC LIMIT :limit
) c ORDER BY number
""")


async def changes(
    connection: Connection, machine_id: MachineId, *, since: datetime, until: datetime | None, limit: int
) -> list[Change]:
    """How the verdict about a machine changed in a while, the oldest first; the last ones."""
    values = {"since": since, "until": until, "limit": limit}
    return await read(connection, _CHANGES, Change, machine_id=machine_id, **values)
