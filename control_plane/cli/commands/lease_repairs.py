"""Have the machine of a lease replaced, and read what one was told about its machines."""

from argparse import Namespace

from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.leases import lease_page
from control_plane.cli.render.repairs import notices_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.leases import LeaseView
from control_plane.wire.notices import NoticePage
from control_plane.wire.repairs import ReplacementRequest


def add(leases: Commands) -> None:
    parser = command(
        leases,
        "replace",
        replace,
        "Hand the machine of a lease back, and get another one.",
        more=(
            "For a machine that does not work. The lease stays, with its name and its price;\n"
            "nothing is billed until the next machine is ready. What is on the disk of the\n"
            "machine is gone. Three machines of a lease can be handed back within a day."
        ),
        examples='splitplane lease replace train-1 --reason "GPU 3 does not answer"',
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="what does not work")
    add_yes(parser)
    parser = command(
        leases,
        "notices",
        notices,
        "List what you were told about the machines of a lease, the latest first.",
        more="Faults, planned reboots and replacements, and what became of them.",
        examples="splitplane lease notices train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)


def replace(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    name = lease.cleaned().name
    confirm(terminal, args, f"Replace the machine of {name}? Everything on its disk is gone.")
    answer = client.post(
        f"/v1/leases/{lease.value.id}/replace", LeaseView, ReplacementRequest(why=args.reason)
    )
    terminal.present(args.json, answer, lambda changed: lease_page(changed, terminal.now()))


def notices(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    answer = client.every(f"/v1/leases/{lease.value.id}/notices", NoticePage)
    terminal.present(args.json, answer, lambda found: notices_table(found.items, terminal.now()))
