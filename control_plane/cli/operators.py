"""What operators read, as tables: loops, orphans, provider accounts. Pure, like `render`."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.layout import Cell, facts, heading, indented, pairs, table
from control_plane.cli.wire import Account, Loop, Orphan, Permit
from control_plane.cli.words import absolute, ago, both, coarse, moment, plural


def loops(items: Sequence[Loop]) -> RenderableType:
    if not items:
        return Text("No loop has reported yet; is the reconciler running?", style="yellow")
    columns = ("LOOP", "ACCOUNT", "STATE", "LAST", "LOOKED", "ACTED")
    rows = [
        (
            loop["loop"],
            loop["account"] or "-",
            _loop_state(loop),
            f"{_seconds(loop['age_seconds'])} ago",
            f"{loop['looked_at']:,}",
            f"{loop['acted_on']:,}",
        )
        for loop in items
    ]
    parts: list[RenderableType] = [table(columns, rows, right=columns[3:])]
    for loop in items:
        if loop["late"] or loop["errors"] or loop["notes"]:
            parts += [Text(), *_loop_words(loop)]
    return Group(*parts)


def _seconds(seconds: int) -> str:
    return coarse(timedelta(seconds=seconds))


def _loop_state(loop: Loop) -> Text:
    if loop["late"]:
        return Text("▲ stuck", style="bold red")
    if loop["errors"]:
        return Text("✗ " + plural(len(loop["errors"]), "error"), style="red")
    return Text("● ok", style="green")


def _loop_words(loop: Loop) -> list[RenderableType]:
    where = " ".join(word for word in (loop["account"], f"on {loop['replica']}") if word)
    lines: list[tuple[Cell, RenderableType]] = []
    if loop["late"]:
        allowed = _seconds(loop["late_after_seconds"])
        silent = f"silent for {_seconds(loop['age_seconds'])}; it should report within {allowed}"
        lines.append((Text("▲", style="red"), Text(silent, style="red")))
    lines += [(Text("✗", style="red"), Text(error, style="red")) for error in loop["errors"]]
    lines += [(" ", Text(note, style="dim")) for note in loop["notes"]]
    return [heading(loop["loop"], where), indented(pairs(lines))]


def orphans(items: Sequence[Orphan], now: datetime) -> RenderableType:
    if not items:
        return Text(
            "No orphans: every machine with one of our launch keys belongs to an open record.", style="green"
        )
    parts: list[RenderableType] = []
    for orphan in items:
        lists = plural(orphan["lists_seen"], "list")
        parts += [
            heading(f"{orphan['account']} {orphan['provider_ref']}", orphan["native_status"]),
            facts(
                ("Launch key", orphan["launch_key"]),
                ("First seen", both(orphan["first_seen_at"], now)),
                ("Last seen", f"{both(orphan['last_seen_at'], now)}, in {lists}"),
                ("Told to end", both(orphan["terminate_asked_at"], now) or "not yet"),
                ("Note", orphan["note"]),
            ),
            Text(),
        ]
    return Group(*parts[:-1])


def accounts(items: Sequence[Account], now: datetime) -> RenderableType:
    if not items:
        return Text(
            "No provider accounts are registered; the reconciler registers those it is configured with."
        )
    columns = ("ACCOUNT", "PROVIDER", "STATE", "MACHINES", "LISTED")
    rows = [
        (
            Text(account["name"], style="bold"),
            account["provider"],
            _account_state(account),
            f"{account['listing_size']:,}" if account["listing_asked_at"] else "-",
            ago(moment(account["listing_asked_at"]), now) if account["listing_asked_at"] else "never",
        )
        for account in items
    ]
    parts: list[RenderableType] = [table(columns, rows, right=columns[3:])]
    for account in items:
        for word, style, since, why in (
            ("frozen", "yellow", account["frozen_since"], account["frozen_why"]),
            ("failing", "red", account["failing_since"], account["failing_why"]),
        ):
            if since is not None:
                parts += [Text(), heading(account["name"], f"{word} since {both(since, now)}")]
                parts.append(indented(Text(why or "", style=style)))
        if account["ending_permit"] is not None:
            parts += [Text(), permit(account["ending_permit"])]
    return Group(*parts)


def permit(one: Permit) -> RenderableType:
    return Group(
        heading(one["account"], f"endings permitted until {absolute(moment(one['until']))}"),
        indented(Text(f"{one['why']} ({one['actor']})")),
    )


def _account_state(account: Account) -> Text:
    if account["failing_since"] is not None:
        return Text("✗ failing", style="red")
    if account["frozen_since"] is not None:
        return Text("▲ frozen", style="yellow")
    return Text("● ok", style="green")
