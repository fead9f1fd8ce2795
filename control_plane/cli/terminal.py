"""What a command may touch besides its arguments: the screen, the keyboard, the clock, the network.

Built once in `main`, replaced in tests.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from getpass import getpass
from typing import Any, NoReturn, TextIO, TypeVar

import httpx
from rich.console import Console, RenderableType

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, usage
from control_plane.cli.words import clean, clean_lines

T = TypeVar("T")


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the CLI may not import the world, which holds the database.


def console(file: TextIO, environ: Mapping[str, str]) -> Console:
    """A console that takes text as it is: no markup and no emoji codes in what strangers wrote."""
    return Console(file=file, markup=False, emoji=False, highlight=False, _environ=environ)


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by a program: its signals, its terminal and its exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))  # noqa: S606 - a list of arguments, no shell.


@dataclass
class Terminal:
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep
    ask_secret: Callable[[str], str] = getpass
    become: Callable[[Sequence[str]], NoReturn] = become
    transport: httpx.BaseTransport | None = None

    def __post_init__(self) -> None:
        self.out = console(self.stdout, self.environ)
        self.err = console(self.stderr, self.environ)
        self._clients: list[Client] = []

    def client(self, login: config.Login | None = None) -> Client:
        """A client that lives as long as the command."""
        made = Client(login or config.current(self.environ), transport=self.transport, sleep=self.sleep)
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def present(self, as_json: bool, answer: Answer[T], draw: Callable[[T], RenderableType]) -> None:  # noqa: FBT001 - `args.json`
        """Show an answer: as the API sent it for machines, drawn for people."""
        if as_json:
            self.json(answer.content)
        else:
            self.show(draw(answer.cleaned()))

    def show(self, drawing: RenderableType) -> None:
        if self.out.is_terminal:
            self.out.print(drawing)
            return
        # Cells are padded to their column; in a file or a pipe those blanks are only in the way.
        with self.out.capture() as captured:
            self.out.print(drawing)
        self.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())
        self.stdout.flush()

    def json(self, answer: Any) -> None:
        # ASCII with escapes: whatever a stranger wrote, nothing of it reaches the terminal as a control code.
        self.stdout.write(json.dumps(answer, indent=2) + "\n")
        self.stdout.flush()

    def say(self, text: str, *, style: str | None = None) -> None:
        self.out.print(clean(text), style=style)

    def note(self, text: str) -> None:
        """A word beside the answer; not part of it, so not on standard output."""
        self.err.print(clean_lines(text), style="dim", soft_wrap=True)

    def confirm(self, question: str, *, otherwise: str) -> None:
        """Ask a person; a script has to say it in advance (`otherwise` names the flag)."""
        if not self.stdin.isatty():
            raise usage(f"{question} Nobody is here to answer; add {otherwise}.")
        self.err.print(f"{question} [y/N] ", end="")
        if self.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CliError("Nothing was done.", code="not_confirmed")
