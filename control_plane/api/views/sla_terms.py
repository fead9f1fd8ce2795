"""The terms of service levels on the wire."""

from control_plane.domain.sla import SlaOffer
from control_plane.wire.sla_terms import AvailabilityCreditView, SlaTierView


def sla_tier_view(offer: SlaOffer) -> SlaTierView:
    terms = offer.terms
    return SlaTierView(
        tier=terms.tier.value,
        version=offer.version,
        ready_seconds=terms.ready_seconds,
        ready_credit_percent=percent(terms.ready_credit_bp),
        replacement_seconds=terms.replacement_seconds,
        replacement_credit_percent=percent(terms.replacement_credit_bp),
        degraded_seconds=terms.degraded_seconds,
        notice_seconds=terms.notice_seconds,
        notice_credit_percent=percent(terms.notice_credit_bp),
        availability=tuple(
            AvailabilityCreditView(percent(step.below_bp), percent(step.credit_bp))
            for step in terms.availability
        ),
        replace_before_end=terms.replace_before_end,
        priority=terms.priority,
    )


def percent(basis_points: int) -> str:
    """A share as exact decimal text: `percent(9950) == "99.50"`."""
    return f"{basis_points // 100}.{basis_points % 100:02d}"
