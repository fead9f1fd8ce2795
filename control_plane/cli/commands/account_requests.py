"""Adds, tests, changes and removes provider accounts. Credentials come from a file, a pipe or a prompt."""

import os
import tomllib
from argparse import Namespace
from pathlib import Path

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.config import check_private
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command
from control_plane.cli.render.account_requests import request_lines, request_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.account_requests import (
    AccountChangeRequest,
    AccountCredentialsRequest,
    AccountRequestPage,
    AccountRequestView,
)

ACCOUNTS = "/v1/operator/provider-accounts"
REQUESTS = "/v1/operator/provider-account-requests"
WAIT_SECONDS_MAX = 180.0
"""Longer than a removal, which waits a minute, and than the tries of a provider that does not answer."""
POLL_SECONDS = 1.0
_SECRET_WORDS = ("key", "token", "secret", "password")
_CREDENTIALS = (
    "Credentials are never arguments, because other users can see those. They are\n"
    "asked for at a terminal, or read as TOML from --file or from standard input:\n\n"
    '    api_key = "..."\n\n'
    "They are stored encrypted, and nobody can read them back. The settings of each\n"
    "provider are in docs/generated/providers.md."
)


def add(accounts: Commands) -> None:
    """Declare the commands below `splitplane account`."""
    parser = command(
        accounts,
        "add",
        add_account,
        "Add a provider account, once the provider accepts its credentials.",
        more=_CREDENTIALS,
        examples="""
        splitplane account add lambda_cloud
        splitplane account add lambda_cloud/research --file research.toml
        pass show local | splitplane account add local --setting url=http://h:8091
        """,
    )
    _credentials(parser)
    parser = command(
        accounts,
        "rotate",
        rotate_account,
        "Give an account new credentials, once the provider accepts them.",
        more=f"Until then the old ones stay in force.\n\n{_CREDENTIALS}",
        examples="splitplane account rotate lambda_cloud --file new.toml",
    )
    _credentials(parser)
    parser = command(
        accounts,
        "test",
        test_account,
        "Ask the provider whether it accepts the credentials of an account.",
        examples="splitplane account test lambda_cloud",
    )
    _account(parser)
    _add_changes(accounts)
    parser = command(
        accounts,
        "requests",
        list_requests,
        "List what was asked for concerning accounts, and what came of it.",
        examples="splitplane account requests lambda_cloud",
    )
    parser.add_argument("account", metavar="ACCOUNT", nargs="?", help="only requests about this account")


def _add_changes(accounts: Commands) -> None:
    parser = command(
        accounts,
        "drain",
        drain_account,
        "Order nothing at an account any more. Machines that exist stay as they are.",
        examples='splitplane account drain lambda_cloud --reason "ticket 4711"',
    )
    _account(parser)
    _why(parser)
    parser = command(
        accounts,
        "resume",
        resume_account,
        "Order at a drained account again.",
        examples='splitplane account resume lambda_cloud --reason "ticket 4711"',
    )
    _account(parser)
    _why(parser)
    parser = command(
        accounts,
        "arm",
        arm_account,
        "Let orphans of an account be terminated.",
        more=(
            "A new account is not armed: orphans there are reported, and none is terminated.\n"
            "Look at what would be terminated first: splitplane orphan list"
        ),
        examples='splitplane account arm lambda_cloud --reason "ticket 4711"',
    )
    _account(parser)
    _why(parser)
    add_yes(parser)
    parser = command(
        accounts,
        "disarm",
        disarm_account,
        "Terminate no orphan of an account any more, and only report them.",
        examples='splitplane account disarm lambda_cloud --reason "ticket 4711"',
    )
    _account(parser)
    _why(parser)
    parser = command(
        accounts,
        "remove",
        remove_account,
        "Remove an account and destroy its credentials.",
        more=(
            "This is refused while machines may exist there, because nobody could end them\n"
            "without the credentials: drain the account first. An account that is not drained\n"
            "is drained for a minute before it is removed."
        ),
        examples='splitplane account remove lambda_cloud/research --reason "ticket 4711"',
    )
    _account(parser)
    _why(parser)
    add_yes(parser)


def _account(parser: Parser) -> None:
    parser.add_argument("account", metavar="ACCOUNT", help='as "splitplane account list" shows it')


def _why(parser: Parser) -> None:
    parser.add_argument(
        "--reason", required=True, dest="why", metavar="TEXT", help="stored with the id of your API key"
    )


