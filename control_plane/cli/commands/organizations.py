"""Organizations and their credits. The commands need an API key of an operator."""

from argparse import Namespace

from control_plane.cli.commands import organization_states
from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, PATH, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.organizations import created_page, credit_page, one_page, organization_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.organizations import (
    CreatedOrganization,
    CreditRequest,
    CreditView,
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
    _add_credit(to)


def _add_credit(to: Commands) -> None:
    parser = command(
        to,
        "credit",
        credit,
        "Post a credit to an organization (operators).",
        more="A credit is final: it is a posting of the ledger, which is never edited.",
        examples="splitplane credit heliotrope 500 --yes",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("amount", metavar="USD", help="the amount, such as 500 or 24.90")
    add_yes(parser)


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
            f"It has no credit yet; who has the platform's role finance: splitplane credit {args.name} 100"
        )


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"{PATH}/{find(client, args.organization).id}", OrganizationView)
    terminal.present(args.json, answer, lambda organization: one_page(organization, terminal.now()))


def credit(terminal: Terminal, args: Namespace) -> None:
    request = CreditRequest(amount(args.amount, "USD"))
    client = terminal.client()
    organization = find(client, args.organization)
    confirm(terminal, args, f"Credit {args.amount} USD to {organization.name}?")
    answer = client.post(f"{PATH}/{organization.id}/credits", CreditView, request)
    terminal.present(args.json, answer, lambda posted: credit_page(posted, organization.name))
