"""Usage, bill, and the reconciliation of charges with the ledger."""

import re
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from control_plane.cli.commands import organization_lookup
from control_plane.cli.errors import CliError
from control_plane.cli.errors import usage as wrong_usage
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.billing import bill_page, reconciliation_page, usage_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.billing import BillView, ReconciliationView, UsagePage

_AGE = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add(to: Commands) -> None:
    parser = command(
        to,
        "usage",
        usage,
        "List rated usage, one row per lease and hour.",
        more="Times are UTC: 2026-11-01, 2026-11-01T12:00:00Z, or an age such as 24h, 7d.",
        examples="""
        splitplane usage --since 7d
        splitplane usage --since 2026-11-01 --until 2026-12-01 --csv > november.csv
        splitplane usage --project research
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="only this project: its name or its id")
    parser.add_argument("--since", metavar="TIME", help="default: the start of this month")
    parser.add_argument("--until", metavar="TIME", help="default: now")
    parser.add_argument("--csv", action="store_true", help="exact amounts as CSV")
    parser = command(
        to,
        "bill",
        bill,
        "Show this month's bill so far, and the balance.",
        more="Where leases of several projects are on the bill, each project has a subtotal.",
        examples="""
        splitplane bill
        splitplane bill --project research
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="only this project: its name or its id")
    parser = command(
        to,
        "reconciliation",
        reconciliation,
        "Compare all charges with what was posted to the ledger.",
        more="Both are added up on their own. It exits with 1 when they differ.",
        examples="""
        splitplane reconciliation
        splitplane reconciliation --organization heliotrope
        """,
    )
    parser.add_argument("--organization", metavar="ORGANIZATION", help="of another organization (operators)")


def usage(terminal: Terminal, args: Namespace) -> None:
    if args.csv and args.json:
        raise wrong_usage("--csv and --json cannot be combined.")
    now = terminal.now()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = parse_time(args.since, now, flag="--since") if args.since else month
    until = parse_time(args.until, now, flag="--until") if args.until else now
    if since >= until:
        raise wrong_usage(
            f"--since ({since:%Y-%m-%dT%H:%M:%SZ}) is not before --until ({until:%Y-%m-%dT%H:%M:%SZ})."
        )
    client = terminal.client()
    period = {"since": _on_wire(since), "until": _on_wire(until), **_of_project(args)}
    if args.csv:
        terminal.write(client.text("/v1/usage.csv", period))
        return
    answer = client.every("/v1/usage", UsagePage, period)
    terminal.present(args.json, answer, lambda page: usage_table(page.items, since, until))


def _on_wire(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def parse_time(text: str, now: datetime, *, flag: str) -> datetime:
    """Read a date, an RFC 3339 time, or an age. A time without an offset is UTC."""
    age = _AGE.fullmatch(text)
    if age:
        return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise wrong_usage(
            f"{flag}: {text!r} is not a time; use 2026-11-01, 2026-11-01T12:00:00Z or an age such as 7d."
        ) from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def bill(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/bill", BillView, _of_project(args))
    terminal.present(args.json, answer, bill_page)


def _of_project(args: Namespace) -> dict[str, str]:
    return {} if args.project is None else {"project": args.project}


def reconciliation(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    path = "/v1/reconciliation"
    if args.organization:
        path = f"{organization_lookup.PATH}/{organization_lookup.find(client, args.organization).id}/reconciliation"
    answer = client.get(path, ReconciliationView)
    terminal.present(args.json, answer, reconciliation_page)
    if answer.value.difference.nano:
        raise CliError("Charges and postings differ, which is an error of the API.", code="ledger_difference")
