"""Preemptions: what interruptible leases yield to others, and whether they do. They need `fleet.read`."""

from argparse import Namespace

from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.preemptions import decisions_pages, preemptions_pages, switch_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.preemptions import (
    PreemptionDecisionPage,
    PreemptionPage,
    PreemptionSwitchRequest,
    PreemptionSwitchView,
)

SWITCH = "/v1/operator/preemption-switch"


def add(to: Commands) -> None:
    preemptions = noun(
        to, "preemption", "See and control how interruptible leases yield to promised ones (operators)."
    )
    parser = command(
        preemptions,
        "list",
        list_preemptions,
        "List leases that yield their machine, and how far that is.",
        examples="""
        splitplane preemption list
        splitplane preemption list --all
        """,
    )
    parser.add_argument("--all", action="store_true", help="include those that are over")
    parser = command(
        preemptions,
        "show",
        show,
        "Show what was decided about a lease in need, and what was looked at.",
        more="Without LEASE, what was decided about all of them. Also what a dry run would do.",
        examples="""
        splitplane preemption show
        splitplane preemption show le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        """,
    )
    parser.add_argument("lease", metavar="LEASE", nargs="?", help="the id of the lease in need")
    command(
        preemptions,
        "status",
        status,
        "Say whether machines are taken back, and who decided that.",
        examples="splitplane preemption status",
    )
    parser = command(
        preemptions,
        "arm",
        arm,
        "Have machines of interruptible leases taken back when promised leases need them.",
        more="See first what would happen: splitplane preemption show.",
        examples='splitplane preemption arm --reason "looked at a week of dry runs"',
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")
    add_yes(parser)
    parser = command(
        preemptions,
        "disarm",
        disarm,
        "Take no machines back any more. What was announced is withdrawn.",
        examples='splitplane preemption disarm --reason "terms are being changed"',
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")


def list_preemptions(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.every("/v1/operator/preemptions", PreemptionPage, {"closed": "true"} if args.all else {})
    terminal.present(args.json, answer, lambda found: preemptions_pages(found.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    only = {} if args.lease is None else {"for_lease_id": args.lease}
    answer = terminal.client().every("/v1/operator/preemption-decisions", PreemptionDecisionPage, only)
    terminal.present(args.json, answer, lambda found: decisions_pages(found.items, terminal.now()))


def status(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(SWITCH, PreemptionSwitchView)
    terminal.present(args.json, answer, lambda switch: switch_page(switch, terminal.now()))


def arm(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, "Take machines of interruptible leases back when promised leases need them?")
    _switch(terminal, args, armed=True)


def disarm(terminal: Terminal, args: Namespace) -> None:
    _switch(terminal, args, armed=False)


def _switch(terminal: Terminal, args: Namespace, *, armed: bool) -> None:
    wanted = PreemptionSwitchRequest(armed=armed, reason=args.reason)
    answer = terminal.client().post(SWITCH, PreemptionSwitchView, wanted)
    terminal.present(args.json, answer, lambda switch: switch_page(switch, terminal.now()))
