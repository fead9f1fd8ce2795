"""Organizations. The commands need an API key of an operator."""

from argparse import Namespace

from control_plane.cli.commands import lease_ends, organization_states
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, PATH, find
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.organizations import created_page, one_page, organization_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.organizations import (
    CreatedOrganization,
    OrganizationPage,
    OrganizationRequest,
    OrganizationView,
)

STATES = ("active", "suspended", "closing", "closed", "deleted")


def add(to: Commands) -> None:
    organizations = noun(
        to, "organization", "Create, see, suspend and close customers' organizations (operators)."
    )
    parser = command(
        organizations,
        "list",
        list_organizations,
        "List organizations with their balances, oldest first.",
        examples="""
        splitplane organization list
        splitplane organization list --state suspended --state closing
        splitplane organization list --name helio
        """,
    )
    parser.add_argument(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"only in this state, may be repeated: {', '.join(STATES)}",
    )
    parser.add_argument("--name", metavar="TEXT", help="only those whose names contain this text")
    parser = command(
        organizations,
        "create",
        create,
        "Create an organization and its first API key, whose secret is printed once.",
        examples="""
        splitplane organization create heliotrope
        splitplane organization create heliotrope --gpu-quota 128 --quiet
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique among all organizations")
    parser.add_argument(
        "--gpu-quota", type=int, default=64, metavar="N", help="how many GPUs it may hold (default: 64)"
    )
    parser.add_argument(
        "--key-name", default="first key", metavar="NAME", help='name of its API key (default: "first key")'
    )
    parser = command(
        organizations,
        "show",
        show,
        "Show one organization: its balance, holds and quota.",
        examples="splitplane organization show heliotrope",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    organization_states.add(organizations)
    lease_ends.add(organizations)


def list_organizations(terminal: Terminal, args: Namespace) -> None:
    query = {"state": args.state or [], "name": [] if args.name is None else [args.name]}
    answer = terminal.client().every(PATH, OrganizationPage, query)
    terminal.present(args.json, answer, lambda page: organization_table(page.items))


def create(terminal: Terminal, args: Namespace) -> None:
    request = OrganizationRequest(args.name, args.gpu_quota, args.key_name)
    answer = terminal.client().post(PATH, CreatedOrganization, request)
    terminal.present(args.json, answer, lambda created: created_page(created, terminal.now()))
    if not args.json:
        terminal.note(
            "It has no money yet. Who has the platform's role finance posts a top-up:\n"
            f"splitplane finance topup {args.name} 100 --reason TEXT"
        )


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"{PATH}/{find(client, args.organization).id}", OrganizationView)
    terminal.present(args.json, answer, lambda organization: one_page(organization, terminal.now()))
