"""A quota request: somebody asks for higher limits in an envelope, and somebody else decides.

    PENDING --approved--> APPROVED      the envelope is changed in the same transaction
       |----declined--> DECLINED
       `----withdrawn--> WITHDRAWN

A pending request expires by itself, which nobody has to store (`QuotaRequest.state_at`).

An operator decides on an organization's ceiling; its owner or admin decides on what lies within it. Nobody decides on
what they asked for themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.decision import Action, Decision, Rule, Spoken, Verdict, decided
from control_plane.domain.envelope import NAMES, Envelope, Level, widenings
from control_plane.domain.ids import EnvironmentId, OrganizationId, ProjectId, QuotaRequestId
from control_plane.domain.organization import EFFECTS, OrganizationState
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.scope import ORGANIZATION, Scope, ScopeKind
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table

EXPIRES_AFTER = timedelta(days=14)
PENDING_MAX = 20
"""Requests of one subject that nobody has decided yet: each is read by a person."""


class QuotaRequestState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    """Whoever asked took it back."""
    EXPIRED = "expired"
    """Nobody decided in time."""


class QuotaRequestEvent(StrEnum):
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"


_S = QuotaRequestState
_E = QuotaRequestEvent
NEXT: dict[tuple[QuotaRequestState, QuotaRequestEvent], QuotaRequestState] = {
    (_S.PENDING, _E.APPROVED): _S.APPROVED,
    (_S.PENDING, _E.DECLINED): _S.DECLINED,
    (_S.PENDING, _E.WITHDRAWN): _S.WITHDRAWN,
}
TERMINAL = frozenset({_S.APPROVED, _S.DECLINED, _S.WITHDRAWN, _S.EXPIRED})


def step(
    state: QuotaRequestState, event: QuotaRequestEvent
) -> Moved[QuotaRequestState, QuotaRequestEvent] | Ignored[QuotaRequestState, QuotaRequestEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    id: QuotaRequestId
    organization_id: OrganizationId
    level: Level
    project_id: ProjectId | None
    environment_id: EnvironmentId | None
    limits: Envelope
    """The limits that are asked for; what it leaves open stays as it is."""
    reason: str
    state: QuotaRequestState
    asked_by: str
    asked_at: datetime
    expires_at: datetime
    decided_by: str | None = None
    decided_at: datetime | None = None
    answer: str | None = None
    """The reason of whoever decided."""

    @property
    def scope(self) -> Scope:
        """Who has a permission there may use it on this request."""
        if self.environment_id is not None:
            return Scope(ScopeKind.ENVIRONMENT, self.project_id, self.environment_id)
        return ORGANIZATION if self.project_id is None else Scope(ScopeKind.PROJECT, self.project_id)

    def state_at(self, now: datetime) -> QuotaRequestState:
        """Its state, also while nobody has stored yet that it expired."""
        expired = self.state is QuotaRequestState.PENDING and now >= self.expires_at
        return QuotaRequestState.EXPIRED if expired else self.state


def applied(envelope: Envelope, limits: Envelope) -> Envelope:
    """An envelope with the limits of a request in place of its own."""
    named = {
        each.name: getattr(limits, each.name)
        for each in fields(Envelope)
        if each.name != "gpus_of_model" and getattr(limits, each.name) is not None
    }
    return replace(envelope, **named, gpus_of_model={**envelope.gpus_of_model, **limits.gpus_of_model})


@dataclass(frozen=True, slots=True)
class Approval:
    """The facts that an approval is decided on."""

    request: QuotaRequest
    by: str
    """Who would approve it."""
    organization_state: OrganizationState
    envelope: Envelope
    """The envelope that it would change, as it is now."""
    parents: tuple[tuple[Level, Envelope], ...]


def approval(facts: Approval) -> Decision:
    """Whether a request may be approved by somebody now."""
    return decided(
        Action.QUOTA_INCREASE,
        (
            _said(
                Rule.ORGANIZATION,
                None if EFFECTS[facts.organization_state].spends else "The organization is not active.",
                RefusalCode.ORGANIZATION_SUSPENDED
                if facts.organization_state is OrganizationState.SUSPENDED
                else RefusalCode.ORGANIZATION_CLOSED,
            ),
            _said(
                Rule.APPROVER,
                "Nobody decides on what they asked for themselves; let another owner, admin or operator decide."
                if facts.by == facts.request.asked_by
                else None,
                RefusalCode.OWN_REQUEST,
            ),
            _said(Rule.PARENT, _too_wide(facts), RefusalCode.ENVELOPE_TOO_WIDE),
        ),
    )


def _too_wide(facts: Approval) -> str | None:
    return too_wide(facts.request.level, applied(facts.envelope, facts.request.limits), facts.parents)


def too_wide(level: Level, envelope: Envelope, parents: Iterable[tuple[Level, Envelope]]) -> str | None:
    """A sentence that says in what an envelope is wider than a level above it; None when it is within all."""
    found = widenings(envelope, parents)
    if not found:
        return None
    parts = "; ".join(f"`{each.field}` {each.why}" for each in found)
    return f"In {NAMES[level]}, {parts}."


def _said(rule: Rule, why: str | None, code: RefusalCode) -> Spoken:
    if why is None:
        return Spoken(rule=rule, verdict=Verdict.ALLOWED)
    return Spoken(rule=rule, verdict=Verdict.REFUSED, code=code, why=why)
