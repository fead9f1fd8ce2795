"""What detectors read about leases that run: samples, what other loops stored, and what customers wish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, readable, write
from control_plane.domain.enforcement import EnforcementAction, WatchedLease
from control_plane.domain.ids import ClaimId, LeaseId, OrganizationId, Prefix
from control_plane.domain.known_conditions import Breach
from control_plane.domain.lease import LeaseState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.reading import Reading, ServerReading
from control_plane.domain.throughput import HoursOfBatch, Sampled


@dataclass(frozen=True, slots=True)
class Watched(WatchedLease):
    """A lease with what our rows say about it."""

    idle_stop_seconds: int | None
    sampled_at: datetime | None
    document: str | None
    """The last sample of its machine, as JSON."""
    envelope_warned_at: datetime | None
    envelope_ends_at: datetime | None
    envelope_why: str | None
    funding_warned_at: datetime | None

    @property
    def last(self) -> Sampled | None:
        if self.sampled_at is None or self.document is None:
            return None
        return _sampled(self.sampled_at, self.document)


def _sampled(at: datetime, document: str) -> Sampled | None:
    """None for a sample that cannot be read: it says nothing, and keeps nobody from what others say."""
    reading = readable(document.encode(), Reading)
    return None if reading is None else Sampled(at, reading)


# A lease that is ready on a machine that it was admitted to.
USED = f"c.ended_at IS NULL AND c.admitted_at IS NOT NULL AND l.state = '{LeaseState.READY}'"
_STOPS = f"""(l.node_pool_id IS NULL AND m.power @> '["{PowerAction.STOP}"]')"""
_PAGE = text(f"""
SELECT c.lease_id, c.id AS claim_id, c.machine_id, c.organization_id, c.project_id, m.account, m.region, l.sla AS tier,
  l.priority, l.created_at, CASE WHEN {_STOPS} THEN i.after_seconds END AS idle_stop_seconds,
  s.at AS sampled_at, s.document::text AS document,
  w.warned_at AS envelope_warned_at, w.ends_at AS envelope_ends_at, w.why AS envelope_why, l.funding_warned_at
FROM claims c JOIN leases l ON l.id = c.lease_id AND l.organization_id = c.organization_id
JOIN machines m ON m.id = c.machine_id
LEFT JOIN idle_stops i ON i.lease_id = c.lease_id AND i.organization_id = c.organization_id
LEFT JOIN LATERAL (
  SELECT x.at, x.document FROM samples x WHERE x.claim_id = c.id ORDER BY x.at DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT e.warned_at, e.ends_at, e.why FROM envelope_warnings e
  WHERE e.lease_id = c.lease_id AND e.organization_id = c.organization_id
  ORDER BY e.ends_at NULLS LAST, e.warned_at, e.envelope_id LIMIT 1) w ON true
WHERE {USED} AND (CAST(:after AS uuid) IS NULL OR c.id > :after)
ORDER BY c.id LIMIT :limit
""")
_WINDOWS = text("""
SELECT w.claim_id, s.at, s.document
FROM unnest(CAST(:claim_ids AS uuid[]), CAST(:since AS timestamptz[]), CAST(:most AS integer[]))
  w(claim_id, since, most)
CROSS JOIN LATERAL (
  SELECT x.at, x.sequence, x.document::text AS document FROM samples x
  WHERE x.claim_id = w.claim_id AND x.at >= w.since ORDER BY x.at DESC, x.sequence DESC LIMIT w.most) s
ORDER BY w.claim_id, s.at, s.sequence
""")
_SERVERS = text("""
SELECT w.claim_id, s.at, s.servers
FROM unnest(CAST(:claim_ids AS uuid[])) w(claim_id)
CROSS JOIN LATERAL (
  SELECT x.at, x.sequence, coalesce(x.document -> 'servers', '[]')::text AS servers FROM samples x
  WHERE x.claim_id = w.claim_id AND x.at >= :since AND x.at < :until ORDER BY x.at, x.sequence LIMIT :most) s
