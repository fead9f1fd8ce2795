"""Orphans on the wire."""

from datetime import datetime

from control_plane.api.views.money import money_or_none
from control_plane.domain.orphan import ORIGIN_WHY
from control_plane.services.orphans import ListedOrphan, OrphanDecision
from control_plane.wire.orphans import OrphanDecisionView, OrphanView


def orphan_view(orphan: ListedOrphan, now: datetime) -> OrphanView:
    return OrphanView(
        account=orphan.account,
        provider_ref=orphan.provider_ref,
        launch_key=orphan.launch_key,
        native_status=orphan.native_status,
        first_seen_at=orphan.first_seen_at,
        last_seen_at=orphan.last_seen_at,
        lists_seen=orphan.lists_seen,
        terminate_asked_at=orphan.terminate_asked_at,
        note=orphan.note,
        gone_at=orphan.gone_at,
        origin=orphan.origin,
        origin_why=ORIGIN_WHY[orphan.origin],
        cost_per_hour=money_or_none(orphan.cost_nano_per_hour),
        cost=money_or_none(orphan.cost(now)),
        held_code=orphan.held_code,
        held_why=orphan.held_why,
        not_adopted_why=orphan.not_adopted_why,
        decision=_decision(orphan),
    )


def _decision(orphan: ListedOrphan) -> OrphanDecisionView | None:
    if orphan.choice is None or orphan.decided_at is None:
        return None
    return OrphanDecisionView(
        account=orphan.account,
        provider_ref=orphan.provider_ref,
        launch_key=orphan.launch_key,
        choice=orphan.choice,
        why=orphan.decided_why or "",
        actor=orphan.decided_by or "",
        at=orphan.decided_at,
    )


def orphan_decision_view(decision: OrphanDecision) -> OrphanDecisionView:
    return OrphanDecisionView(
        account=decision.account,
        provider_ref=decision.provider_ref,
        launch_key=decision.launch_key,
        choice=decision.choice,
        why=decision.why,
        actor=decision.actor,
        at=decision.at,
    )
