"""Repairs of machines, and machines that operators take out. They need `fleet.read` and `machines.maintain`."""

from argparse import Namespace
from datetime import datetime

from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.repairs import maintenance_page, repairs_pages, ticket_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.repairs import MaintenanceRequest, MaintenanceView, RepairDetailView, RepairPage

MACHINE_HELP = 'the id of a machine, as "splitplane fleet list --json" shows it'


def add(to: Commands) -> None:
    repairs = noun(to, "repair", "See machines that are not healthy, and take machines out (operators).")
    parser = command(
        repairs,
        "list",
        list_repairs,
        "List machines that are not healthy, and what is done about each.",
        examples="""
        splitplane repair list
        splitplane repair list --all --machine mc_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        """,
    )
    parser.add_argument("--all", action="store_true", help="include those that are closed")
    parser.add_argument("--machine", metavar="MACHINE", help=f"only those of one machine: {MACHINE_HELP}")
    parser = command(
        repairs,
        "show",
        show,
        "Print a text about a repair for the provider of the machine.",
        more=(
            "It can be sent as it is: the machine as its provider knows it, what was found\n"
            "and by whom, and what we did, with the times in UTC. It names no customer.\n"
            "--json has the evidence as data as well."
        ),
        examples="""
        splitplane repair show rp_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane repair show rp_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 > ticket.txt
        """,
    )
    parser.add_argument(
        "repair", metavar="REPAIR", help='the id of a repair, as "splitplane repair list" shows it'
    )
    parser = command(
        repairs,
        "take-out",
        take_out,
        "Take a machine out for maintenance.",
        more=(
            "Its customer is told, and gets another machine as the lease's tier promises.\n"
            "If it waits in a pool, no lease is given it until it is returned. To change\n"
            "the reason or the time, return it first, and take it out again."
        ),
        examples="""
        splitplane repair take-out mc_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason "fan"
        """,
    )
    parser.add_argument("machine", metavar="MACHINE", help=MACHINE_HELP)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why; its customer reads it")
    parser.add_argument(
        "--planned-at",
        metavar="TIME",
        help="when the work begins, such as 2026-12-01T06:00:00+00:00 (default: now)",
    )
    add_yes(parser)
    parser = command(
        repairs,
        "return",
        give_back,
        "End the maintenance of a machine.",
        examples="splitplane repair return mc_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    )
    parser.add_argument("machine", metavar="MACHINE", help=MACHINE_HELP)


def list_repairs(terminal: Terminal, args: Namespace) -> None:
    query = {"closed": "true"} if args.all else {}
    if args.machine is not None:
        query["machine"] = args.machine
    answer = terminal.client().every("/v1/operator/repairs", RepairPage, query)
    none = "No repairs: every machine that serves somebody is healthy as far as we know."
    if args.machine is not None:
        none = f"No repairs of {args.machine}{'' if args.all else ' are open'}."
    terminal.present(args.json, answer, lambda found: repairs_pages(found.items, terminal.now(), none=none))


def show(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(f"/v1/operator/repairs/{args.repair}", RepairDetailView)
    terminal.present(args.json, answer, ticket_page)


def take_out(terminal: Terminal, args: Namespace) -> None:
    planned_at = None if args.planned_at is None else _moment(args.planned_at)
    if planned_at is not None and planned_at <= terminal.now():
        raise usage(f"{args.planned_at} is over: leave --planned-at out for work that begins now.")
    confirm(terminal, args, f"Take {args.machine} out? Its customer is told, and may lose it.")
    wanted = MaintenanceRequest(why=args.reason, planned_at=planned_at)
    answer = terminal.client().post(
        f"/v1/operator/machines/{args.machine}/maintenance", MaintenanceView, wanted
    )
    terminal.present(args.json, answer, lambda out: maintenance_page(out, terminal.now()))


def give_back(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(f"/v1/operator/machines/{args.machine}/return", MaintenanceView)
    terminal.present(args.json, answer, lambda out: maintenance_page(out, terminal.now()))


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"{text!r} is not a time such as 2026-12-01T06:00:00+00:00") from None
    if at.tzinfo is None:
        raise usage(f"{text!r} has no offset from UTC: write {text}+00:00 for UTC")
    if not 2000 <= at.year <= 2200:
        raise usage(f"{text!r} is not in the years 2000 to 2200")
    return at
