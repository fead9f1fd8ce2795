"""Organizations and their credits. The commands need an API key of an operator."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.lookup import named
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, noun, suggestion
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

PATH = "/v1/operator/organizations"
ORGANIZATION_HELP = "name, or the beginning of its id"


def add(to: Commands) -> None:
    organizations = noun(to, "organization", "Create and see customers' organizations (operators).")
    command(
        organizations,
        "list",
        list_organizations,
        "List all organizations with their balances, oldest first.",
        examples="splitplane organization list",
    )
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
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def list_organizations(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, OrganizationPage)
    terminal.present(args.json, answer, lambda page: organization_table(page.items))


def create(terminal: Terminal, args: Namespace) -> None:
    request = OrganizationRequest(args.name, args.gpu_quota, args.key_name)
    answer = terminal.client().post(PATH, CreatedOrganization, request)
    terminal.present(args.json, answer, lambda created: created_page(created, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"{PATH}/{find(client, args.organization).id}", OrganizationView)
    terminal.present(args.json, answer, lambda organization: one_page(organization, terminal.now()))


def credit(terminal: Terminal, args: Namespace) -> None:
    request = CreditRequest(amount(args.amount, "USD"))
    client = terminal.client()
    organization = find(client, args.organization)
    if not args.yes:
        terminal.confirm(f"Credit {args.amount} USD to {organization.name}?", otherwise="--yes")
    answer = client.post(f"{PATH}/{organization.id}/credits", CreditView, request)
    terminal.present(args.json, answer, lambda posted: credit_page(posted, organization.name))


def find(client: Client, word: str) -> OrganizationView:
    """The organization with this name or id."""
    known = client.every(PATH, OrganizationPage).value.items
    found = named(known, word)
    if len(found) > 1:
        raise CliError(f"{word!r} is the beginning of {len(found)} ids; write more of it.", code="ambiguous")
    if found:
        return found[0]
    near = suggestion(word, (organization.name for organization in known))
    raise CliError(
        f"There is no organization {word!r}.{near}",
        code="organization_unknown",
    )
