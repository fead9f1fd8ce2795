"""What all customers used in a month (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.commands.groupings import grouping
from control_plane.cli.commands.months import add_month, month
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.finance_usage import usage_of_all_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.billing import CustomerUsagePage

GROUPINGS = ("organization", "project", "sku", "day")


def add(finance: Commands) -> None:
    parser = command(
        finance,
        "usage",
        usage,
        "Add up what customers used in a month.",
        more=(
            "--by adds up by organization, project, sku, day, or label:KEY, which is the\n"
            "value that this label of the lease has now. --json has the sums of each customer\n"
            "and its groups."
        ),
        examples="""
        splitplane finance usage --month 2026-10
        splitplane finance usage --by label:team --organization heliotrope
        splitplane finance usage --by day
        """,
    )
    add_month(parser, "instead of the present month: this one")
    parser.add_argument(
        "--by",
        default="organization",
        metavar="WHAT",
        help="organization (default), project, sku, day or label:KEY",
    )
    parser.add_argument("--organization", metavar="ORGANIZATION", help=f"only this one: {ORGANIZATION_HELP}")


def usage(terminal: Terminal, args: Namespace) -> None:
    what, label = grouping(args.by, GROUPINGS)
    client = terminal.client()
    asked = {
        "by": what,
        **label,
        **month(args),
        **({"organization": find(client, args.organization).id} if args.organization else {}),
    }
    with terminal.counting("Adding up what customers used"):
        answer = client.every("/v1/finance/usage", CustomerUsagePage, asked)
    terminal.present(args.json, answer, lambda page: usage_of_all_table(page.items, what))
