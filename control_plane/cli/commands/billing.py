"""Usage, bill, and the reconciliation of charges with the ledger."""

import re
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from control_plane.cli.commands import organization_lookup
from control_plane.cli.commands.groupings import grouping
from control_plane.cli.commands.months import add_month, month
from control_plane.cli.errors import CliError
from control_plane.cli.errors import usage as wrong_usage
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.billing import bill_page, reconciliation_page, sums_table, usage_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.billing import BillView, ReconciliationView, UsagePage, UsageSumsView

GROUPINGS = ("project", "lease", "sku", "day")
_AGE = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add(to: Commands) -> None:
    parser = command(
        to,
        "usage",
        usage,
        "List billed usage, one row per lease and hour, or add up that of a month.",
        more=(
            "Times are UTC: 2026-11-01, 2026-11-01T12:00:00Z, or an age such as 24h, 7d.\n"
            "--by adds up a month: by project, lease, sku, day, or label:KEY, which is the\n"
            "value that this label of the lease has now."
        ),
        examples="""
        splitplane usage --since 7d
        splitplane usage --by project
        splitplane usage --by label:team --month 2026-10
        splitplane usage --since 2026-11-01 --until 2026-12-01 --csv > november.csv
        splitplane usage --project research
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="only this project: its name or its id")
    parser.add_argument("--since", metavar="TIME", help="default: the start of this month")
    parser.add_argument("--until", metavar="TIME", help="default: now")
    add_month(parser, "instead of --since and --until: this month")
    parser.add_argument("--by", metavar="WHAT", help="add up by project, lease, sku, day or label:KEY")
    parser.add_argument("--csv", action="store_true", help="exact amounts as CSV")
    parser = command(
        to,
        "bill",
        bill,
        "Show this month's bill so far, and the balance, or the bill of another month.",
        more=(
            "Where leases of several projects are on the bill, each project has a subtotal.\n"
            "What was used since the last full hour is shown as not yet billed."
        ),
        examples="""
        splitplane bill
        splitplane bill --month 2026-10
        splitplane bill --project research
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="only this project: its name or its id")
    add_month(parser, "the bill of this month")
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
    if args.by is not None:
        _add_up(terminal, args)
        return
    now = terminal.now()
    since, until = _period(args, now)
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


def _add_up(terminal: Terminal, args: Namespace) -> None:
    if args.since or args.until or args.csv:
        raise wrong_usage("--by adds up a month: use --month instead of --since and --until, and no --csv.")
    what, label = grouping(args.by, GROUPINGS)
    asked = {"by": what, **label, **month(args), **_of_project(args)}
    answer = terminal.client().get("/v1/usage/sums", UsageSumsView, asked)
    terminal.present(args.json, answer, sums_table)


def _period(args: Namespace, now: datetime) -> tuple[datetime, datetime]:
    """The time that is asked for: a month, or from a time to another, by default this month so far."""
    if month(args):
        if args.since or args.until:
            raise wrong_usage("--month cannot be combined with --since and --until.")
        first = datetime.fromisoformat(f"{args.month}-01T00:00:00+00:00")
        return first, (first + timedelta(days=31)).replace(day=1)
    this_month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = parse_time(args.since, now, flag="--since") if args.since else this_month
    return since, parse_time(args.until, now, flag="--until") if args.until else now


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
    answer = terminal.client().get("/v1/bill", BillView, {**month(args), **_of_project(args)})
    terminal.present(args.json, answer, lambda found: bill_page(found, terminal.now()))


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
