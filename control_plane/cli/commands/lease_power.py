"""Reboot, stop and start the machine of a lease."""

from argparse import Namespace
from functools import partial

from control_plane.cli import progress
from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import LEASE_HELP, Found, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, Parser, command
from control_plane.cli.render.leases import lease_page
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import sentence
from control_plane.wire.leases import LeaseView


def add(leases: Commands) -> None:
    _add(leases, "reboot", "Reboot the machine of a lease.", "The lease, its disk and its host key stay.")
    stop = _add(
        leases,
        "stop",
        "Stop the machine of a lease.",
        "It keeps its root disk; what is on other local disks may be lost. What it costs\n"
        "while it is stopped is in `lease show`.",
    )
    add_yes(stop)
    _add(
        leases,
        "start",
        "Start the stopped machine of a lease.",
        "Its address may be another one afterwards; its host key is the same.",
    )


def _add(leases: Commands, action: str, help_text: str, more: str) -> Parser:
    parser = command(
        leases,
        action,
        partial(_change, action),
        help_text,
        more=f"{more}\nWhat the provider can do is in the lease: splitplane lease show LEASE.",
        examples=f"""
        splitplane lease {action} train-1
        splitplane lease {action} train-1 --wait
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("--wait", action="store_true", help="wait until it is done, for ten minutes at most")
    return parser


def _change(action: str, terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    if action == "stop":
        name = lease.cleaned().name
        confirm(terminal, args, f"Stop {name}? What is on its local disks besides the root disk may be lost.")
    answer = client.post(f"/v1/leases/{lease.value.id}/{action}", LeaseView)
    if args.wait:
        answer = _settled(terminal, client, answer)
    terminal.present(args.json, answer, lambda changed: lease_page(changed, terminal.now()))
    power = answer.value.power
    if args.wait and power is not None and power.why is not None:
        raise CliError(f"{lease.value.name}: {action} failed: {sentence(power.why)}", code="power_failed")


def _settled(terminal: Terminal, client: Client, answer: Found) -> Found:
    """The lease once nothing of its power changes any more, or once it ends."""
    board = progress.board(terminal.err, [answer], terminal.now, quiet=terminal.quiet)
    outage = progress.OUTAGE_SECONDS_MAX if terminal.timeout is None else terminal.timeout
    ends = dict(progress.watch(client, [answer], _is_settled, board, outage_seconds_max=outage))
    end = ends[answer.value.id]
    if isinstance(end, CliError):
        raise end
    return end


def _is_settled(lease: LeaseView) -> bool:
    power = lease.power
    return lease.state != "ready" or power is None or power.state in ("on", "off") or power.why is not None