def _credentials(parser: Parser) -> None:
    parser.add_argument(
        "account", metavar="ACCOUNT", help="PROVIDER, or PROVIDER/LABEL for a further account"
    )
    parser.add_argument(
        "--file", metavar="FILE", type=Path, help="TOML with the settings; only you may have access to it"
    )
    parser.add_argument(
        "--ask",
        metavar="NAME",
        action="append",
        help="a setting to ask for at the terminal; may be given more than once (default: api_key)",
    )
    parser.add_argument(
        "--setting",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting that is no secret, such as base_url=https://...",
    )


def add_account(terminal: Terminal, args: Namespace) -> None:
    _send(terminal, args, ACCOUNTS)


def rotate_account(terminal: Terminal, args: Namespace) -> None:
    _send(terminal, args, f"{ACCOUNTS}/rotate")


def test_account(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "test", "tested from the command line")


def drain_account(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "drain", args.why)


def resume_account(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "resume", args.why)


def arm_account(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, f"Let the rules terminate the orphans of {args.account} from now on?")
    _change(terminal, args, "arm", args.why)


def disarm_account(terminal: Terminal, args: Namespace) -> None:
    _change(terminal, args, "disarm", args.why)


def remove_account(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, f"Remove {args.account} and destroy its credentials? This cannot be undone.")
    _change(terminal, args, "remove", args.why)


def list_requests(terminal: Terminal, args: Namespace) -> None:
    query = {} if args.account is None else {"account": args.account}
    answer = terminal.client().whole(REQUESTS, AccountRequestPage, query)
    terminal.present(args.json, answer, lambda page: request_table(page.items, terminal.now()))


def _send(terminal: Terminal, args: Namespace, path: str) -> None:
    client = terminal.client()
    request = AccountCredentialsRequest(args.account, _settings(terminal, args))
    _follow(terminal, args, client, client.post(path, AccountRequestView, request))


def _change(terminal: Terminal, args: Namespace, verb: str, why: str) -> None:
    client = terminal.client()
    request = AccountChangeRequest(args.account, verb, why)
    _follow(terminal, args, client, client.post(REQUESTS, AccountRequestView, request))


def _follow(terminal: Terminal, args: Namespace, client: Client, asked: Answer[AccountRequestView]) -> None:
    """Wait until the reconciler has finished, and show the outcome. Raises CliError unless it was done."""
    request_id, waited = asked.value.id, 0.0
    if asked.value.verb == "remove":
        terminal.note("An account that is not drained yet is drained for a minute first.")
    while asked.value.outcome is None and waited < WAIT_SECONDS_MAX:
        terminal.clock.sleep(POLL_SECONDS)
        waited += POLL_SECONDS
        asked = client.get(f"{REQUESTS}/{request_id}", AccountRequestView)
    found = asked.value
    if found.outcome is None:
        raise CliError(
            f"The reconciler has not answered within {WAIT_SECONDS_MAX:g} s; the request {request_id} stays open.",
            code="no_outcome",
        )
    if found.outcome != "accepted":
        raise CliError(found.said or f"It was {found.outcome}.", code=found.code or found.outcome)
    terminal.present(args.json, asked, request_lines)


def _settings(terminal: Terminal, args: Namespace) -> dict[str, str]:
    """The settings of an account: those that are no secret from the command line, the others from elsewhere."""
    settings = dict(_plain(setting) for setting in args.setting)
    if args.file is not None:
        settings |= _parsed(_content(args.file), str(args.file))
    elif not terminal.stdin.isatty():
        settings |= _parsed(terminal.stdin.read(), "standard input")
    else:
        for name in args.ask or ["api_key"]:
            settings[name] = terminal.ask_secret(f"{name} of {args.account}: ").strip()
    if "" in settings.values():
        raise CliError("A setting is empty.", code="setting_empty")
    return settings


def _plain(setting: str) -> tuple[str, str]:
    name, separator, value = setting.partition("=")
    if not separator or not name:
        raise usage("--setting takes NAME=VALUE.")
    if any(word in name.lower() for word in _SECRET_WORDS):
        raise usage(
            f"--setting {name}: other users can see the command line. Revoke this secret, and give the new one at the"
            " prompt, with --file, or on standard input."
        )
    return name, value


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()), "credentials")
            return file.read().decode()
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", code="file_unreadable") from error
    except UnicodeDecodeError:
        raise CliError(f"{path} is not UTF-8.", code="settings_malformed") from None


def _parsed(text: str, source: str) -> dict[str, str]:
    """The settings in a TOML text. No error repeats any part of it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        values = {"": None}
    if not values or not all(isinstance(value, str) for value in values.values()):
        raise CliError(
            f'{source} must contain lines such as: api_key = "..."', code="settings_malformed"
        ) from None
    return {name: str(value) for name, value in values.items()}
