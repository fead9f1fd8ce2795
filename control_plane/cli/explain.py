"""`splitplane why`: how a lease came to be where it is, told in order. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli import proofs
from control_plane.cli.layout import facts, heading, indented, table
from control_plane.cli.render import candidates, phase_mark, rejected
from control_plane.cli.wire import Attempt, Explanation, JournalLine, Lease, Placement, Rejected, Report
from control_plane.cli.words import absolute, ago, both, moment, plural, sentence, short_id, spaced, span

JOURNAL_LINES_MAX = 1_000
"""What an explanation carries of the journal; the rest is behind its own address."""

_VERDICTS = {"verified": ("✓", "green"), "mismatch": ("✗", "red")}


def explanation(one: Explanation, now: datetime) -> RenderableType:
    parts = [
        *_headline(one["lease"]),
        *_admission(one["admission"], now),
        *_placements(one["placements"], now),
    ]
    for number, attempt in enumerate(one["attempts"], start=1):
        reports = [report for report in one["reports"] if report["instance_id"] == attempt["instance_id"]]
        proven = [proof for proof in one.get("proofs", []) if proof["instance_id"] == attempt["instance_id"]]
        parts += [Text(), *_attempt(number, attempt, reports, now)]
        parts += [proofs.told(proof, now) for proof in reversed(proven)]
    return Group(*parts, Text(), *_journal(one["journal"], moment(one["lease"]["created_at"])))


def _headline(lease: Lease) -> list[RenderableType]:
    title = Text.assemble(
        (lease["name"], "bold"), "  ", phase_mark(lease["status"]), (f"  {lease['id']}", "dim")
    )
    told = lease["status"]["message"]
    if lease["end_reason"]:
        told += f" It ended because: {sentence(lease['end_why'] or spaced(lease['end_reason']))}"
    return [title, indented(Text(told)), Text()]


def _when(text: str, now: datetime) -> str:
    at = moment(text)
    return f"{absolute(at)}, {ago(at, now)}"


def _admission(line: JournalLine | None, now: datetime) -> list[RenderableType]:
    if line is None:
        return [heading("Admission"), indented(Text("No record of it."))]
    why = f": {sentence(line['why'])}" if line["why"] else "."
    return [heading("Admission", _when(line["at"], now)), indented(Text(f"Admitted{why}"))]


# Placements


def _placements(placements: Sequence[Placement], now: datetime) -> list[RenderableType]:
    """Every decision. One that repeats the one before is told in a line, a reason told before is not told again.

    A lease that waits for capacity is decided on every few seconds, mostly with the same answer.
    """
    parts: list[RenderableType] = []
    told: set[tuple[str, str, str]] = set()
    for _, group in groupby(placements, key=_essence):
        first, *again = group
        parts += [Text(), *_placement(first, told, now)]
        told |= {_reason(one) for one in first["rejected"]}
        if again:
            times = "once more" if len(again) == 1 else f"{len(again)} times more"
            last = f"last as placement {again[-1]['number']}, {absolute(moment(again[-1]['decided_at']))}"
            parts.append(indented(Text(f"Decided so {times}, {last}.", style="dim")))
    return parts


def _essence(placement: Placement) -> tuple[object, ...]:
    """What makes two placements the same decision. Reasons count by their code: their sentences hold ages."""
    return (
        placement["chosen"],
        [one["key"] for one in placement["candidates"]],
        [(one["key"], one["code"]) for one in placement["rejected"]],
    )


def _reason(one: Rejected) -> tuple[str, str, str]:
    return (one["key"], one["code"], one["why"])


def _placement(placement: Placement, told: set[tuple[str, str, str]], now: datetime) -> list[RenderableType]:
    parts: list[RenderableType] = [
        heading(f"Placement {placement['number']}", _when(placement["decided_at"], now)),
        indented(_choice(placement)),
    ]
    if placement["candidates"]:
        parts.append(candidates(placement["candidates"], chosen=placement["chosen"]))
    news = [one for one in placement["rejected"] if _reason(one) not in told]
    as_before = len(placement["rejected"]) - len(news)
    if as_before:
        parts.append(indented(Text(f"Ruled out as above: {plural(as_before, 'offer')}.")))
    if news:
        parts += [indented(Text("Ruled out:")), rejected(news)]
    return parts


def _choice(placement: Placement) -> Text:
    if placement["chosen"] is None:
        return Text("Nothing could serve it.", style="yellow")
    for one in placement["candidates"]:
        if one["key"] == placement["chosen"]:
            where = f"{one['provider']} {one['region']} {one['native_type']}"
            among = plural(len(placement["candidates"]), "candidate")
            return Text.assemble("Chosen: ", (where, "green"), f", the best of {among}.")
    return Text(f"Chosen: {placement['chosen']}.")


# Attempts and what their machines showed


def _attempt(number: int, one: Attempt, reports: Sequence[Report], now: datetime) -> list[RenderableType]:
    where = f"{one['provider']} {one['region']} {one['native_type']}"
    return [
        heading(f"Attempt {number}", where),
        facts(
            ("Machine", one["instance_id"]),
            ("Asked for", both(one["asked_at"], now) or "not yet"),
            ("Last seen", both(one["sighted_at"], now)),
            ("Got to", spaced(one["step"]) if one["step"] else None),
            ("Now", one["state"]),
            ("Failed", _failure(one)),
        ),
        *(_report(report, now) for report in reports),
    ]


def _failure(one: Attempt) -> Text | None:
    if one["fail_reason"] is None:
        return None
    why = f": {sentence(one['fail_why'])}" if one["fail_why"] else "."
    return Text(f"{spaced(one['fail_reason'])}{why}", style="red")


def _report(report: Report, now: datetime) -> RenderableType:
    glyph, style = _VERDICTS.get(report["verdict"], ("•", "yellow"))
    verdict = f"{glyph} GPUs {spaced(report['verdict'])}, {report['source']}"
    parts: list[RenderableType] = [Text.assemble((verdict, style), (f"  {_when(report['at'], now)}", "dim"))]
    if report["why"]:
        parts.append(indented(Text(sentence(report["why"]))))
    if report["gpus"]:
        rows = [
            (str(number), gpu["name"], f"{gpu['memory_mib']:,}", gpu["uuid"])
            for number, gpu in enumerate(report["gpus"])
        ]
        parts.append(indented(table(("GPU", "NAME", "MiB", "UUID"), rows, right=("GPU", "MiB"))))
    return indented(Group(*parts))


# The journal


def _journal(lines: Sequence[JournalLine], created: datetime) -> list[RenderableType]:
    if not lines:
        return [heading("Journal"), indented(Text("Empty."))]
    made = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(no_wrap=True, style="dim", justify="right")
    made.add_column(overflow="fold")
    day = started = f"{moment(lines[0]['at']):%Y-%m-%d}"
    for line in lines:
        at = moment(line["at"])
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            made.add_row(day, "", "")
        made.add_row(f"{at:%H:%M:%S}", f"+{_since(at - created)}", _event(line))
    parts: list[RenderableType] = [
        heading("Journal", f"UTC from {started}, and since the lease was asked for"),
        indented(made),
    ]
    if len(lines) >= JOURNAL_LINES_MAX:
        parts.append(indented(Text(f"These are the first {JOURNAL_LINES_MAX:,} lines.", style="dim")))
    return parts


def _since(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{max(0.0, seconds):.1f} s" if seconds < 60 else span(length)


def _event(line: JournalLine) -> Text:
    """What happened, to what, by whom; the reason below it."""
    subject = "machine" if line["instance_id"] else "lease"
    made = Text.assemble((f"{subject} ", "dim"), (spaced(line["event"]), "bold"))
    before, after = line["state_before"], line["state_after"]
    if after:
        made.append(f"  {before} → {after}" if before and before != after else f"  {after}", style="cyan")
    made.append(f"  ({_actor(line['actor'])})", style="dim")
    if line["why"]:
        made.append(f"\n{sentence(line['why'])}")
    return made


def _actor(actor: str) -> str:
    """A loop's name, or enough of a key's id to find it."""
    return short_id(actor, []) if actor.startswith("key_") else actor.removeprefix("loop:")