ORDER BY w.claim_id, s.at, s.sequence
""")
SAMPLES_PER_QUERY_MAX = 1_000
"""A sample has up to 64 KiB, which its machine decides."""
_SHORTEST = timedelta(seconds=10)
"""The least time between two samples of an agent, with which windows have room for some more than there should be."""


async def watched(connection: Connection, *, after: ClaimId | None, limit: int) -> list[Watched]:
    """Ready leases with their machines, a page in the order of their claims."""
    return await read(connection, _PAGE, Watched, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class _WindowSample:
    claim_id: ClaimId
    at: datetime
    document: str


def samples_max(length: timedelta) -> int:
    """So many samples of a window are read, the latest ones. A machine that sends more gets a shorter window."""
    return length // _SHORTEST + 10


def portions(lengths: Mapping[ClaimId, timedelta]) -> list[list[ClaimId]]:
    """Claims whose windows are read together, so that what machines send does not decide how much we hold at a time."""
    found: list[list[ClaimId]] = []
    room = 0
    for claim_id, length in lengths.items():
        room -= samples_max(length)
        if not found or room < 0:
            found.append([])
            room = SAMPLES_PER_QUERY_MAX - samples_max(length)
        found[-1].append(claim_id)
    return found


async def windows(
    connection: Connection, lengths: Mapping[ClaimId, timedelta], now: datetime
) -> dict[ClaimId, list[Sampled]]:
    """The samples of claims of the last while, the oldest first. See `portions`, and `samples_max`."""
    found: dict[ClaimId, list[Sampled]] = {claim_id: [] for claim_id in lengths}
    if not lengths:
        return found
    values = {
        "claim_ids": list(lengths),
        "since": [now - length for length in lengths.values()],
        "most": [samples_max(length) for length in lengths.values()],
    }
    for sample in await read(connection, _WINDOWS, _WindowSample, **values):
        read_sample = _sampled(sample.at, sample.document)
        if read_sample is not None:
            found[sample.claim_id].append(read_sample)
    return found


@dataclass(frozen=True, slots=True)
class _ServersOfSample:
    claim_id: ClaimId
    at: datetime
    servers: str


async def served(
    connection: Connection, claim_ids: Sequence[ClaimId], since: datetime, until: datetime
) -> dict[ClaimId, list[Sampled]]:
    """What samples between two moments say about inference servers, and nothing else of them, the oldest first."""
    found: dict[ClaimId, list[Sampled]] = {claim_id: [] for claim_id in claim_ids}
    if not found:
        return found
    values = {"claim_ids": list(claim_ids), "since": since, "until": until}
    for sample in await read(
        connection, _SERVERS, _ServersOfSample, most=samples_max(until - since), **values
    ):
        servers = readable(sample.servers.encode(), tuple[ServerReading, ...])
        if servers is not None:
            found[sample.claim_id].append(Sampled(sample.at, Reading(servers=servers)))
    return found


# Broken promises


@dataclass(frozen=True, slots=True)
class _Breach:
    lease_id: LeaseId
    found_at: datetime
    why: str
    breaches: tuple[str, ...]
    credited_nano: int
    waits: bool


# Those whose credit no action names yet, and for which something is or may be given back. What waits is not assessed
# yet, has to be posted, or has to be decided by finance; what finance refused does not wait any more.
_BREACHES = text(f"""
SELECT b.lease_id, min(b.found_at) AS found_at, (array_agg(b.why ORDER BY b.found_at, b.id))[1] AS why,
  jsonb_agg(b.wire ORDER BY b.found_at, b.id) AS breaches, coalesce(sum(b.posted), 0)::bigint AS credited_nano,
  bool_or(b.waits) AS waits
FROM (
  SELECT x.id, x.lease_id, x.found_at, x.why, '{Prefix.SLA_BREACH}_' || replace(x.id::text, '-', '') AS wire,
    p.nano AS posted,
    a.credit_nano IS NULL OR EXISTS (
      SELECT FROM sla_uncredited u WHERE u.breach_id = x.id AND u.organization_id = x.organization_id) OR EXISTS (
      SELECT FROM sla_undecided u WHERE u.breach_id = x.id AND u.organization_id = x.organization_id) AS waits
  FROM sla_breaches x
  LEFT JOIN LATERAL (
    SELECT y.credit_nano FROM sla_assessments y WHERE y.breach_id = x.id ORDER BY y.number DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT sum(y.amount_nano) AS nano FROM sla_credits y WHERE y.breach_id = x.id) p ON true
  WHERE x.lease_id = ANY(:lease_ids)
) b
WHERE (b.waits OR b.posted <> 0) AND NOT EXISTS (
  SELECT FROM enforcement_actions c WHERE c.lease_id = b.lease_id AND c.action = '{EnforcementAction.CREDIT}'
    AND c.evidence -> 'breaches' @> to_jsonb(b.wire))
