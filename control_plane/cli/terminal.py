"""What a command uses besides its arguments: the screen, the keyboard, the clock and the network.

It is created once in `main`; tests replace it.
"""

import json
import os
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from getpass import getpass
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

import httpx
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from control_plane.cli import config
from control_plane.cli.answers import Answer
from control_plane.cli.client import TRY_SECONDS, Client, user_agent
from control_plane.cli.clock import Clock
from control_plane.cli.errors import CliError
from control_plane.cli.hints import hint
from control_plane.cli.signing_in import Post, SessionAuth, oauth
from control_plane.cli.words import clean_lines, printable

T = TypeVar("T")
REACH_SECONDS = 3.0


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the CLI may not import the world, which has the database.


class CleanConsole(Console):
    """A console through which no control character of a text reaches the screen, whatever draws the text.

    Colours and the movements of a progress bar are the console's own, and apart from the texts: they pass.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console(file: TextIO, environ: Mapping[str, str]) -> Console:
    """A console that prints text as it is: what others wrote is not read as markup or emoji codes."""
    return CleanConsole(file=file, markup=False, emoji=False, highlight=False, _environ=environ)


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another program, which then has its terminal, signals and exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))  # noqa: S606 - a list of arguments, no shell.


def open_url(url: str) -> bool:
    """Open a URL in the person's browser. False without a graphical session, where a text browser would take over."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def reaches(address: str, port: int) -> bool:
    """Whether a server speaks there within `REACH_SECONDS`, as SSH servers do first.

    A connection alone says little: some networks have a proxy that accepts every one.
    """
    try:
        with socket.create_connection((address, port), timeout=REACH_SECONDS) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False


def make_key(path: Path) -> None:
    """Make a key pair with OpenSSH, whose ssh will use it. The private key's file has mode 0600."""
    try:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "splitplane", "-f", str(path)],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CliError(
            f"ssh-keygen could not make a key pair in {path.parent}: {error}. Install the OpenSSH client.",
            code="no_ssh_keygen",
        ) from error


