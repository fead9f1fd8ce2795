"""Kubeconfigs, which open the namespace of a project in a cluster."""

import re
import socket
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from urllib.parse import quote

from control_plane.cli import kubeconfigs
from control_plane.cli.answers import page_of
from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import named
from control_plane.cli.errors import CliError
from control_plane.cli.kubeconfigs import Issued
from control_plane.cli.names import Names
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.kubeconfigs import kubeconfig_page, kubeconfig_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.kubeconfigs import (
    OVERLAP_MINUTES_DEFAULT,
    KubeconfigPage,
    KubeconfigRequest,
    KubeconfigRotationRequest,
    KubeconfigView,
)

PREFIX = "kc"
_KUBECONFIG = "name, id, or the unambiguous beginning of an id"
_MINUTES = {"m": 1, "h": 60}


def add(to: Commands) -> None:
    commands = noun(to, "kubeconfig", "Create, list, rotate and revoke kubeconfigs, which open clusters.")
    parser = command(
        commands,
        "create",
        create,
        "Create a kubeconfig for a project, and hand it to kubectl.",
        more=(
            "It is merged into the configuration of kubectl (the first file of KUBECONFIG, or\n"
            "~/.kube/config) as the context CLUSTER/PROJECT, which becomes the current one."
        ),
        examples="""
        splitplane kubeconfig create --cluster eu-1
        splitplane kubeconfig create --cluster eu-1 --project research --role view
        splitplane kubeconfig create --cluster eu-1 --lasts 30m --output ci.kubeconfig
        """,
    )
    parser.add_argument("--cluster", metavar="CLUSTER", required=True, help="the cluster, by name or id")
    parser.add_argument(
        "--project", metavar="PROJECT", help="the project, by name or id (default: the default one)"
    )
    parser.add_argument(
        "--role", choices=("view", "edit"), default="edit", help="what it may do there (default: edit)"
    )
    parser.add_argument(
        "--lasts", metavar="TIME", type=_minutes, default=480, help="such as 30m; 10m to 24h (default: 8h)"
    )
    parser.add_argument("--name", metavar="NAME", help="shown in lists (default: this machine's name)")
    _add_output(parser)
    command(
        commands,
        "list",
        list_kubeconfigs,
        "List kubeconfigs, newest first: who can get in where, and until when.",
        examples="splitplane kubeconfig list",
    )
    parser = command(
        commands,
        "rotate",
        rotate,
        "Replace a kubeconfig by a new one; the old one ends after the overlap.",
        examples="splitplane kubeconfig rotate kc_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b --overlap 10m",
    )
    parser.add_argument("kubeconfig", metavar="KUBECONFIG", help=_KUBECONFIG)
    parser.add_argument(
        "--overlap",
        metavar="TIME",
        type=_minutes,
        default=OVERLAP_MINUTES_DEFAULT,
        help="how long the old one still counts, such as 0m (default: 1h)",
    )
    _add_output(parser)
    parser = command(
        commands,
        "revoke",
        revoke,
        "Revoke kubeconfigs. Within seconds they have no rights any more.",
        more=("What runs in pods goes on, and so do open exec sessions: delete their pods to\nend them."),
        examples="""
        splitplane kubeconfig revoke kc_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b
        splitplane kubeconfig revoke laptop
        """,
    )
    parser.add_argument("kubeconfigs", metavar="KUBECONFIG", nargs="+", help=_KUBECONFIG)


def _add_output(parser: ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write a file of its own; kubectl's stays as it is")


def _minutes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,5})([mh])", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no time; write 30m or 8h")
    return int(found[1]) * _MINUTES[found[2]]


def create(terminal: Terminal, args: Namespace) -> None:
    kubeconfigs.check(_path(terminal, args), merges=not args.output)
    client = terminal.client()

    def ask(public_key: str) -> Issued:
        wanted = KubeconfigRequest(
            name=args.name or _this_machine(),
            public_key=public_key,
            project=args.project,
            role=args.role,
            lasts_minutes=args.lasts,
        )
        path = f"/v1/clusters/{quote(args.cluster, safe='')}/kubeconfigs"
        return client.post(path, KubeconfigView, wanted)

    issued, file = kubeconfigs.request(terminal, client, ask)
    _hand_over(terminal, args, issued, file)


def _this_machine() -> str:
    """A name that the API accepts."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "", socket.gethostname()).lstrip("._-")[:63]
    return name or "kubeconfig"


def _hand_over(terminal: Terminal, args: Namespace, issued: Issued, file: dict[str, object]) -> None:
    path = _path(terminal, args)
    try:
        context = (kubeconfigs.write if args.output else kubeconfigs.merge)(path, file)
    except CliError as error:
        raise CliError(f"{error} {_lost(issued)}", code=error.code) from error
    command_line = f"kubectl --kubeconfig {path}" if args.output else "kubectl"
    terminal.present(
        args.json,
        issued,
        lambda shown: kubeconfig_page(shown, context, str(path), f"{command_line} get pods", terminal.now()),
    )


def _path(terminal: Terminal, args: Namespace) -> Path:
    """The file that is written."""
    return Path(args.output).expanduser() if args.output else kubeconfigs.configuration(terminal.environ)


def _lost(issued: Issued) -> str:
    shown = issued.value.id
    return f"The kubeconfig {shown} was issued and can be opened by nobody: run `splitplane kubeconfig revoke {shown}`."


def list_kubeconfigs(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.every("/v1/kubeconfigs", KubeconfigPage)
    terminal.present(
        args.json, answer, lambda page: kubeconfig_table(page.items, Names(client), terminal.now())
    )


def rotate(terminal: Terminal, args: Namespace) -> None:
    kubeconfigs.check(_path(terminal, args), merges=not args.output)
    client = terminal.client()
    old = _id(client, args.kubeconfig)

    def ask(public_key: str) -> Issued:
        wanted = KubeconfigRotationRequest(public_key=public_key, overlap_minutes=args.overlap)
        return client.post(f"/v1/kubeconfigs/{old}/rotations", KubeconfigView, wanted)

    issued, file = kubeconfigs.request(terminal, client, ask)
    _hand_over(terminal, args, issued, file)


def revoke(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    ids = [_id(client, word) for word in args.kubeconfigs]
    answers = [client.post(f"/v1/kubeconfigs/{each}/revoke", KubeconfigView) for each in ids]
    page = page_of(answers, KubeconfigPage)
    terminal.present(
        args.json, page, lambda page: kubeconfig_table(page.items, Names(client), terminal.now())
    )


def _id(client: Client, word: str) -> str:
    """The id of the kubeconfig that the word names: an id, the beginning of one, or a name that only one has."""
    if is_id(PREFIX, word):
        return word
    known = client.every("/v1/kubeconfigs", KubeconfigPage).value.items
    found = named(known, word)
    if len(found) > 1:
        found = [each for each in found if each.state in ("wanted", "issued")]
    if len(found) == 1:
        return found[0].id
    if found:
        ids = ", ".join(each.id for each in found)
        raise CliError(f"Several kubeconfigs are called {word!r}: {ids}. Use an id.", code="ambiguous")
    raise CliError(f"There is no kubeconfig {word!r}. See: splitplane kubeconfig list", code="not_found")
