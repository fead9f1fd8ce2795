"""Show the margins of a month (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, Parser, command
from control_plane.cli.render.margins import margin_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.margins import LINES_MAX, MarginView

PATH = "/v1/finance/margin"
BY = ("provider", "sku", "organization", "lease", "sla")


def add(finance: Commands) -> None:
    parser = command(
        finance,
        "margin",
        margin,
        "Show the charges of a month, what providers bill, and the margin.",
        more=(
            "What a machine costs follows its provider's own rules. Time in which no lease\n"
            "held a machine is unsold; what waited in warm pools belongs to the service level\n"
            "that asked for it. What outlived its machine, such as a volume, is named below.\n"
            "Until a month is over, charges follow machines up to an hour later."
        ),
        examples="""
        splitplane finance margin 2026-10
        splitplane finance margin 2026-10 --by lease --lines 20
        """,
    )
    parser.add_argument("month", metavar="MONTH", help="such as 2026-10")
    parser.add_argument("--by", choices=BY, default=BY[0], help="what each line adds up (default: provider)")
    add_lines(parser, "lines")


def margin(terminal: Terminal, args: Namespace) -> None:
    query = {"month": args.month, "by": args.by, "lines": checked_lines(args)}
    with terminal.counting(f"Adding up the machines of {args.month}"):
        answer = terminal.client().get(PATH, MarginView, query)
    terminal.present(args.json, answer, margin_page)


def add_lines(parser: Parser, what: str) -> None:
    """The option that bounds a report."""
    parser.add_argument(
        "--lines",
        type=int,
        default=100,
        metavar="N",
        help=f"how many {what} to show, {LINES_MAX:,} at most (default: 100)",
    )


def checked_lines(args: Namespace) -> str:
    """The value of that option for a query."""
    if not 1 <= args.lines <= LINES_MAX:
        raise usage(f"--lines: must be from 1 to {LINES_MAX:,}.")
    return str(args.lines)
