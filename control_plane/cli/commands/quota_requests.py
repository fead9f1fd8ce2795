"""Quota requests: ask for higher limits, and decide on what others ask for."""

from argparse import Namespace, _ActionsContainer  # argparse has no public name for what takes arguments.

from control_plane.cli.client import Client
from control_plane.cli.commands.envelopes import add_limits, limits_of
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.commands.organization_lookup import PATH as ORGANIZATIONS
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.envelopes import quota_request_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.envelopes import (
    AnswerRequest,
    QuotaRequestPage,
    QuotaRequestRequest,
    QuotaRequestView,
)
from control_plane.wire.organizations import OrganizationPage

PATH = "/v1/quota-requests"
PREFIX_MIN = len("qr_0190")
"""A shorter beginning would be met by chance."""
STATES = ("pending", "approved", "declined", "withdrawn", "expired")


def add(to: Commands) -> None:
    quotas = noun(to, "quota", "Ask for higher limits, and decide on what others ask for.")
    _add_request(quotas)
    _add_list(quotas)
    for verb, function in (("approve", approve), ("decline", decline)):
        parser = command(
            quotas,
            verb,
            function,
            f"{verb.capitalize()} a quota request of somebody else.",
            examples=f"splitplane quota {verb} qr_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason agreed",
        )
        parser.add_argument("request", metavar="ID", help="the request's id, or the beginning of it")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
        _add_organization(parser)


def _add_request(to: Commands) -> None:
    parser = command(
        to,
        "request",
        request,
        "Ask for higher limits.",
        more=(
            "Without --project the request is for the ceiling of your organization, on which\n"
            "an operator decides; with it, an owner or admin of your organization does. If\n"
            "your role is for one project, name that project."
        ),
        examples="""
        splitplane quota request --gpus 128 --reason "a larger model"
        splitplane quota request --project research --gpus 16 --reason "a deadline"
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="for this project: its name or its id")
    parser.add_argument("--environment", metavar="ENVIRONMENT", help="for this environment of the project")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
    add_limits(parser)


def _add_list(to: Commands) -> None:
    parser = command(
        to,
        "list",
        list_requests,
        "List quota requests, newest first.",
        examples="""
        splitplane quota list
        splitplane quota list --all-organizations --state pending
        """,
    )
    parser.add_argument(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"only in this state, may be repeated: {', '.join(STATES)}",
    )
    which = parser.add_mutually_exclusive_group()
    _add_organization(which)
    which.add_argument("--all-organizations", action="store_true", help="for operators: of everybody")


def _add_organization(parser: _ActionsContainer) -> None:
    parser.add_argument(
        "--organization", metavar="ORGANIZATION", help=f"for operators: of this one: {ORGANIZATION_HELP}"
    )


def request(terminal: Terminal, args: Namespace) -> None:
    asked = QuotaRequestRequest(limits_of(args), args.reason, args.project, args.environment)
    answer = terminal.client().post(PATH, QuotaRequestView, asked)
    terminal.present(args.json, answer, lambda made: quota_request_table([made], terminal.now()))


def list_requests(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    path = "/v1/operator/quota-requests" if args.all_organizations else _path(client, args)
    answer = client.every(path, QuotaRequestPage, {"state": args.state or []})
    terminal.present(
        args.json,
        answer,
        lambda page: quota_request_table(
            page.items, terminal.now(), organizations=_names(client) if args.all_organizations else None
        ),
    )


def _names(client: Client) -> dict[str, str]:
    """The names of all organizations by their ids."""
    return {each.id: each.name for each in client.every(ORGANIZATIONS, OrganizationPage).value.items}


def approve(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "approve")


def decline(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "decline")


def _decide(terminal: Terminal, args: Namespace, verb: str) -> None:
    client = terminal.client()
    path = _path(client, args)
    answer = client.post(
        f"{path}/{_id_of(client, path, args.request)}/{verb}", QuotaRequestView, AnswerRequest(args.reason)
    )
    terminal.present(args.json, answer, lambda made: quota_request_table([made], terminal.now()))


def _id_of(client: Client, path: str, word: str) -> str:
    """The whole id of a request that is to be decided on, by its beginning."""
    if is_id("qr", word):
        return word
    open_ = client.every(path, QuotaRequestPage, {"state": ["pending"]}).value.items
    found = [each.id for each in open_ if len(word) >= PREFIX_MIN and each.id.startswith(word)]
    if len(found) > 1:
        raise CliError(f"{word!r} is the beginning of {len(found)} ids; write more of it.", code="ambiguous")
    if not found:
        why = f"No pending quota request has an id that begins with {word!r}. See: splitplane quota list"
        raise CliError(why, code="quota_request_unknown")
    return found[0]


def _path(client: Client, args: Namespace) -> str:
    if args.organization is None:
        return PATH
    return f"{ORGANIZATIONS}/{find(client, args.organization).id}/quota-requests"
