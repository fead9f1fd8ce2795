"""Promises of leases: how they stand, what was given back, and the report of a month."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, indented, table
from control_plane.cli.words import absolute, both, exact, plural, sentence, spaced
from control_plane.wire.common import Money
from control_plane.wire.sla import (
    LeaseSlaView,
    SlaApprovalView,
    SlaBreachView,
    SlaCreditList,
    SlaMonthView,
    SlaReportView,
)

_STYLES = {"kept": "green", "at_risk": "yellow", "broken": "red", "not_promised": "dim"}


def standing_page(name: str, found: LeaseSlaView, now: datetime) -> RenderableType:
    if found.sla_version is None:
        return Text(f"Nothing is promised with {name}.")
    parts: list[RenderableType] = [heading(name, f"{found.sla}, terms {found.sla_version}")]
    rows = [
        (
            spaced(each.promise),
            Text(spaced(each.standing), style=_STYLES.get(each.standing, "")),
            each.promised,
            each.so_far,
        )
        for each in found.promises
    ]
    parts.append(indented(table(("PROMISE", "NOW", "PROMISED", "SO FAR"), rows, whole=("NOW",))))
    if found.months:
        parts += [Text(), heading("Availability"), indented(_months(found.months))]
    if found.breaches:
        parts += [Text(), heading("Breaches", f"{_usd(found.credited)} USD given back")]
        parts += [indented(_breach(breach, now)) for breach in found.breaches]
    parts += [Text(), heading("Counts"), *(indented(Text(f"- {line}")) for line in found.counts)]
    parts += [heading("Does not count"), *(indented(Text(f"- {line}")) for line in found.does_not_count)]
    return Group(*parts)


def _months(months: Sequence[SlaMonthView]) -> RenderableType:
    rows = [
        (
            month.month,
            f"{month.available_percent} %",
            f"{month.down_seconds:,} s",
            f"{month.promised_seconds:,} s",
            _usd(month.charged),
            "yes" if month.settled else "so far",
        )
        for month in months
    ]
    right = ("AVAILABLE", "DOWN", "PROMISED", "CHARGED USD")
    return table(("MONTH", *right, "SETTLED"), rows, right=right)


def _breach(breach: SlaBreachView, now: datetime) -> RenderableType:
    return facts(
        ("Promise", f"{spaced(breach.promise)}, {breach.month}"),
        ("Since", both(breach.since, now)),
        ("Why", sentence(breach.why)),
        ("Evidence", _evidence(breach)),
        ("Credit", _credit(breach)),
        ("Waits", _waits(breach, now)),
        ("Refused", _refused(breach, now)),
    )


def _evidence(breach: SlaBreachView) -> str | None:
    """Each fact with its time and its source in a paragraph of its own."""
    if not breach.evidence:
        return None
    return "\n".join(f"{absolute(fact.at)}, {fact.source}: {sentence(fact.what)}" for fact in breach.evidence)


def _refused(breach: SlaBreachView, now: datetime) -> str | None:
    return None if breach.refused_at is None else f"{both(breach.refused_at, now)}: {breach.refused_why}"


def _waits(breach: SlaBreachView, now: datetime) -> str | None:
    if breach.waiting_since is None:
        return None
    return (
        f"{_usd(breach.waiting)} USD for a decision of our finance, since {both(breach.waiting_since, now)}:"
        " nothing but what we read on the machine shows it"
    )


def _credit(breach: SlaBreachView) -> str:
    if breach.credit is None:
        return "known when the month, or the lease, is over"
    given = f"{_usd(breach.credit)} USD of {_usd(breach.charged)} USD charged"
    return given if breach.credited == breach.credit else f"{given}; {_usd(breach.credited)} USD so far"


def _usd(amount: Money | None) -> str:
    return "-" if amount is None else exact(amount.usd)


def report_page(report: SlaReportView) -> RenderableType:
    parts: list[RenderableType] = [heading(f"Service levels of {report.month}")]
    if report.tiers:
        totals = [
            (
                total.sla,
                str(total.leases),
                str(total.kept),
                str(total.breaches),
                "-" if total.available_percent is None else f"{total.available_percent} %",
                _usd(total.credit),
                _usd(total.credited),
            )
            for total in report.tiers
        ]
        right = ("LEASES", "KEPT", "BROKEN", "AVAILABLE", "CREDIT USD", "CREDITED USD")
        parts += [indented(table(("TIER", *right), totals, right=right)), Text()]
    parts.append(heading("Broken promises"))
    if not report.items:
        return Group(*parts, indented(Text("None." if report.tiers else "None: no lease had promises.")))
    rows = [
        (
            breach.lease_id,
            spaced(breach.promise),
            absolute(breach.since),
            _usd(breach.credit),
            breach.organization_id,
        )
        for breach in report.items
    ]
    columns = ("LEASE", "PROMISE", "SINCE", "CREDIT USD", "ORGANIZATION")
    parts.append(indented(table(columns, rows, right=("CREDIT USD",), varying=("ORGANIZATION",))))
    return Group(*parts)


def waiting_page(found: SlaCreditList, now: datetime) -> RenderableType:
    if not found.items:
        return Text("No credit waits for a decision.")
    parts: list[RenderableType] = []
    for breach in found.items:
        parts += [heading(breach.id, f"{_usd(breach.waiting)} USD"), indented(_breach(breach, now))]
        parts += [
            indented(facts(("Lease", breach.lease_id), ("Organization", breach.organization_id))),
            Text(),
        ]
    return Group(*parts[:-1])


def decision_page(breach: SlaBreachView, *, approved: bool) -> RenderableType:
    if approved:
        return Text(f"Approved: {_usd(breach.waiting)} USD will be posted within seconds.")
    return Text(f"Refused: {_usd(breach.waiting)} USD. The customer reads your reason.")


def approval_page(approved: SlaApprovalView) -> RenderableType:
    return Text(f"Approved: {plural(approved.waiting, 'credit')} that waited will be posted within seconds.")
