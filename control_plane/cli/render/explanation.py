"""`splitplane why` on the screen: how a lease came to be where it is, in order."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.admissions import rule_table
from control_plane.cli.render.catalogue import candidate_table, rejected_lines
from control_plane.cli.render.journal import journal_lines
from control_plane.cli.render.layout import facts, heading, indented, table
from control_plane.cli.render.leases import state_mark
from control_plane.cli.render.proofs import proof_lines
from control_plane.cli.words import absolute, ago, both, plural, sentence, spaced
from control_plane.wire.admissions import DecisionView
from control_plane.wire.catalogue import RejectedView
from control_plane.wire.explanations import (
    AttemptView,
    ExplanationView,
    PlacementView,
    PooledView,
    ReportView,
)
from control_plane.wire.journal import JournalLine
from control_plane.wire.leases import LeaseView

JOURNAL_LINES_MAX = 1_000
"""How many lines of the journal an explanation has; the API has the rest at /journal."""

_VERDICTS = {"verified": ("✓", "green"), "mismatch": ("✗", "red")}


def explanation_page(explanation: ExplanationView, now: datetime, *, verbose: bool = False) -> RenderableType:
    lease = explanation.lease
    parts = [
        *_headline(lease),
        *_admission(explanation.admission, now),
        *_decisions(explanation.decisions, now),
        *_placements(explanation.placements, now, verbose=verbose),
    ]
    for attempt in explanation.attempts:
        reports = [report for report in explanation.reports if report.machine_id == attempt.machine_id]
        proofs = [proof for proof in explanation.proofs if proof.machine_id == attempt.machine_id]
        parts += [Text(), *_attempt(attempt, reports, now)]
        parts += [proof_lines(proof, now) for proof in reversed(proofs)]
    return Group(
        *parts, Text(), *journal_lines(explanation.journal, lease.created_at, first=JOURNAL_LINES_MAX)
    )


def _headline(lease: LeaseView) -> list[RenderableType]:
    title = Text.assemble((lease.name, "bold"), "  ", state_mark(lease), (f"  {lease.id}", "dim"))
    message = lease.status.message
    if lease.end_reason:
        message += f" It ended because: {sentence(lease.end_why or spaced(lease.end_reason))}"
    return [title, indented(Text(message)), Text()]


def _decisions(decisions: Sequence[DecisionView], now: datetime) -> list[RenderableType]:
    """What the rules said, the oldest decision first."""
    parts: list[RenderableType] = []
    for decision in reversed(decisions):
        parts.append(heading(f"Decision on {spaced(decision.action)}", _when(decision.decided_at, now)))
        parts.append(indented(rule_table(decision.rules)))
        if decision.why:
            parts.append(indented(Text(sentence(decision.why))))
    return parts


def _when(at: datetime, now: datetime) -> str:
    return f"{absolute(at)}, {ago(at, now)}"


def _admission(line: JournalLine | None, now: datetime) -> list[RenderableType]:
    if line is None:
        return [heading("Admission"), indented(Text("There is no record of it."))]
    why = f": {sentence(line.why)}" if line.why else "."
    return [heading("Admission", _when(line.at, now)), indented(Text(f"Admitted{why}"))]


# Placements


def _placements(placements: Sequence[PlacementView], now: datetime, *, verbose: bool) -> list[RenderableType]:
    """Every decision. Equal decisions in a row are one entry, and a reason that was shown is not shown again.

    While a lease waits for capacity it is decided on every few seconds, mostly with the same result.
    """
    parts: list[RenderableType] = []
    shown: set[tuple[str, str, str]] = set()
    for _, group in groupby(placements, key=_essence):
        first, *again = group
        parts += [Text(), *_placement(first, shown, now, verbose=verbose)]
        shown |= {_reason(rejected) for rejected in first.rejected}
        if again:
            times = "once more" if len(again) == 1 else f"{len(again)} times more"
            last = f"last as placement {again[-1].number}, {absolute(again[-1].decided_at)}"
            parts.append(indented(Text(f"The same decision {times}, {last}.", style="dim")))
    return parts


def _essence(placement: PlacementView) -> tuple[object, ...]:
    """What makes two placements the same decision. Reasons are compared by code, because sentences contain ages."""
    return (
        placement.chosen,
        [candidate.key for candidate in placement.candidates],
        [(rejected.key, rejected.code) for rejected in placement.rejected],
    )


def _reason(rejected: RejectedView) -> tuple[str, str, str]:
    return (rejected.key, rejected.code, rejected.why)


def _placement(
    placement: PlacementView, shown: set[tuple[str, str, str]], now: datetime, *, verbose: bool
) -> list[RenderableType]:
    parts: list[RenderableType] = [
        heading(f"Placement {placement.number}", _when(placement.decided_at, now)),
        indented(_choice(placement)),
    ]
    if placement.pooled is not None:
        parts += [indented(line) for line in _pooled(placement.pooled)]
    if placement.candidates:
        parts.append(candidate_table(placement.candidates, chosen=placement.chosen))
    news = [rejected for rejected in placement.rejected if _reason(rejected) not in shown]
    before = [rejected for rejected in placement.rejected if _reason(rejected) in shown]
    as_before = sum(1 + rejected.more for rejected in before)
    if as_before:
        parts.append(indented(Text(f"Rejected as above: {plural(as_before, 'offer')}.")))
    if news:
        parts += [indented(Text("Rejected:")), rejected_lines(news, verbose=verbose)]
    return parts


def _pooled(pooled: PooledView) -> list[Text]:
    """The machines of pools that were not claimed."""
    if not pooled.unfit_count:
        return []
    lines = [Text(f"Not claimed: {plural(pooled.unfit_count, 'machine')} of warm pools.")]
    for each in pooled.unfit:
        pool = f" of {each.pool}" if each.pool else ""
        lines.append(Text(f"  {each.machine_id}{pool}: {spaced(each.code)}. {each.why}", style="dim"))
    return lines


def _choice(placement: PlacementView) -> Text:
    pooled = placement.pooled
    if pooled is not None and pooled.machine_id is not None:
        kept = "reserved for it" if pooled.reserved else "of a warm pool"
        where = f" ({pooled.pool})" if pooled.pool else ""
        among = "" if pooled.reserved else f", one of {plural(pooled.fit_count, 'machine')} that fitted"
        return Text.assemble("Claimed: ", (pooled.machine_id, "green"), f", {kept}{where}{among}.")
    if placement.chosen is None:
        return Text("No offer could serve it.", style="yellow")
    for candidate in placement.candidates:
        if candidate.key == placement.chosen:
            where = f"{candidate.provider} {candidate.region} {candidate.native_type}"
            among = plural(len(placement.candidates) + placement.more_candidates, "candidate")
            return Text.assemble("Chosen: ", (where, "green"), f", the best of {among}.")
    return Text(f"Chosen: {placement.chosen}.")


# Attempts and what their machines showed


def _attempt(attempt: AttemptView, reports: Sequence[ReportView], now: datetime) -> list[RenderableType]:
    where = f"{attempt.provider} {attempt.region} {attempt.native_type}"
    not_ordered = "never" if attempt.outcome else "not yet"
    return [
        heading(f"Attempt {attempt.number}", where),
        facts(
            ("Machine", f"{attempt.machine_id}, {attempt.state}"),
            ("Started", both(attempt.started_at, now)),
            ("Ordered", both(attempt.asked_at, now) or not_ordered),
            ("Last seen", both(attempt.sighted_at, now)),
            ("Last step", spaced(attempt.step) if attempt.step else None),
            *_outcome(attempt, now),
        ),
        *(_report(report, now) for report in reports),
    ]


def _outcome(attempt: AttemptView, now: datetime) -> list[tuple[str, str | Text | None]]:
    """When the attempt came to its outcome, and why it failed. A machine can also be lost after it was admitted."""
    failure = _failure(attempt)
    match attempt.outcome:
        case None:
            return [("Outcome", "none yet; the attempt is under way"), ("Failure", failure)]
        case "admitted":
            return [("Admitted", both(attempt.ended_at, now)), ("Lost later", failure)]
        case outcome:
            return [(spaced(outcome).capitalize(), both(attempt.ended_at, now)), ("Reason", failure)]


def _failure(attempt: AttemptView) -> Text | None:
    if attempt.fail_reason is None:
        return None
    why = f": {sentence(attempt.fail_why)}" if attempt.fail_why else "."
    words = f" The provider said: {sentence(attempt.provider_words)}" if attempt.provider_words else ""
    return Text(f"{spaced(attempt.fail_reason)}{why}{words}", style="red")


def _report(report: ReportView, now: datetime) -> RenderableType:
    glyph, style = _VERDICTS.get(report.verdict, ("•", "yellow"))
    verdict = f"{glyph} GPUs {spaced(report.verdict)}, {report.source}"
    parts: list[RenderableType] = [Text.assemble((verdict, style), (f"  {_when(report.at, now)}", "dim"))]
    if report.why:
        parts.append(indented(Text(sentence(report.why))))
    if report.gpus:
        rows = [
            (str(number), gpu.name, f"{gpu.memory_mib:,}", gpu.uuid) for number, gpu in enumerate(report.gpus)
        ]
        parts.append(indented(table(("GPU", "NAME", "MiB", "UUID"), rows, right=("GPU", "MiB"))))
    return indented(Group(*parts))
