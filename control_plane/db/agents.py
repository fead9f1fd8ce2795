"""Queries on the agents of machines: the digests of their credentials, and what they reported last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.powers import NOT_ON
from control_plane.db.rows import Recordset, read, write
from control_plane.db.tables.marks import among
from control_plane.domain.agent import Agent
from control_plane.domain.ids import AccountName, ClaimId, ClusterId, LaunchKey, MachineId, OrganizationId
from control_plane.domain.machine import MachineState
from control_plane.domain.node import IN_CLUSTER, NodeState


@dataclass(frozen=True, slots=True)
class Installing:
    """An agent that has to be installed, on a machine that joined its private network, or is a node of a cluster."""

    claim_id: ClaimId
    machine_id: MachineId
    launch_key: LaunchKey
    machine_address: str | None
    ssh_port: int
    host_key: str | None
    own_address: str | None
    """The machine's address in its private network; None for a node, which is in an overlay instead."""
    network: int | None
    """That network's range; None for a node."""
    number: int | None
    """The node's number in its overlay; None for a machine that is no node."""
    overlay: int | None
    """That overlay's range."""
    tries: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that the collector of its agent knows."""

    digest: str
    ended: bool
    sequence: int
    """Of the last heartbeat that is stored."""
    done_at: Mapping[str, datetime]
    """When the last result of each task came."""
    cluster_id: ClusterId | None
    """The cluster whose server its agent reports to; None for one that reports to the hub."""
    overlay: int | None
    """The range of that cluster's overlay."""
    organization_id: OrganizationId
    number: int | None
    """Of its machine as a node of that cluster; otherwise that of its private network on the hub."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What an agent reported since the last time."""

    digest: str
    sequence: int
    at: datetime
    heartbeat: Mapping[str, Any]
    """The last one."""
    received: int
    results: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of agents ends."""

    claim_id: ClaimId


_REPORTED = Recordset(Reported, "reported")

# The network's addresses are those that admit_customers gave the claim.
_ENSURE = text(f"""
INSERT INTO agents (claim_id, organization_id, machine_id, lease_id, due_at)
SELECT c.id, c.organization_id, c.machine_id, c.lease_id, :now
FROM claims c JOIN machines m ON m.id = c.machine_id
WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}'
  AND c.admitted_at IS NOT NULL AND c.ended_at IS NULL AND c.slot IS NULL
  AND (EXISTS (SELECT FROM peers p WHERE p.claim_id = c.id)
       OR EXISTS (SELECT FROM nodes n WHERE n.claim_id = c.id AND n.state = '{NodeState.READY}'))
  AND NOT EXISTS (SELECT FROM agents a WHERE a.claim_id = c.id)
ORDER BY c.admitted_at, c.id LIMIT :limit
ON CONFLICT (claim_id) DO NOTHING
""")
_TAKE = text(f"""
WITH due AS (
  SELECT a.claim_id, m.launch_key, m.address AS machine_address, m.ssh_port, m.host_key, p.address AS own_address,
    w.block AS network, n.number, k.overlay
  FROM agents a JOIN claims c ON c.id = a.claim_id JOIN machines m ON m.id = a.machine_id
    LEFT JOIN peers p ON p.claim_id = c.id LEFT JOIN networks w ON w.id = p.network_id
    LEFT JOIN nodes n ON n.claim_id = c.id AND n.state = '{NodeState.READY}' LEFT JOIN clusters k ON k.id = n.cluster_id
  WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}' AND c.ended_at IS NULL
    AND (p.claim_id IS NOT NULL OR n.id IS NOT NULL)
    AND a.due_at <= :now AND a.agent_sha256 IS DISTINCT FROM :sha256
  ORDER BY a.due_at, a.claim_id LIMIT :limit FOR UPDATE OF a SKIP LOCKED)
UPDATE agents a SET due_at = :again FROM due WHERE a.claim_id = due.claim_id
RETURNING a.claim_id, a.machine_id, due.launch_key, due.machine_address, due.ssh_port, due.host_key, due.own_address,
          due.network, due.number, due.overlay, a.tries
""")
_ISSUED = text("""
UPDATE agents SET next_digest = :digest
WHERE claim_id = :claim_id AND EXISTS (SELECT FROM claims c WHERE c.id = :claim_id AND c.ended_at IS NULL)
""")
_INSTALLED = text("""
UPDATE agents SET digest = :digest, next_digest = NULL, agent_sha256 = :sha256, installed_at = :now, tries = 0,
  why = NULL
WHERE claim_id = :claim_id AND next_digest = :digest
""")
_FAILED = text("UPDATE agents SET tries = tries + 1, why = :why, due_at = :due_at WHERE claim_id = :claim_id")
_END = text("""
UPDATE agents a SET ended_at = c.ended_at FROM claims c
WHERE c.id = a.claim_id AND a.ended_at IS NULL AND c.ended_at IS NOT NULL
""")
_FORGET = text("DELETE FROM agents WHERE ended_at < :before")
# A node that has left its cluster has no tunnel to a collector any more.
_KNOWN = text(f"""
SELECT known.digest, a.ended_at IS NOT NULL AS ended, a.sequence,
       (SELECT coalesce(jsonb_object_agg(task, result -> 'at'), '{{}}') FROM jsonb_each(a.results) AS r(task, result))
         AS done_at,
       k.id AS cluster_id, k.overlay, a.organization_id, coalesce(n.number, h.number) AS number
