"""Ends a single lease of a customer. It needs the permission `leases.end`."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, PATH, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, is_id
from control_plane.cli.render.lease_ends import lease_end_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.fleet import FleetMachinePage
from control_plane.wire.lease_ends import LeaseEndRequest, LeaseEndView

LEASE_PREFIX = "le"


def add(to: Commands) -> None:
    parser = command(
        to,
        "end-lease",
        end_lease,
        "End a single lease of an organization.",
        more=(
            "Its bill stops now and its machine is terminated. The customer reads the reason\n"
            "with the lease; the organization and its other leases stay as they are."
        ),
        examples="""
        splitplane organization end-lease acme train-1 --reason "ticket 4711"
        splitplane organization end-lease acme train-1 --reason abuse --yes
        """,
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument(
        "lease", metavar="LEASE", help='its id; or its name, where "splitplane fleet list" shows its machine'
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="the reason; its customer reads it")
    add_yes(parser)


def end_lease(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    lease_id = _lease(client, organization.id, args.lease)
    confirm(terminal, args, f"End the lease {args.lease} of {organization.name}? Its machine is deleted.")
    path = f"{PATH}/{organization.id}/leases/{lease_id}/end"
    answer = client.post(path, LeaseEndView, LeaseEndRequest(args.reason))
    terminal.present(args.json, answer, lambda ended: lease_end_page(ended, terminal.now()))


def _lease(client: Client, organization_id: str, word: str) -> str:
    """The id of the lease that the word names, by the machines that leases of the organization hold."""
    if is_id(LEASE_PREFIX, word):
        return word
    held = client.every(
        "/v1/operator/fleet/machines", FleetMachinePage, {"organization": organization_id}
    ).value.items
    found = {machine.lease_id for machine in held if machine.lease_id and machine.lease == word}
    if not found:
        why = f"No machine is held by a lease {word!r} of this organization; use the id of the lease."
        raise CliError(why, code="lease_not_found")
    if len(found) > 1:
        why = f"{word!r} names leases of several projects: {', '.join(sorted(found))}. Use an id."
        raise CliError(why, code="ambiguous")
    return found.pop()
