"""Read what the machine of a lease printed on its console."""

from argparse import Namespace

from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.issuing import Kind, until_done
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.consoles import console_page
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import clean
from control_plane.wire.consoles import ConsoleView

_KIND = Kind(
    noun="console",
    done="read",
    within_seconds=120.0,
    pauses=(0.2, 0.3, 0.5, 1.0),
    blame="the operator's reconciler is not running",
)


def add(leases: Commands) -> None:
    parser = command(
        leases,
        "console",
        read,
        "Show what a machine printed on its console, and the steps so far.",
        more=(
            "For a machine that does not come up, or did not come back after a reboot. It is\n"
            "the provider's console where the provider has one, and otherwise the journal of\n"
            "the machine's last boot, if the machine can be reached; the steps that we\n"
            "recorded are always shown. At most 64 KiB, of which the end is kept."
        ),
        examples="""
        splitplane lease console train-1
        splitplane lease console train-1 --json
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)


def read(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    path = f"/v1/leases/{lease.value.id}/consoles"
    requested = client.post(path, ConsoleView)
    terminal.note(clean(f"Reading the console of {lease.value.name}; this takes up to a minute."))
    where = f"{path}/{requested.value.id}"
    # The steps come with the second answer, also where the first one has everything else.
    found = until_done(terminal, _KIND, requested, lambda: client.get(where, ConsoleView))
    if found is requested:
        found = client.get(where, ConsoleView)
    terminal.present(args.json, found, lambda console: console_page(console, lease.cleaned(), terminal.now()))
