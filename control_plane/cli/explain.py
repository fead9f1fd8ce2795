"""`splitplane why`: how a lease came to be where it is, told in order. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render import candidates, facts, heading, indented, phase_mark, rejected, table
from control_plane.cli.wire import Attempt, Explanation, JournalLine, Lease, Placement, Report
from control_plane.cli.words import absolute, ago, both, moment, plural, sentence, spaced, span

JOURNAL_LINES_MAX = 1_000
"""What an explanation carries of the journal; the rest is behind its own address."""

_VERDICTS = {"verified": ("✓", "green"), "mismatch": ("✗", "red")}


def explanation(one: Explanation, now: datetime) -> RenderableType:
    parts: list[RenderableType] = [*_headline(one["lease"]), *_admission(one["admission"], now)]
    same = _repeats(one["placements"])
    for placement in one["placements"]:
        parts += [Text(), *_placement(placement, now, same_as=same.get(placement["number"]))]
    for number, attempt in enumerate(one["attempts"], start=1):
        reports = [report for report in one["reports"] if report["instance_id"] == attempt["instance_id"]]
        parts += [Text(), *_attempt(number, attempt, reports, now)]
    parts += [Text(), *_journal(one["journal"], moment(one["lease"]["created_at"]) or now)]
    return Group(*parts)


def _headline(lease: Lease) -> list[RenderableType]:
    title = Text.assemble((lease["name"], "bold"), "  ", phase_mark(lease["status"], steps=True))
    parts: list[RenderableType] = [
        title.append(f"  {lease['id']}", style="dim"),
        Text(lease["status"]["message"]),
    ]
    if lease["end_reason"]:
        parts.append(Text(f"Why it ended: {sentence(lease['end_why'] or spaced(lease['end_reason']))}"))
    return [*parts, Text()]


def _when(at: datetime | None, now: datetime) -> str:
    return f"{absolute(at)}, {ago(at, now)}" if at else ""


def _admission(line: JournalLine | None, now: datetime) -> list[RenderableType]:
    if line is None:
        return [heading("Admission"), indented(Text("No record of it."))]
    words = sentence(line["why"] or "admitted")
    return [heading("Admission", _when(moment(line["at"]), now)), indented(Text(f"Admitted. {words}"))]


def _repeats(placements: Sequence[Placement]) -> dict[int, int]:
    """Placements that only repeat the one before: the same choice, candidates and reasons to the letter."""
    same: dict[int, int] = {}
    first: Placement | None = None
    for placement in placements:
        if first is not None and _essence(placement) == _essence(first):
            same[placement["number"]] = first["number"]
        else:
            first = placement
    return same


def _essence(placement: Placement) -> tuple[object, ...]:
    return (placement["chosen"], placement["candidates"], placement["rejected"])


def _placement(placement: Placement, now: datetime, *, same_as: int | None) -> list[RenderableType]:
    title = heading(f"Placement {placement['number']}", _when(moment(placement["decided_at"]), now))
    if same_as is not None:
        return [title, indented(Text(f"As placement {same_as}."))]
    parts: list[RenderableType] = [title]
    chosen = next((one for one in placement["candidates"] if one["key"] == placement["chosen"]), None)
    if chosen is not None:
        where = f"{chosen['provider']} {chosen['region']} {chosen['native_type']}"
        among = plural(len(placement["candidates"]), "candidate")
        parts.append(
            indented(Text("Chosen: ").append(where, style="green").append(f", the best of {among}."))
        )
    elif placement["chosen"] is not None:
        parts.append(indented(Text(f"Chosen: {placement['chosen']}.")))
    else:
        parts.append(indented(Text("Nothing could serve it.", style="yellow")))
    if placement["candidates"]:
        parts.append(candidates(placement["candidates"], chosen=placement["chosen"]))
    if placement["rejected"]:
        parts += [indented(Text("Ruled out:")), rejected(placement["rejected"])]
    return parts


def _attempt(number: int, one: Attempt, reports: Sequence[Report], now: datetime) -> list[RenderableType]:
    parts: list[RenderableType] = [
        heading(f"Attempt {number}", f"{one['provider']} {one['region']} {one['native_type']}"),
        facts(
            ("Machine", one["instance_id"]),
            (
                "Asked",
                both(moment(one["asked_at"]), now) if one["asked_at"] else "the provider was not asked",
            ),
            ("Last seen", both(moment(one["sighted_at"]), now) if one["sighted_at"] else None),
            ("Got to", spaced(one["step"]) if one["step"] else None),
            ("Now", one["state"]),
            ("Failed", _failure(one)),
        ),
    ]
    return [*parts, *(_report(report, now) for report in reports)]


def _failure(one: Attempt) -> Text | None:
    if one["fail_reason"] is None:
        return None
    why = f": {sentence(one['fail_why'])}" if one["fail_why"] else "."
    return Text(f"{spaced(one['fail_reason'])}{why}", style="red")


def _report(report: Report, now: datetime) -> RenderableType:
    glyph, style = _VERDICTS.get(report["verdict"], ("•", "yellow"))
    source = (
        " (emulated, not proof of hardware)"
        if report["source"] == "emulated"
        else f" (by {report['source']})"
    )
    title = Text(f"{glyph} GPUs {spaced(report['verdict'])}{source}", style=style)
    title.append(f"  {_when(moment(report['at']), now)}", style="dim")
    parts: list[RenderableType] = [title]
    if report["why"]:
        parts.append(indented(Text(sentence(report["why"]))))
    if report["gpus"]:
        made = table("GPU", "NAME", "MEMORY", "UUID", right=("GPU", "MEMORY"), wrap=("NAME",))
        for number, gpu in enumerate(report["gpus"]):
            made.add_row(str(number), Text(gpu["name"]), f"{gpu['memory_mib']:,} MiB", gpu["uuid"])
        parts.append(indented(made))
    return indented(Group(*parts))


def _journal(lines: Sequence[JournalLine], created: datetime) -> list[RenderableType]:
    if not lines:
        return [heading("Journal"), indented(Text("Empty."))]
    made = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(no_wrap=True, style="dim", justify="right")
    made.add_column(overflow="fold")
    day = ""
    for line in lines:
        at = moment(line["at"]) or created
        if day and f"{at:%F}" != day:
            made.add_row(f"{at:%F}", "", "")
        day = f"{at:%F}"
        made.add_row(f"{at:%H:%M:%S}", f"+{_since(at - created)}", _event(line))
    started = moment(lines[0]["at"]) or created
    parts: list[RenderableType] = [
        heading("Journal", f"UTC, from {started:%F}, and since the request"),
        indented(made),
    ]
    if len(lines) >= JOURNAL_LINES_MAX:
        parts.append(indented(Text(f"The first {JOURNAL_LINES_MAX:,} lines.", style="dim")))
    return parts


def _since(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else span(length)


def _event(line: JournalLine) -> RenderableType:
    """What happened, to what, by whom; the reason below it."""
    subject = "machine" if line["instance_id"] else "lease"
    made = Text.assemble((f"{subject} ", "dim"), (spaced(line["event"]), "bold"))
    before, after = line["state_before"], line["state_after"]
    if after:
        made.append(f"  {before} → {after}" if before and before != after else f"  {after}", style="cyan")
    made.append(f"  by {line['actor']}", style="dim")
    if line["why"]:
        made.append(f"\n{sentence(line['why'])}")
    return made
