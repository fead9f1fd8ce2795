"""Decisions of admission on the wire."""

from collections.abc import Iterable
from uuid import UUID

from control_plane.domain.decision import Spoken
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.admissions import Decided
from control_plane.wire.admissions import DecisionView, RuleView


def decision_view(decided: Decided) -> DecisionView:
    return DecisionView(
        id=on_wire(Prefix.ADMISSION_DECISION, decided.id),
        decided_at=decided.decided_at,
        action=decided.action.value,
        outcome=decided.outcome.value,
        code=decided.code,
        why=decided.why,
        rules=rules_view(decided.rules),
        lease_id=_id(Prefix.LEASE, decided.lease_id),
        project_id=_id(Prefix.PROJECT, decided.project_id),
        environment_id=_id(Prefix.ENVIRONMENT, decided.environment_id),
        quota_request_id=_id(Prefix.QUOTA_REQUEST, decided.quota_request_id),
        actor_kind=decided.actor_kind.value,
        actor=decided.actor,
        request_id=decided.request_id,
    )


def rules_view(rules: Iterable[Spoken]) -> tuple[RuleView, ...]:
    return tuple(_rule(spoken) for spoken in rules)


def _rule(spoken: Spoken) -> RuleView:
    return RuleView(
        stage=spoken.stage.value,
        rule=spoken.rule.value,
        verdict=spoken.verdict.value,
        level=None if spoken.level is None else spoken.level.value,
        subject=spoken.subject,
        limit=spoken.limit,
        used=spoken.used,
        wanted=spoken.wanted,
        code=spoken.code,
        why=spoken.why,
    )


def _id(prefix: Prefix, value: UUID | None) -> str | None:
    return None if value is None else on_wire(prefix, value)