@dataclass
class Terminal:
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    now: Callable[[], datetime] = utc_now
    clock: Clock = field(default_factory=Clock)
    ask_secret: Callable[[str], str] = getpass
    become: Callable[[Sequence[str]], NoReturn] = become
    reaches: Callable[[str, int], bool] = reaches
    make_key: Callable[[Path], None] = make_key
    program: str = field(default_factory=lambda: sys.argv[0])
    """How this command was started."""
    arguments: Sequence[str] = ()
    """What follows `splitplane` on the command line."""
    transport: httpx.BaseTransport | None = None
    open_url: Callable[[str], bool] = open_url
    """Opens a browser; False when there is none."""
    profile: str | None = None
    """The profile that `--profile` names."""
    quiet: bool = False
    """Print ids only, and neither progress nor remarks."""
    timeout: float | None = None
    """For how many seconds an API that does not answer is tried; None for the default of each command."""

    def __post_init__(self) -> None:
        self.out = console(self.stdout, self.environ)
        self.err = console(self.stderr, self.environ)
        self._clients: list[Client] = []

    def client(self, login: config.Login | None = None) -> Client:
        """A client that lives as long as the command."""
        login = login or self.login()
        auth = None
        if login.session is not None:
            auth = SessionAuth(login, self.environ, self.oauth(login.url), self.seconds)
        made = Client(
            login,
            auth=auth,
            transport=self.transport,
            clock=self.clock,
            report=self.warn,
            try_seconds=TRY_SECONDS if self.timeout is None else self.timeout,
        )
        self._clients.append(made)
        return made

    def login(self) -> config.Login:
        """The login that this command uses."""
        return config.current(self.environ, self.profile)

    def oauth(self, url: str) -> Post:
        """Posts forms to the OAuth endpoints of an API."""
        return oauth(url, self.transport, user_agent())

    def seconds(self) -> float:
        """The time in Unix seconds."""
        return self.now().timestamp()

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def present(self, as_json: bool, answer: Answer[T], draw: Callable[[T], RenderableType]) -> None:  # noqa: FBT001 - `args.json`
        """Show an answer: as the API sent it for machines, its ids for `--quiet`, drawn for people."""
        names = identifiers(answer.content) if self.quiet else None
        if as_json:
            self.json(answer.content)
        elif names is not None:
            self.write("".join(f"{name}\n" for name in names))
        else:
            self.show(draw(answer.cleaned()))

    def done(self, as_json: bool, deed: str, identifier: str, sentence: str) -> None:  # noqa: FBT001 - `args.json`
        """Say what was done where the API has nothing to answer."""
        if as_json:
            self.json({deed: identifier})
        elif self.quiet:
            self.write(f"{identifier}\n")
        else:
            self.say(sentence)

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
        self.write(as_json_text(answer, indent=2))

    def json_list(self, items: Iterable[Any]) -> None:
        """A long list as JSON, an item in each line, written as they come: memory does not grow with it."""
        separator = "[\n"
        for item in items:
            self.write(separator + as_json_text(item).rstrip())
            separator = ",\n"
        self.write("[]\n" if separator == "[\n" else "\n]\n")

    def write(self, text: str) -> None:
        """Write plain text to standard output. Nothing else writes there but the console."""
        self.stdout.write(printable(text))
        self.stdout.flush()

    def say(self, text: str, *, style: str | None = None) -> None:
        self.out.print(clean_lines(text), style=style)

    def note(self, text: str) -> None:
        """Print a remark on standard error, because it is not part of the answer."""
        if not self.quiet:
            self.err.print(clean_lines(text), style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print on standard error what has to be known even when remarks are not wanted."""
        self.err.print(clean_lines(text), style="yellow", soft_wrap=True)

    def tell(self, text: str) -> None:
        """Print on standard error what a person needs to go on, in one line that can be copied."""
        self.err.print(clean_lines(text), soft_wrap=True)

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Show that the command waits: a line that moves at a terminal, one line elsewhere."""
        if self.err.is_terminal and not self.quiet:
            return self.err.status(clean_lines(text))
        self.note(text)
        return nullcontext()

    def counting(self, text: str) -> AbstractContextManager[object]:
        """Show at a terminal that the API works on one long answer, and for how long already. Nothing elsewhere."""
        if self.quiet or not self.err.is_terminal:
            return nullcontext()
        line = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self.err,
            transient=True,
        )
        line.add_task(clean_lines(text), total=None)
        return line

    @contextmanager
    def moving(self, *, beside_output: bool = False) -> Iterator[Callable[[str], None]]:
        """A line below all others that moves at a terminal; what is yielded changes its text. Nothing elsewhere.

        With `beside_output`, standard output is written meanwhile: where both are a terminal, there is no line then.
        """
        if self.quiet or not self.err.is_terminal or (beside_output and self.out.is_terminal):
            yield lambda _: None
            return
        with self.err.status("") as line:
            yield lambda text: line.update(clean_lines(text))

    def fail(self, error: CliError, *, as_json: bool) -> None:
        """Print an error on standard error, with --json as well: a pipe must not take an error for an answer."""
        more = error.advice or hint(error.code, error.fields)
        if as_json:
            document = error.document() | ({"hint": more} if more else {})
            self.stderr.write(as_json_text(document))
            self.stderr.flush()
            return
        if error.usage:
            self.err.print(error.usage, soft_wrap=True, end="")
        for failure in (error, *error.others):
            text = f"error: {failure.code}: {clean_lines(failure.sentence)}"
            self.err.print(text, style="red", soft_wrap=True)
        if more:
            self.err.print(clean_lines(more), style="dim", soft_wrap=True)


def as_json_text(document: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII with escapes, so that no control code that others wrote reaches the terminal."""
    return json.dumps(document, indent=indent) + "\n"


NAMED_BY = ("id", "organization", "provider_ref", "key", "name", "loop")
"""The fields that identify what an answer shows, the best first."""


def identifiers(content: Any) -> list[str] | None:
    """What `--quiet` prints of an answer, a line each: ids or names; None for an answer that has none, as a bill."""
    items = content.get("items") if isinstance(content, dict) else None
    found = [_identifier(item) for item in ([content] if items is None else items)]
    return None if None in found else [name for name in found if name is not None]


def _identifier(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("secret"), str):
        return str(item["secret"])  # It is shown once, and it is what a script wants of a new key.
    for name in NAMED_BY:
        if isinstance(item.get(name), str):
            return str(item[name])
        if isinstance(item.get(name), dict):
            return _identifier(item[name])
    return None