GROUP BY b.lease_id
""")


async def breaches(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Breach]:
    """The broken promises of leases whose credit no action has named yet."""
    found = await read(connection, _BREACHES, _Breach, lease_ids=list(lease_ids)) if lease_ids else []
    return {
        row.lease_id: Breach(row.found_at, row.why, row.breaches, row.credited_nano, row.waits)
        for row in found
    }


# Throughput


@dataclass(frozen=True, slots=True)
class Hour:
    claim_id: ClaimId
    organization_id: OrganizationId
    hour: datetime
    batch: int
    throughput: int


_ADD_HOURS = text(f"""
INSERT INTO throughput_hours (claim_id, organization_id, hour, batch, throughput)
SELECT claim_id, organization_id, hour, batch, throughput FROM {Recordset(Hour, "hours")} ON CONFLICT DO NOTHING
""")
_HOURS = text("""
SELECT claim_id, organization_id, hour, batch, throughput FROM throughput_hours
WHERE claim_id = ANY(:claim_ids) AND hour >= :since ORDER BY claim_id, hour, batch
""")
# Of an even number of hours, this is the lower one of the two in the middle. A machine has hundreds of them, which are
# added up here, because they are asked for with every look.
_USUAL = text("""
SELECT claim_id, batch, count(*) AS hours, percentile_disc(0.5) WITHIN GROUP (ORDER BY throughput) AS median
FROM throughput_hours WHERE claim_id = ANY(:claim_ids) AND hour >= :since AND batch > 0
GROUP BY claim_id, batch ORDER BY claim_id, batch
""")
_FORGET = text("DELETE FROM throughput_hours WHERE hour < :before")


async def add_hours(connection: Connection, hours: Sequence[Hour]) -> None:
    if hours:
        await write(connection, _ADD_HOURS, hours=Recordset.document(hours))


async def hours_of(connection: Connection, claim_ids: Sequence[ClaimId], *, since: datetime) -> list[Hour]:
    values = {"claim_ids": list(claim_ids), "since": since}
    return await read(connection, _HOURS, Hour, **values) if claim_ids else []


@dataclass(frozen=True, slots=True)
class _HoursOfClaim(HoursOfBatch):
    claim_id: ClaimId


async def usual(
    connection: Connection, claim_ids: Sequence[ClaimId], *, since: datetime
) -> dict[ClaimId, list[HoursOfBatch]]:
    """The hours of claims with their medians, by batch. Claims without any are left out."""
    found: dict[ClaimId, list[HoursOfBatch]] = {}
    values = {"claim_ids": list(claim_ids), "since": since}
    for each in await read(connection, _USUAL, _HoursOfClaim, **values) if claim_ids else []:
        found.setdefault(each.claim_id, []).append(each)
    return found


async def forget_hours(connection: Connection, *, before: datetime) -> int:
    return await write(connection, _FORGET, before=before)


# Wishes

_IDLE_STOP = text("""
SELECT after_seconds FROM idle_stops WHERE organization_id = :organization_id AND lease_id = :lease_id
""")
_SET_IDLE_STOP = text("""
INSERT INTO idle_stops (organization_id, lease_id, after_seconds, set_at, set_by)
VALUES (:organization_id, :lease_id, :after_seconds, :now, :by)
ON CONFLICT (organization_id, lease_id) DO UPDATE SET
  after_seconds = EXCLUDED.after_seconds, set_at = EXCLUDED.set_at, set_by = EXCLUDED.set_by
""")
_NO_IDLE_STOP = text(
    "DELETE FROM idle_stops WHERE organization_id = :organization_id AND lease_id = :lease_id"
)


async def idle_stop(connection: Connection, organization_id: OrganizationId, lease_id: LeaseId) -> int | None:
    """After how many idle seconds the customer of a lease wants its machine to be stopped; None: never."""
    values = {"organization_id": organization_id, "lease_id": lease_id}
    return await read_one(connection, _IDLE_STOP, int, **values)


async def set_idle_stop(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    after_seconds: int | None,
    *,
    by: str,
    now: datetime,
) -> None:
    values = {"organization_id": organization_id, "lease_id": lease_id}
    if after_seconds is None:
        await write(connection, _NO_IDLE_STOP, **values)
    else:
        await write(connection, _SET_IDLE_STOP, after_seconds=after_seconds, by=by, now=now, **values)
