"""The fleet: every machine that may exist. Its commands need the permission `fleet.read`."""

from argparse import Namespace
from typing import Any

from control_plane.cli.commands.organization_lookup import find
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, Parser, command, noun
from control_plane.cli.render.fleet import fleet_csv, fleet_table, totals_csv, totals_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.fleet import FleetMachinePage, FleetTotals

PATH = "/v1/operator/fleet"
VERDICTS = ("healthy", "degraded", "maintenance_required", "quarantined", "lost")
STATES = ("launching", "booting", "bootstrapping", "verified", "terminating")


def add(to: Commands) -> None:
    fleet = noun(to, "fleet", "See every machine of all customers, and count them (operators).")
    parser = command(
        fleet,
        "list",
        list_machines,
        "List every machine that may exist, with whoever holds it, newest first.",
        more=(
            "HEALTH is the verdict about a verified machine, and the state of any other.\n"
            "Beside it, `stopped` means that its customer stopped it, and `silent` that its\n"
            "agent does not report, which is no fault. For reasons: splitplane repair list."
        ),
        examples="""
        splitplane fleet list --provider lambda_cloud --verdict lost
        splitplane fleet list --csv > fleet.csv
        """,
    )
    _add_filters(parser)
    parser.add_argument("--csv", action="store_true", help="CSV with all columns")
    parser = command(
        fleet,
        "totals",
        totals,
        "Count machines and their GPUs by provider and GPU model.",
        more=(
            "delivered: they run and have an address. healthy: verified, with that verdict,\n"
            "and not silent unless their customer stopped them. reserved: a lease holds them.\n"
            "active: that lease is ready, and so billed."
        ),
        examples="""
        splitplane fleet totals --region eu
        splitplane fleet totals --csv > totals.csv
        """,
    )
    _add_filters(parser)
    parser.add_argument("--csv", action="store_true", help="CSV, a line for each provider and GPU model")


def _add_filters(parser: Parser) -> None:
    parser.add_argument("--provider", metavar="PROVIDER", help="only at this provider")
    parser.add_argument("--account", metavar="ACCOUNT", help="only of this provider account")
    parser.add_argument("--region", metavar="REGION", help="only in a jurisdiction such as eu, or a region")
    parser.add_argument(
        "--gpu-model", metavar="MODEL", help='only with these GPUs, as "splitplane skus" names them'
    )
    parser.add_argument("--verdict", choices=VERDICTS, metavar="VERDICT", help="only with this verdict")
    parser.add_argument("--silent", action="store_true", help="only those whose agents do not report")
    parser.add_argument("--state", choices=STATES, metavar="STATE", help="only in this state")
    parser.add_argument(
        "--organization", metavar="ORGANIZATION", help="only those that its leases hold: its name or its id"
    )
    parser.add_argument("--project", metavar="PROJECT", help="only those that its leases hold: its id")


def _filters(terminal: Terminal, args: Namespace) -> dict[str, Any]:
    words = ("provider", "account", "region", "gpu_model", "verdict", "silent", "state", "project")
    chosen = {word: getattr(args, word) for word in words if getattr(args, word)}
    if args.organization:
        chosen["organization"] = find(terminal.client(), args.organization).id
    return chosen


def list_machines(terminal: Terminal, args: Namespace) -> None:
    if args.csv and args.json:
        raise usage("--csv and --json cannot be combined.")
    answer = terminal.client().every(f"{PATH}/machines", FleetMachinePage, _filters(terminal, args))
    if args.csv:
        terminal.write(fleet_csv(answer.value.items))
        return
    terminal.present(args.json, answer, lambda page: fleet_table(page.items, terminal.now()))


def totals(terminal: Terminal, args: Namespace) -> None:
    if args.csv and args.json:
        raise usage("--csv and --json cannot be combined.")
    answer = terminal.client().get(PATH, FleetTotals, _filters(terminal, args))
    if args.csv:
        terminal.write(totals_csv(answer.value))
        return
    terminal.present(args.json, answer, totals_table)
