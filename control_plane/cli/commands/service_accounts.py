"""Service accounts: the machine identities of an organization."""

from argparse import Namespace

from control_plane.cli.commands import subjects
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.subjects import service_account_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.subjects import ServiceAccountPage, ServiceAccountRequest, ServiceAccountView

PATH = "/v1/service-accounts"


def add(to: Commands) -> None:
    accounts = noun(
        to, "service-account", "Create, list, suspend and remove the machine identities of your organization."
    )
    parser = command(
        accounts,
        "create",
        create,
        "Create a service account, which has no role until somebody grants one.",
        examples="""
        splitplane service-account create ci-runner
        splitplane role grant member ci-runner --project research
        splitplane api-key create nightly --owner ci-runner
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in your organization")
    command(
        accounts,
        "list",
        list_accounts,
        "List your service accounts, oldest first.",
        examples="splitplane service-account list",
    )
    subjects.add(accounts, SERVICE_ACCOUNTS)


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(PATH, ServiceAccountView, ServiceAccountRequest(args.name))
    terminal.present(args.json, answer, lambda account: service_account_table([account], terminal.now()))


def list_accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, ServiceAccountPage)
    terminal.present(args.json, answer, lambda page: service_account_table(page.items, terminal.now()))


SERVICE_ACCOUNTS = subjects.Kind(
    PATH,
    ServiceAccountView,
    lambda account, terminal: service_account_table([account], terminal.now()),
    word="service-account",
    example="ci-runner",
    metavar="SERVICE_ACCOUNT",
    help="its name or its id",
    summaries={
        "show": "Show one service account.",
        "suspend": "Refuse the API keys of a service account until it is resumed.",
        "resume": "Accept the API keys of a suspended service account again.",
        "remove": "Remove a service account for good, with its API keys and roles.",
    },
)
