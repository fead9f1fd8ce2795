"""The explanation of a lease: how it came to be where it is."""

from argparse import Namespace

from control_plane.cli.commands.catalogue import add_verbose
from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.explanation import explanation_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.explanations import ExplanationView


def add(to: Commands) -> None:
    parser = command(
        to,
        "why",
        why,
        "Explain how a lease came to be where it is.",
        more=(
            "Shows why it was admitted, every offer that was considered and why it was\n"
            "rejected, every attempt and how it ended, what the GPUs proved, and the journal."
        ),
        examples="""
        splitplane why train-1
        splitplane why train-1 --verbose
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    add_verbose(parser)


def why(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    answer = client.get(f"/v1/leases/{lease.id}/explanation", ExplanationView)
    terminal.present(
        args.json,
        answer,
        lambda explanation: explanation_page(explanation, terminal.now(), verbose=args.verbose),
    )
