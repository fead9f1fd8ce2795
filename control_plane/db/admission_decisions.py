"""Queries on the decisions of admission, which are stored with every rule that spoke."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, document, read, write
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.decision import Action, Decision, Spoken, Verdict, refusal
from control_plane.domain.ids import (
    AdmissionDecisionId,
    EnvironmentId,
    LeaseId,
    OrganizationId,
    ProjectId,
    QuotaRequestId,
)

SAME_WITHIN = timedelta(minutes=1)
"""An equal refusal of the same caller is not stored again within this time, so that a client that repeats a request
cannot fill the table."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision as it is stored."""

    id: AdmissionDecisionId
    organization_id: OrganizationId
    project_id: ProjectId | None
    environment_id: EnvironmentId | None
    lease_id: LeaseId | None
    quota_request_id: QuotaRequestId | None
    decided_at: datetime
    action: Action
    outcome: Verdict
    code: str | None
    why: str | None
    rules: tuple[Spoken, ...]
    actor_kind: ActorKind
    actor: str
    request_id: str | None


_NAMES = (
    "id, organization_id, project_id, environment_id, lease_id, quota_request_id, decided_at, action, outcome, code,"
    " why, rules, actor_kind, actor, request_id"
)


@dataclass(frozen=True, slots=True)
class About:
    """What a decision is about."""

    organization_id: OrganizationId
    project_id: ProjectId | None = None
    environment_id: EnvironmentId | None = None
    lease_id: LeaseId | None = None
    quota_request_id: QuotaRequestId | None = None


@dataclass(frozen=True, slots=True)
class _New(Decided):
    sha256: str


def values(decision: Decision, decision_id: AdmissionDecisionId, *, now: datetime) -> dict[str, object]:
    """The parameters of `SELECT_FOR_LEASE`, except for the actor's."""
    refused = refusal(decision)
    return {
        "decision_id": decision_id,
        "decision_action": decision.action,
        "decision_outcome": decision.outcome,
        "decision_code": None if refused is None else refused.code,
        "decision_why": None if refused is None else refused.why,
        "decision_rules": document(decision.rules),
        "decision_sha256": digest(decision),
        "decision_at": now,
    }


def digest(decision: Decision) -> bytes:
    """SHA-256 of what was decided and by which limits, without the figures of use."""
    rules = [
        (spoken.rule, spoken.level, spoken.subject, spoken.limit, spoken.verdict, spoken.code)
        for spoken in decision.rules
    ]
    return hashlib.sha256(json.dumps([decision.action, rules]).encode()).digest()


INSERT_FOR_LEASE = """
INSERT INTO admission_decisions (id, organization_id, project_id, environment_id, lease_id, decided_at, action, outcome,
                                 code, why, rules, actor_kind, actor, request_id, sha256)"""
SELECT_FOR_LEASE = """:decision_id, organization_id, project_id, environment_id, id, :decision_at, :decision_action,
  :decision_outcome, CAST(:decision_code AS text), CAST(:decision_why AS text), CAST(:decision_rules AS jsonb),
  :actor_kind, :actor, :request_id, :decision_sha256"""
"""SQL: a decision about a lease, of which these columns are selected."""

# The same refusal of the same caller is stored once a minute. Whether a lease may be placed is decided again and again
# while it waits, so that is stored when it changes.
_INSERT = text(f"""
INSERT INTO admission_decisions ({_NAMES}, sha256)
SELECT {_NAMES}, decode(sha256, 'hex') FROM {Recordset(_New, "made")}
WHERE NOT EXISTS (
  SELECT FROM (SELECT d.sha256 FROM admission_decisions d
               WHERE d.lease_id = made.lease_id AND d.action = '{Action.LEASE_PLACE}'
               ORDER BY d.decided_at DESC, d.id DESC LIMIT 1) last
  WHERE made.action = '{Action.LEASE_PLACE}' AND last.sha256 = decode(made.sha256, 'hex')
) AND NOT EXISTS (
  SELECT FROM admission_decisions d
  WHERE made.outcome = '{Verdict.REFUSED}' AND d.organization_id = made.organization_id
    AND d.decided_at > made.decided_at - CAST(:within AS interval) AND d.sha256 = decode(made.sha256, 'hex')
    AND d.actor = made.actor AND d.environment_id IS NOT DISTINCT FROM made.environment_id
    AND d.lease_id IS NOT DISTINCT FROM made.lease_id
)
""")
_PAGE = text(f"""
SELECT {_NAMES} FROM admission_decisions
WHERE organization_id = :organization_id AND (CAST(:lease_id AS uuid) IS NULL OR lease_id = :lease_id)
  AND (CAST(:outcome AS text) IS NULL OR outcome = :outcome)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (decided_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY decided_at DESC, id DESC LIMIT :limit
""")


async def insert(
    connection: Connection,
    decisions: Sequence[tuple[AdmissionDecisionId, About, Decision]],
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Store decisions, except those that say nothing new."""
    made = [_new(decision_id, about, decision, actor, now) for decision_id, about, decision in decisions]
    if made:
        await write(connection, _INSERT, made=Recordset.document(made), within=SAME_WITHIN)


def _new(
    decision_id: AdmissionDecisionId, about: About, decision: Decision, actor: Actor, now: datetime
) -> _New:
    refused = refusal(decision)
    return _New(
        id=decision_id,
        organization_id=about.organization_id,
        project_id=about.project_id,
        environment_id=about.environment_id,
        lease_id=about.lease_id,
        quota_request_id=about.quota_request_id,
        decided_at=now,
        action=decision.action,
        outcome=decision.outcome,
        code=None if refused is None else refused.code,
        why=None if refused is None else refused.why,
        rules=decision.rules,
        actor_kind=actor.kind,
        actor=actor.name,
        request_id=actor.request_id,
        sha256=digest(decision).hex(),
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    lease_id: LeaseId | None = None,
    outcome: Verdict | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int,
) -> list[Decided]:
    """Decisions, newest first; `before` is time and id of the previous page's last one."""
    return await read(
        connection,
        _PAGE,
        Decided,
        organization_id=organization_id,
        lease_id=lease_id,
        outcome=outcome,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )
