"""The life of an organization: suspend, resume, close and delete it, and see its history. For operators."""

from argparse import ArgumentParser, Namespace

from control_plane.cli.client import Client
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, PATH, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.organizations import change_page, history_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.organizations import (
    OrganizationChange,
    OrganizationEventPage,
    ReasonRequest,
    SuspensionRequest,
)


def add(to: Commands) -> None:
    _add_suspend(to)
    _add_resume(to)
    _add_close(to)
    _add_delete(to)
    parser = command(
        to,
        "history",
        history,
        "Show who suspended, resumed, closed or deleted an organization, and why.",
        examples="splitplane organization history heliotrope",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)


def _add_suspend(to: Commands) -> None:
    parser = command(
        to,
        "suspend",
        suspend,
        "Let an organization spend nothing new.",
        more=(
            "Its API keys still read and release. Its leases run on the money that is held\n"
            "for them, and end when it is used; with --end-leases they end now."
        ),
        examples="""
        splitplane organization suspend heliotrope --reason "unpaid since May"
        splitplane organization suspend heliotrope --reason abuse --end-leases
        """,
    )
    _arguments(parser)
    parser.add_argument("--end-leases", action="store_true", help="end all of its leases now")
    add_yes(parser)


def _add_resume(to: Commands) -> None:
    parser = command(
        to,
        "resume",
        resume,
        "End the suspension of an organization.",
        examples='splitplane organization resume heliotrope --reason "paid on 3 June"',
    )
    _arguments(parser)


def _add_close(to: Commands) -> None:
    parser = command(
        to,
        "close",
        close,
        "Close an organization for good.",
        more=(
            "Its API keys are refused and its leases end at once. It stays closing until its\n"
            "machines are confirmed gone and all usage is charged. Nobody can open it again."
        ),
        examples="""
        splitplane organization close heliotrope --reason "contract ended"
        splitplane organization close heliotrope --reason "contract ended" --yes
        """,
    )
    _arguments(parser)
    add_yes(parser)


def _add_delete(to: Commands) -> None:
    parser = command(
        to,
        "delete",
        delete,
        "Erase the personal data of a closed organization.",
        more=(
            "Names, people, SSH keys, labels and secrets are erased within seconds. The\n"
            "ledger, charges and journals stay, with ids."
        ),
        examples='splitplane organization delete heliotrope --reason "asked for by the customer"',
    )
    _arguments(parser)
    add_yes(parser)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument(
        "--reason", required=True, metavar="TEXT", help="the reason; it is kept in its history"
    )


def suspend(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    if args.end_leases and not args.yes:
        confirm(terminal, args, f"Suspend {organization.name} and end its leases?", name=organization.name)
    request = SuspensionRequest(args.reason, end_leases=args.end_leases)
    _change(terminal, args, client, f"{PATH}/{organization.id}/suspensions", request)


def resume(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    _change(terminal, args, client, f"{PATH}/{organization.id}/resumptions", ReasonRequest(args.reason))


def close(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    confirm(terminal, args, f"Close {organization.name} for good?", name=organization.name)
    _change(terminal, args, client, f"{PATH}/{organization.id}/closures", ReasonRequest(args.reason))


def delete(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    confirm(terminal, args, f"Erase the data of {organization.name}?", name=organization.name)
    _change(terminal, args, client, f"{PATH}/{organization.id}/deletions", ReasonRequest(args.reason))


def history(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    answer = client.every(f"{PATH}/{organization.id}/history", OrganizationEventPage)
    terminal.present(args.json, answer, lambda page: history_table(page.items, terminal.now()))


def _change(terminal: Terminal, args: Namespace, client: Client, path: str, request: ReasonRequest) -> None:
    answer = client.post(path, OrganizationChange, request)
    terminal.present(args.json, answer, lambda change: change_page(change, terminal.now()))
