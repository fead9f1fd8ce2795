"""Quota requests: ask for higher limits, and decide on what others ask for."""

from argparse import ArgumentParser, Namespace
from urllib.parse import quote

from control_plane.cli.commands.envelopes import add_limits, limits_of
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.envelopes import quota_request_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.envelopes import (
    AnswerRequest,
    QuotaRequestPage,
    QuotaRequestRequest,
    QuotaRequestView,
)

PATH = "/v1/quota-requests"


def add(to: Commands) -> None:
    quotas = noun(to, "quota", "Ask for higher limits, and decide on what others ask for.")
    parser = command(
        quotas,
        "request",
        request,
        "Ask for higher limits.",
        more=(
            "Without --project the request is for the ceiling of your organization, on which\n"
            "an operator decides; with it, an owner or admin of your organization does."
        ),
        examples="""
        splitplane quota request --gpus 128 --reason "a larger model"
        splitplane quota request --project research --gpus 16 --reason "a deadline"
        """,
    )
    parser.add_argument("--project", metavar="PROJECT", help="of this project: its name or its id")
    parser.add_argument("--environment", metavar="ENVIRONMENT", help="of this environment of the project")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
    add_limits(parser)
    parser = command(
        quotas,
        "list",
        list_requests,
        "List quota requests, newest first.",
        examples="splitplane quota list",
    )
    _add_organization(parser)
    for verb, function in (("approve", approve), ("decline", decline)):
        parser = command(
            quotas,
            verb,
            function,
            f"{verb.capitalize()} a quota request of somebody else.",
            examples=f"splitplane quota {verb} qr_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason agreed",
        )
        parser.add_argument("request", metavar="ID", help="the id of the request")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
        _add_organization(parser)


def _add_organization(parser: ArgumentParser) -> None:
    parser.add_argument("--organization", metavar="ID", help="for operators: of this organization")


def request(terminal: Terminal, args: Namespace) -> None:
    asked = QuotaRequestRequest(limits_of(args), args.reason, args.project, args.environment)
    answer = terminal.client().post(PATH, QuotaRequestView, asked)
    terminal.present(args.json, answer, lambda made: quota_request_table([made], terminal.now()))


def list_requests(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(_path(args), QuotaRequestPage)
    terminal.present(args.json, answer, lambda page: quota_request_table(page.items, terminal.now()))


def approve(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "approve")


def decline(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "decline")


def _decide(terminal: Terminal, args: Namespace, verb: str) -> None:
    path = f"{_path(args)}/{quote(args.request, safe='')}/{verb}"
    answer = terminal.client().post(path, QuotaRequestView, AnswerRequest(args.reason))
    terminal.present(args.json, answer, lambda made: quota_request_table([made], terminal.now()))


def _path(args: Namespace) -> str:
    if args.organization is None:
        return PATH
    return f"/v1/operator/organizations/{quote(args.organization, safe='')}/quota-requests"
