"""What is the same for users and service accounts: show, suspend, resume and remove them."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from rich.console import RenderableType

from control_plane.cli.commands.lookup import find_subject
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.parsing import Commands, command
from control_plane.cli.terminal import Terminal

V = TypeVar("V")


@dataclass(frozen=True)
class Kind(Generic[V]):
    """Users, or service accounts."""

    path: str
    view: type[V]
    draw: Callable[[V, Terminal], RenderableType]
    word: str
    """The noun of the commands."""
    example: str
    """A subject, in the examples."""
    metavar: str
    help: str
    """What names one."""
    summaries: Mapping[str, str]
    """What each command does, by its name: show, suspend, resume, remove."""


def add(to: Commands, kind: Kind[V]) -> None:
    """Add the four commands."""
    for name, summary in kind.summaries.items():
        run = {"show": show, "remove": remove}.get(name, partial(change, action=name))
        confirmed = " --yes" if name == "remove" else ""
        example = f"splitplane {kind.word} {name} {kind.example}{confirmed}"
        parser = command(to, name, partial(run, kind), summary, examples=example)
        parser.add_argument("subject", metavar=kind.metavar, help=kind.help)
        if name == "remove":
            add_yes(parser)


def show(kind: Kind[V], terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"{kind.path}/{find_subject(client, args.subject)}", kind.view)
    terminal.present(args.json, answer, lambda subject: kind.draw(subject, terminal))


def change(kind: Kind[V], terminal: Terminal, args: Namespace, *, action: str) -> None:
    client = terminal.client()
    answer = client.post(f"{kind.path}/{find_subject(client, args.subject)}/{action}", kind.view)
    terminal.present(args.json, answer, lambda subject: kind.draw(subject, terminal))


def remove(kind: Kind[V], terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    subject = find_subject(client, args.subject)
    confirm(terminal, args, f"Remove {args.subject}? Its API keys are revoked and its roles end, for good.")
    client.delete(f"{kind.path}/{subject}")
    terminal.done(args.json, "removed", subject, f"Removed {args.subject}.")
