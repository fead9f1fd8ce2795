"""Enforcement, for operators. It needs `fleet.read` and `enforcement.manage`."""

from argparse import Namespace

from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command, noun, seconds
from control_plane.cli.render.enforcement import (
    action_page,
    actions_pages,
    detector_page,
    detectors_table,
    idle_stop_line,
    lease_pages,
)
from control_plane.cli.terminal import Terminal
from control_plane.wire.enforcement import (
    DetectorList,
    DetectorRequest,
    DetectorView,
    EnforcementPage,
    EnforcementView,
    IdleStopRequest,
    IdleStopView,
    LeaseEnforcementPage,
    UndoRequest,
)

PATH = "/v1/operator/enforcement"
DETECTORS_PATH = "/v1/operator/detectors"
ACTION_HELP = 'the id of an action, as "splitplane enforcement list" shows it'
DETECTOR_HELP = "a detector, as `splitplane enforcement detectors` lists them"


def add(to: Commands) -> None:
    actions = noun(to, "enforcement", "See what is done about leases that run, and undo it (operators).")
    parser = command(
        actions,
        "list",
        list_actions,
        "List actions about leases that are in force, the latest first.",
        more=(
            "An action of a detector that is not armed was only decided: nothing was done.\n"
            "docs/enforcement.md says what each detector finds and what each action does."
        ),
        examples="""
        splitplane enforcement list
        splitplane enforcement list --all
        splitplane enforcement list --lease le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        """,
    )
    parser.add_argument("--all", action="store_true", help="include those that have ended")
    parser.add_argument("--lease", metavar="ID", help="only those about this lease")
    parser = command(
        actions,
        "show",
        show,
        "Show an action with the evidence that it was decided by.",
        examples="splitplane enforcement show ea_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    )
    parser.add_argument("action", metavar="ACTION", help=ACTION_HELP)
    parser = command(
        actions,
        "undo",
        undo,
        "Undo an action.",
        more=(
            "What it asked of the workload is asked no longer within seconds, and a stop that\n"
            "was announced does not happen. The detector leaves the lease alone for an hour.\n"
            "A machine that was stopped is started by its customer."
        ),
        examples="""
        splitplane enforcement undo ea_0190c2f07d1e --reason "a benchmark"
        """,
    )
    parser.add_argument("action", metavar="ACTION", help=ACTION_HELP)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the lease's customer reads it")
    add_yes(parser)
    command(
        actions,
        "detectors",
        detectors,
        "List the detectors, and whether each acts.",
        examples="splitplane enforcement detectors",
    )
    parser = command(
        actions,
        "arm",
        arm,
        "Let a detector act.",
        more=(
            "Until then its actions are only decided: look at them first with\n"
            "`splitplane enforcement list --all`."
        ),
        examples='splitplane enforcement arm kv_cache_growth --reason "a good week"',
    )
    parser.add_argument("detector", metavar="DETECTOR", help=DETECTOR_HELP)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why")
    add_yes(parser)
    parser = command(
        actions,
        "disarm",
        disarm,
        "Have a detector only decide.",
        more=(
            "A stop that it announced is taken back. What else it has done ends when its time\n"
            "is over, or when it is undone."
        ),
        examples='splitplane enforcement disarm idle --reason "wrong readings"',
    )
    parser.add_argument("detector", metavar="DETECTOR", help=DETECTOR_HELP)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why")


def add_to_leases(leases: Commands) -> None:
    parser = command(
        leases,
        "enforcement",
        of_lease,
        "List what was found about a lease while it runs, and done about it.",
        more=(
            "Your workload can read what it is asked for on its machine, in\n"
            "/run/splitplane/signal.json. docs/enforcement.md says what it has."
        ),
        examples="splitplane lease enforcement train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser = command(
        leases,
        "idle-stop",
        idle_stop,
        "Have the machine of a lease stopped when it is idle.",
        more=(
            "It is idle while no GPU works and no request runs. You are told before it is\n"
            "stopped, and the lease and its disk stay: splitplane lease start LEASE."
        ),
        examples="""
        splitplane lease idle-stop train-1 --after 2h
        splitplane lease idle-stop train-1 --off
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--after", metavar="TIME", help="after this idle time: 30m, 12h or 7d")
    which.add_argument("--off", action="store_true", help="never")


def list_actions(terminal: Terminal, args: Namespace) -> None:
    query = {"ended": "true"} if args.all else {}
    if args.lease:
        query["lease"] = args.lease
    answer = terminal.client().every(PATH, EnforcementPage, query)
    terminal.present(args.json, answer, lambda found: actions_pages(found.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(f"{PATH}/{args.action}", EnforcementView)
    terminal.present(args.json, answer, lambda found: action_page(found, terminal.now()))


def undo(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, f"Undo {args.action}? Its customer reads why.")
    answer = terminal.client().post(f"{PATH}/{args.action}/undo", EnforcementView, UndoRequest(args.reason))
    terminal.present(args.json, answer, lambda found: action_page(found, terminal.now()))
    if answer.value.ended is None:
        terminal.note(f"It is undone within seconds. See: splitplane enforcement show {args.action}")


def detectors(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(DETECTORS_PATH, DetectorList)
    terminal.present(args.json, answer, lambda found: detectors_table(found.items, terminal.now()))


def arm(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, f"Let {args.detector} act on the leases of all customers?")
    _set(terminal, args, "arm")


def disarm(terminal: Terminal, args: Namespace) -> None:
    _set(terminal, args, "disarm")


def _set(terminal: Terminal, args: Namespace, verb: str) -> None:
    path = f"{DETECTORS_PATH}/{args.detector}/{verb}"
    answer = terminal.client().post(path, DetectorView, DetectorRequest(args.reason))
    terminal.present(args.json, answer, lambda found: detector_page(found, terminal.now()))


def of_lease(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    answer = client.every(f"/v1/leases/{lease.value.id}/enforcement", LeaseEnforcementPage)
    terminal.present(args.json, answer, lambda found: lease_pages(found, terminal.now()))


def idle_stop(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    after = None if args.off else seconds(args.after, "--after")
    answer = client.put(f"/v1/leases/{lease.value.id}/idle-stop", IdleStopView, IdleStopRequest(after))
    terminal.present(args.json, answer, idle_stop_line)
