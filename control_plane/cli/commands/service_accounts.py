"""Service accounts: the machine identities of an organization."""

from argparse import Namespace

from control_plane.cli.commands.lookup import find_subject
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
    for name, run, what, example in (
        ("show", show, "Show one service account.", ""),
        ("suspend", suspend, "Refuse the API keys of a service account until it is resumed.", ""),
        ("resume", resume, "Accept the API keys of a suspended service account again.", ""),
        ("remove", remove, "Remove a service account for good, with its API keys and roles.", " --yes"),
    ):
        parser = command(
            accounts, name, run, what, examples=f"splitplane service-account {name} ci-runner{example}"
        )
        parser.add_argument("account", metavar="SERVICE_ACCOUNT", help="its name or its id")
        if run is remove:
            parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def create(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(PATH, ServiceAccountView, ServiceAccountRequest(args.name))
    terminal.present(args.json, answer, lambda account: service_account_table([account], terminal.now()))


def list_accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, ServiceAccountPage)
    terminal.present(args.json, answer, lambda page: service_account_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"{PATH}/{find_subject(client, args.account)}", ServiceAccountView)
    terminal.present(args.json, answer, lambda account: service_account_table([account], terminal.now()))


def suspend(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "suspend")


def resume(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "resume")


def _change(terminal: Terminal, args: Namespace, action: str) -> None:
    client = terminal.client()
    answer = client.post(f"{PATH}/{find_subject(client, args.account)}/{action}", ServiceAccountView)
    terminal.present(args.json, answer, lambda account: service_account_table([account], terminal.now()))


def remove(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    account = find_subject(client, args.account)
    if not args.yes:
        terminal.confirm(
            f"Remove {args.account}? Its API keys are revoked and its roles end, for good.",
            otherwise="--yes",
        )
    client.delete(f"{PATH}/{account}")
    terminal.done(args.json, "removed", account, f"Removed {args.account}.")
