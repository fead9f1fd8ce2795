"""When a lease is released by itself: after a time, before it costs more than its customer wants to spend, or with the
term that was committed to, and then only then.

The limits are computed into one moment, `release_at`, when the lease becomes ready, and again whenever its machine is
seen to be stopped or started, or its bill is paused or resumed, which changes what it costs. Between these, the moment
at which an amount is spent is known beforehand. Nothing watches the money, and the bill stops at `release_at` however
late the loop comes that ends the lease.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.money import Nano, dollars_down
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.tariff import Tariff

SECONDS_MAX = 10 * 366 * 24 * 3_600
"""A moment later than ten years after the lease was ready is no limit."""
START_LASTS = timedelta(minutes=15)
"""How long a lease has to last after the start of its machine, for the start to be worth its cost."""


@dataclass(frozen=True, slots=True)
class AutoRelease:
    """The limits that a customer set; None where there is none."""

    after_seconds: int | None = None
    """The time to live, counted from the moment at which the lease is ready."""
    spend_nano: Nano | None = None
    """The most that the lease may cost."""


def release_at(limits: AutoRelease, tariff: Tariff) -> datetime | None:
    """The moment at which a ready lease with this tariff is released; None when no limit applies.

    One that was committed to for a term ends with it.
    """
    moments = [_lived(limits, tariff.ready_at), _spent(limits, tariff), tariff.committed_until]
    return min((moment for moment in moments if moment is not None), default=None)


def is_later(limits: AutoRelease, before: AutoRelease) -> bool:
    """Whether a lease can live longer, or cost more, under these limits than it could under those before."""
    pairs = ((limits.after_seconds, before.after_seconds), (limits.spend_nano, before.spend_nano))
    return any(old is not None and (new is None or new > old) for new, old in pairs)


def refuses_start(limits: AutoRelease, tariff: Tariff, now: datetime) -> Refused | None:
    """Why a stopped machine is not started: its lease, and its disk with it, would end right after the start, because
    it costs more then. None when it may be started.
    """
    started = replace(tariff, switched_at=(*tariff.switched_at, now))
    before, after = release_at(limits, tariff), release_at(limits, started)
    if after is None or after >= now + START_LASTS or (before is not None and before <= after):
        return None
    minutes = max(1, -(-int((after - now).total_seconds()) // 60))
    why = f"Started now, the lease would reach its cost limit and end within {minutes} min; raise that limit first."
    return Refused(RefusalCode.RELEASE_TIME_PASSED, why)


def why(limits: AutoRelease, tariff: Tariff, at: datetime) -> str:
    """The reason for a release at `at`, as a sentence for the customer."""
    if at == tariff.committed_until:
        return f"its term of {tariff.committed_days:,} days is over"
    if limits.after_seconds is not None and at == _lived(limits, tariff.ready_at):
        return f"released by itself {limits.after_seconds:,} seconds after it was ready, as it was asked to"
    spend = Nano(0) if limits.spend_nano is None else limits.spend_nano
    return f"released by itself before its cost would exceed {dollars_down(spend)} USD, as it was asked to"


def _lived(limits: AutoRelease, ready_at: datetime) -> datetime | None:
    if limits.after_seconds is None:
        return None
    return ready_at + timedelta(seconds=min(limits.after_seconds, SECONDS_MAX))


def _spent(limits: AutoRelease, tariff: Tariff) -> datetime | None:
    """The end of the last whole second that the amount pays for."""
    moment = None if limits.spend_nano is None else tariff.funded_until(limits.spend_nano)
    return None if moment is None or moment > tariff.ready_at + timedelta(seconds=SECONDS_MAX) else moment
