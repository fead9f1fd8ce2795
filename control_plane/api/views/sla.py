"""Promises of leases on the wire, in words with units."""

from collections.abc import Sequence

from control_plane.api.views.money import money
from control_plane.api.views.sla_terms import percent
from control_plane.domain.breach_evidence import Fact, facts_of
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.period import month_text
from control_plane.domain.sla import Terms
from control_plane.domain.sla_clock import Clocks, Month, Promise, available_bp
from control_plane.services.sla import Approved, BreachRecord, LeaseSla, SlaReport, TierTotal
from control_plane.wire.sla import (
    LeaseSlaView,
    SlaApprovalView,
    SlaBreachView,
    SlaCreditList,
    SlaDownView,
    SlaFactView,
    SlaMonthView,
    SlaPromiseView,
    SlaReportView,
    SlaTierTotalView,
)

DOWN_SHOWN_MAX = 100
_BROKEN = (
    "Time in which a GPU, its memory, or the fabric between GPUs did not work, after the grace of the tier, as far as"
    " we saw it ourselves: what a machine reports about itself has us look, and counts for nothing."
)
COUNTS = (
    "Time in which its machine had failed, or was being replaced: the seconds that were not billed.",
    _BROKEN,
    "Maintenance, by us or by the provider of its machine, that was announced later than promised.",
)
DOES_NOT_COUNT = (
    "Time before the lease is ready, and after you released it.",
    "Time in which you had the machine stopped, or shut it down.",
    "Time in which an envelope that you set kept the lease from being placed.",
    "Maintenance that was announced in time.",
    "Time in which we could not look at the machine: losing contact is no failure.",
    "Spot capacity and interruptible leases: nothing is promised with them.",
)


def lease_sla_view(found: LeaseSla) -> LeaseSlaView:
    clocks = found.clocks
    return LeaseSlaView(
        lease_id=on_wire(Prefix.LEASE, found.lease.id),
        sla=found.lease.sla.value,
        sla_version=None if found.terms is None else found.lease.sla_version,
        at=found.at,
        promises=() if found.terms is None or clocks is None else _promises(found.terms, clocks),
        months=() if clocks is None else tuple(map(_month, clocks.months)),
        breaches=tuple(map(breach_view, found.breaches)),
        credited=money(Nano(sum(breach.credited_nano for breach in found.breaches))),
        counts=COUNTS,
        does_not_count=DOES_NOT_COUNT,
    )


def _promises(terms: Terms, clocks: Clocks) -> tuple[SlaPromiseView, ...]:
    broken = {breach.promise for breach in clocks.breaches}
    month = clocks.months[-1] if clocks.months else None
    at_risk = (
        month is not None
        and terms.availability_bp is not None
        and (month.promised_seconds - month.down_seconds) * 10_000
        < terms.availability_bp * month.promised_seconds
    )

    def view(promise: Promise, promised: str | None, so_far: str, *, risk: bool = False) -> SlaPromiseView:
        if promised is None:
            return SlaPromiseView(promise.value, "not_promised", "nothing", so_far)
        standing = "broken" if promise in broken else "at_risk" if risk else "kept"
        return SlaPromiseView(promise.value, standing, promised, so_far)

    return (
        view(
            Promise.AVAILABILITY,
            None
            if terms.availability_bp is None
            else f"{percent(terms.availability_bp)} % of a calendar month (UTC)",
            "" if month is None else f"{percent(month.available_bp)} % of {month_text(month.month)} so far",
            risk=at_risk,
        ),
        view(
            Promise.REPLACEMENT,
            _within(terms.replacement_seconds, "a machine that fails is back, or replaced, within"),
            f"the longest failure took {clocks.longest_failure_seconds:,} s",
        ),
        view(
            Promise.READY,
            _within(terms.ready_seconds, "ready after its creation within"),
            f"it took {clocks.ready_seconds:,} s",
        ),
        view(
            Promise.NOTICE,
            _within(terms.notice_seconds, "maintenance is announced at least so long before:"),
            "maintenance with less notice is a breach",
        ),
    )


def _within(seconds: int | None, words: str) -> str | None:
    return None if seconds is None else f"{words} {seconds:,} s"


def _month(month: Month) -> SlaMonthView:
    return SlaMonthView(
        month=month_text(month.month),
        available_percent=percent(month.available_bp),
        promised_seconds=month.promised_seconds,
        down_seconds=month.down_seconds,
        down=tuple(
            SlaDownView(part.since, part.until, part.seconds, part.cause.value)
            for part in month.down[:DOWN_SHOWN_MAX]
        ),
        charged=money(month.charged_nano),
        settled=month.settled,
    )


def breach_view(breach: BreachRecord) -> SlaBreachView:
    return SlaBreachView(
        id=on_wire(Prefix.SLA_BREACH, breach.id),
        organization_id=on_wire(Prefix.ORGANIZATION, breach.organization_id),
        lease_id=on_wire(Prefix.LEASE, breach.lease_id),
        promise=breach.promise.value,
        month=month_text(breach.month),
        sla=breach.sla.value,
        sla_version=breach.sla_version,
        since=breach.since,
        found_at=breach.found_at,
        why=breach.why,
        evidence=tuple(map(_fact, facts_of(breach.promise, breach.evidence))),
        charged=money(breach.charged_nano) if breach.assessed else None,
        credit=money(breach.credit_nano) if breach.assessed else None,
        credited=money(breach.credited_nano or NOTHING),
        credited_at=breach.credited_at,
        waiting=money(breach.waiting_nano),
        waiting_since=breach.waiting_since,
        refused_at=breach.refused_at,
        refused_why=breach.refused_why,
    )


def _fact(fact: Fact) -> SlaFactView:
    return SlaFactView(fact.at, fact.until, fact.what, fact.source.value)


def sla_credit_list(breaches: Sequence[BreachRecord], following: str | None) -> SlaCreditList:
    return SlaCreditList(items=tuple(map(breach_view, breaches)), next_cursor=following)


def sla_report_view(report: SlaReport, following: str | None) -> SlaReportView:
    return SlaReportView(
        month=month_text(report.month),
        tiers=tuple(map(_tier, report.tiers)),
        items=tuple(map(breach_view, report.breaches)),
        next_cursor=following,
    )


def _tier(total: TierTotal) -> SlaTierTotalView:
    available = available_bp(total.promised_seconds, total.down_seconds) if total.promised_seconds else None
    return SlaTierTotalView(
        sla=total.sla.value,
        leases=total.leases,
        kept=total.kept,
        breaches=total.breaches,
        breached_leases=total.breached_leases,
        available_percent=None if available is None else percent(available),
        promised_seconds=total.promised_seconds,
        down_seconds=total.down_seconds,
        credit=money(total.credit_nano),
        credited=money(total.credited_nano),
    )


def sla_approval_view(approved: Approved) -> SlaApprovalView:
    return SlaApprovalView(approved.at, approved.by, approved.reason, approved.waiting)
