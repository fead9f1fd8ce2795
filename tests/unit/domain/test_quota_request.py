"""Quota requests: their states, who may approve them, and what an approval changes."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from control_plane.domain.decision import Rule, refusal
from control_plane.domain.envelope import Burst, Envelope, Level
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId, QuotaRequestId
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState
from control_plane.domain.quota_request import (
    EXPIRES_AFTER,
    TERMINAL,
    Approval,
    QuotaRequest,
    QuotaRequestEvent,
    QuotaRequestState,
    applied,
    approval,
    step,
)
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.transitions import Ignored, Moved

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
REQUEST = QuotaRequest(
    QuotaRequestId(UUID(int=1)),
    OrganizationId(UUID(int=2)),
    Level.PROJECT,
    None,
    None,
    Envelope(gpus=8),
    "a training run",
    QuotaRequestState.PENDING,
    "sa_1",
    NOW,
    NOW + EXPIRES_AFTER,
)
FINE = Approval(
    REQUEST, "sa_2", OrganizationState.ACTIVE, Envelope(gpus=4), ((Level.CEILING, Envelope(gpus=8)),)
)


def test_only_a_pending_request_is_decided_and_a_decision_is_final() -> None:
    for state in QuotaRequestState:
        for event in QuotaRequestEvent:
            stepped = step(state, event)
            if state is QuotaRequestState.PENDING:
                assert isinstance(stepped, Moved)
                assert stepped.after in TERMINAL
            else:
                assert isinstance(stepped, Ignored)


def test_a_pending_request_expires_by_itself_and_a_decided_one_does_not() -> None:
    assert REQUEST.state_at(NOW) is QuotaRequestState.PENDING
    assert REQUEST.state_at(REQUEST.expires_at) is QuotaRequestState.EXPIRED
    approved = replace(REQUEST, state=QuotaRequestState.APPROVED)
    assert approved.state_at(REQUEST.expires_at) is QuotaRequestState.APPROVED


def test_an_approval_is_allowed_within_the_levels_above_by_somebody_else() -> None:
    decision = approval(FINE)
    assert decision.admitted
    assert [spoken.rule for spoken in decision.rules] == [Rule.ORGANIZATION, Rule.APPROVER, Rule.PARENT]


def test_nobody_approves_what_they_asked_for_themselves() -> None:
    refused = refusal(approval(replace(FINE, by="sa_1")))
    assert refused is not None
    assert refused.code is RefusalCode.OWN_REQUEST


def test_an_approval_beyond_a_level_above_is_refused() -> None:
    refused = refusal(approval(replace(FINE, parents=((Level.CEILING, Envelope(gpus=7)),))))
    assert refused is not None
    assert refused.code is RefusalCode.ENVELOPE_TOO_WIDE
    assert "at most 7" in refused.why


def test_an_approval_for_an_organization_that_may_not_spend_is_refused() -> None:
    for state, code in (
        (OrganizationState.SUSPENDED, RefusalCode.ORGANIZATION_SUSPENDED),
        (OrganizationState.CLOSED, RefusalCode.ORGANIZATION_CLOSED),
    ):
        refused = refusal(approval(replace(FINE, organization_state=state)))
        assert refused is not None
        assert refused.code is code


def test_what_a_request_leaves_open_stays_as_it_is() -> None:
    now = Envelope(
        gpus=4,
        gpus_of_model={GpuModel.L4_24GB: 2},
        spend_nano_per_hour=Nano(5),
        regions=frozenset({"eu"}),
        burst=Burst(10, 60),
    )
    limits = Envelope(gpus=8, gpus_of_model={GpuModel.H100_SXM_80GB: 8})
    assert applied(now, limits) == replace(
        now, gpus=8, gpus_of_model={GpuModel.L4_24GB: 2, GpuModel.H100_SXM_80GB: 8}
    )
    assert applied(now, Envelope()) == now
