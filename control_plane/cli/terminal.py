"""What a command uses besides its arguments: the screen, the keyboard, the clock and the network.

It is created once in `main`; tests replace it.
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
    return datetime.now(UTC)  # noqa: TID251 - the CLI may not import the world, which has the database.


def console(file: TextIO, environ: Mapping[str, str]) -> Console:
    """A console that prints text as it is: what others wrote is not read as markup or emoji codes."""
    return Console(file=file, markup=False, emoji=False, highlight=False, _environ=environ)


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another program, which then has its terminal, signals and exit code."""
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
        # Cells are padded to the width of their column, which is useless in a file or a pipe.
        with self.out.capture() as captured:
            self.out.print(drawing)
        self.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())
        self.stdout.flush()

    def json(self, answer: Any) -> None:
        # ASCII with escapes, so that no control code that others wrote reaches the terminal.
        self.stdout.write(json.dumps(answer, indent=2) + "\n")
        self.stdout.flush()

    def say(self, text: str, *, style: str | None = None) -> None:
        self.out.print(clean(text), style=style)

    def note(self, text: str) -> None:
        """Print a remark on standard error, because it is not part of the answer."""
        self.err.print(clean_lines(text), style="dim", soft_wrap=True)

    def confirm(self, question: str, *, otherwise: str) -> None:
        """Ask a person for confirmation. A script has to give the flag `otherwise` instead."""
        if not self.stdin.isatty():
            raise usage(f"{question} Standard input is not a terminal; to confirm, add {otherwise}.")
        self.err.print(f"{question} [y/N] ", end="")
        if self.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CliError("Nothing was done.", code="not_confirmed")