FROM agents a JOIN leases l ON l.id = a.lease_id
  LEFT JOIN nodes n ON n.claim_id = a.claim_id AND {among("n.state", IN_CLUSTER)}
  LEFT JOIN clusters k ON k.id = n.cluster_id
  LEFT JOIN peers p ON p.claim_id = a.claim_id LEFT JOIN hub_networks h ON h.network_id = p.network_id
  CROSS JOIN LATERAL (VALUES (a.digest), (a.next_digest)) AS known(digest)
WHERE known.digest IS NOT NULL AND (l.node_pool_id IS NULL OR k.id IS NOT NULL)
ORDER BY a.installed_at, a.claim_id LIMIT :limit
""")
_STORE = text(f"""
UPDATE agents a SET sequence = reported.sequence, reported_at = greatest(a.reported_at, reported.at),
  heartbeat = reported.heartbeat, received = a.received + reported.received, results = a.results || reported.results
FROM {_REPORTED} WHERE reported.digest IN (a.digest, a.next_digest) AND a.sequence < reported.sequence
""")
_PAGE = text("""
SELECT claim_id, machine_id, lease_id, agent_sha256, installed_at, why, reported_at, heartbeat, received, results,
       ended_at
FROM agents
WHERE (CAST(:after AS uuid) IS NULL OR claim_id > :after)
  AND (CAST(:silent_since AS timestamptz) IS NULL OR (ended_at IS NULL AND reported_at < :silent_since))
ORDER BY claim_id LIMIT :limit
""")
_REPORTED_AT = text("""
SELECT machine_id, max(reported_at) AS reported_at FROM agents
WHERE machine_id = ANY(:ids) AND ended_at IS NULL AND reported_at IS NOT NULL GROUP BY machine_id
""")
_COUNT_SILENT = text(f"""
SELECT count(*) FROM agents
WHERE ended_at IS NULL AND reported_at < :before AND NOT {NOT_ON.format(machine="agents.machine_id")}
""")


async def take_due(
    connection: Connection, account: AccountName, sha256: str, *, now: datetime, again: datetime, limit: int
) -> list[Installing]:
    """Agents of an account that are missing, or others than the one with this digest. Nobody else takes them until
    `again`.
    """
    await write(connection, _ENSURE, account=account, now=now, limit=limit)
    values = {"account": account, "sha256": sha256, "now": now, "again": again, "limit": limit}
    return sorted(await read(connection, _TAKE, Installing, **values), key=lambda due: due.claim_id)


async def issued(connection: Connection, claim_id: ClaimId, digest: str) -> bool:
    """Store the digest of a new credential, in place of the one before. False when the claim has ended."""
    return bool(await write(connection, _ISSUED, claim_id=claim_id, digest=digest))


async def installed(
    connection: Connection, claim_id: ClaimId, digest: str, sha256: str, *, now: datetime
) -> bool:
    """The agent with this digest runs with this credential. False when another credential was issued meanwhile."""
    return bool(await write(connection, _INSTALLED, claim_id=claim_id, digest=digest, sha256=sha256, now=now))


async def failed(connection: Connection, claim_id: ClaimId, why: str, *, due_at: datetime) -> None:
    await write(connection, _FAILED, claim_id=claim_id, why=why, due_at=due_at)


async def end(connection: Connection, *, forget_before: datetime) -> int:
    """Mark the agents whose claims have ended, and forget those that ended long ago. Returns how many were marked."""
    await write(connection, _FORGET, before=forget_before)
    return await write(connection, _END)


async def known(connection: Connection, *, limit: int) -> list[Credential]:
    """The credentials that the hub and the servers of clusters have to know."""
    return await read(connection, _KNOWN, Credential, limit=limit)


async def store(connection: Connection, reported: Sequence[Reported]) -> int:
    """Store what agents reported, unless it is stored already. Returns of how many agents there was news."""
    return await write(connection, _STORE, reported=_REPORTED.document(reported)) if reported else 0


EVIDENCE = """(SELECT jsonb_build_object('reported_at', a.reported_at, 'results', a.results, 'ended_at', a.ended_at)
   FROM agents a WHERE a.claim_id = {claim_id})"""
"""SQL: the `AgentEvidence` of a claim as a document; null before there is an agent."""


async def page(
    connection: Connection, *, silent_since: datetime | None, after: Place | None, limit: int
) -> list[Agent]:
    """Agents by the age of their claims; if `silent_since` is given, those that reported before and not since then."""
    values = {
        "silent_since": silent_since,
        "after": None if after is None else after.claim_id,
        "limit": limit,
    }
    return await read(connection, _PAGE, Agent, **values)


@dataclass(frozen=True, slots=True)
class _LastReport:
    machine_id: MachineId
    reported_at: datetime


async def reported_at(connection: Connection, machine_ids: Sequence[MachineId]) -> dict[MachineId, datetime]:
    """When the agents of these machines reported last, of those that ever did."""
    if not machine_ids:
        return {}
    found = await read(connection, _REPORTED_AT, _LastReport, ids=list(machine_ids))
    return {report.machine_id: report.reported_at for report in found}


async def count_silent(connection: Connection, *, before: datetime) -> int:
    """How many agents of open claims reported once, and not since `before`, on machines that are on."""
    return (await read(connection, _COUNT_SILENT, int, before=before))[0]
