"""Provider accounts, and permits to terminate machines there."""

from argparse import Namespace

from rich.console import RenderableType

from control_plane.cli.answers import Answer, page_of
from control_plane.cli.client import Client
from control_plane.cli.commands import account_requests
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.accounts import account_page, account_table, limit_table, permit_lines
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.accounts import (
    AccountList,
    AccountView,
    MissingMachinesRequest,
    TerminationPermitRequest,
    TerminationPermitView,
)

PATH = "/v1/operator/provider-accounts"


def add(to: Commands) -> None:
    accounts = noun(
        to, "account", "See, add and change provider accounts, and permit terminations (operators)."
    )
    command(
        accounts,
        "list",
        list_accounts,
        "List provider accounts with their last list, and why they are frozen or failing.",
        examples="splitplane account list",
    )
    show = command(
        accounts,
        "show",
        show_account,
        "Show a provider account: its list, its limits, and whether it is armed.",
        examples="splitplane account show lambda_cloud/research",
    )
    show.add_argument("account", metavar="ACCOUNT", help='as "splitplane account list" shows it')
    limits = command(
        accounts,
        "limits",
        list_limits,
        "List the rate limits of providers and how much of them is used.",
        more=(
            "All reconciler processes share these limits. After a provider throttles a call,\n"
            "they slow down to 70 % of the limit and recover in ten minutes; other providers\n"
            "go on as before. A bucket that counts calls by source address stands at the\n"
            "provider's first account."
        ),
        examples="splitplane account limits lambda_cloud",
    )
    limits.add_argument("account", metavar="ACCOUNT", nargs="?", help="only the limits of this account")
    account_requests.add(accounts)
    parser = command(
        accounts,
        "permit-terminations",
        permit_terminations,
        "Permit the termination of machines that fail their proof or are missing.",
        more=(
            "When more than three machines of one account fail within an hour, our own\n"
            "references or verifier are the more likely cause, and no machine is terminated.\n"
            "Read splitplane proof record first. Once you know that the provider is the\n"
            "cause, permit the terminations: they begin within 15 minutes, two machines in\n"
            "each run.\n\n"
            "With --missing you permit something else: to give up the machines that are not\n"
            "in the lists of a frozen account, which ends their leases. Look at the\n"
            "provider's console first. The permit ends with the freeze, and covers no list\n"
            "that misses more machines. Machines whose agents reported in the last five\n"
            "minutes stay all the same."
        ),
        examples="""
        splitplane account permit-terminations lambda_cloud --reason "ticket 4711"
        splitplane account permit-terminations lambda_cloud --missing --reason 4712
        """,
    )
    parser.add_argument("account", metavar="ACCOUNT", help='as "splitplane account list" shows it')
    parser.add_argument(
        "--missing", action="store_true", help="for machines that its lists miss while it is frozen"
    )
    parser.add_argument(
        "--reason", required=True, dest="why", metavar="TEXT", help="stored with the id of your API key"
    )
    parser.add_argument(
        "--minutes", type=int, default=60, metavar="N", help="how long, at most 1440 (default: 60)"
    )
    add_yes(parser)


def list_accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, AccountList)
    terminal.present(args.json, answer, lambda page: account_table(page.items, terminal.now()))


def show_account(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, AccountList)
    found = next((account for account in answer.value.items if account.name == args.account), None)
    if found is None:
        raise _unknown(args.account)
    content = next(item for item in answer.content["items"] if item["name"] == args.account)
    shown = page_of([Answer(content, found)], AccountList)
    terminal.present(args.json, shown, lambda page: account_page(page.items[0], terminal.now()))


def list_limits(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, AccountList)
    wanted = args.account
    if wanted is not None and wanted not in {account.name for account in answer.value.items}:
        raise _unknown(wanted)

    def limits(page: AccountList) -> RenderableType:
        chosen = [account for account in page.items if wanted in (None, account.name)]
        return limit_table(chosen, terminal.now())

    terminal.present(args.json, answer, limits)


def permit_terminations(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    account = _look_first(client, args.account)
    missing = _missing(account) if args.missing else None
    if missing is not None:
        what = f"Give up {plural(missing.machines, 'machine')} that the list of {args.account} misses"
    else:
        what = (
            f"Terminate every machine of {args.account} that fails its proof again in the next"
            f" {args.minutes} min"
        )
    confirm(terminal, args, f"{what}? Their leases end with them.")
    request = TerminationPermitRequest(args.account, args.why, args.minutes, missing)
    answer = client.post("/v1/operator/termination-permits", TerminationPermitView, request)
    terminal.present(args.json, answer, permit_lines)


def _look_first(client: Client, account: str) -> AccountView:
    """The account as it is now. Nobody is asked to confirm what is refused afterwards."""
    for known in client.whole(PATH, AccountList).value.items:
        if known.name == account:
            return known
    raise _unknown(account)


def _missing(account: AccountView) -> MissingMachinesRequest:
    """What the list of a frozen account misses. Raises CliError when the account is not frozen."""
    if account.frozen_since is None or account.frozen_missing < 1:
        raise CliError(f"{account.name} is not frozen: no machine is missing there.", code="listing_changed")
    return MissingMachinesRequest(account.frozen_since, account.frozen_missing)


def _unknown(account: str) -> CliError:
    return CliError(f"There is no provider account {account!r}.", code="account_unknown")
