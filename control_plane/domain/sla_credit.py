"""When credits for broken promises are posted: by themselves, unless they are suspiciously many."""

from datetime import datetime, timedelta

from control_plane.domain.sla_clock import SETTLES_AFTER, Month

LOOK_AGAIN_AFTER = timedelta(minutes=10)
"""The time between two judgements of a lease whose figures may still change."""
LATE_EVIDENCE_EVERY = timedelta(days=1)
LATE_EVIDENCE_FOR = timedelta(days=40)
"""How long after its end a lease is judged again, because evidence may be late."""
ALWAYS_POSTED = 10
"""So many credits may wait at a time without being suspicious."""
SHARE_MAX = 5
"""More of them are, when they are more than one in so many leases with promises."""


def next_judgement(months: tuple[Month, ...], ended_at: datetime | None, now: datetime) -> datetime | None:
    """When a lease is judged again; None when nothing can change any more."""
    if ended_at is None:
        return now + LOOK_AGAIN_AFTER
    if not all(month.settled for month in months):
        return now + SETTLES_AFTER
    return now + LATE_EVIDENCE_EVERY if now - ended_at < LATE_EVIDENCE_FOR else None


def held_back(*, waiting: int, leases: int) -> str | None:
    """Why no credit is posted now; None when they are.

    Of `leases` leases with promises, `waiting` breaches are to be credited that no operator has approved. A fault of
    ours, such as a wrong clock or a gap in the evidence, looks like a flood of breaches.
    """
    allowed = max(ALWAYS_POSTED, leases // SHARE_MAX)
    if waiting <= allowed:
        return None
    return (
        f"{waiting:,} credits wait, for {leases:,} leases with promises; more than {allowed:,} at a time need an"
        " operator's approval: splitplane sla approve"
    )
