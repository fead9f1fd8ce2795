"""The CLI as a person meets it: a command line in, both streams and the exit code out. The API is a table."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import httpx

from control_plane.cli import main
from control_plane.cli.clock import Clock
from control_plane.cli.terminal import Terminal
from tests.unit.cli.answers import NOW

KEY = "spk_planted-0123456789"
URL = "http://127.0.0.1:8080"
Answer = httpx.Response | Callable[[httpx.Request], httpx.Response] | dict[str, Any]


class Became(Exception):  # noqa: N818 - what `exec` is in a test
    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self.command = list(command)


def _become(command: Sequence[str]) -> NoReturn:
    raise Became(command)


OWN_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn splitplane"


def _make_key(path: Path) -> None:
    """Write a key pair as ssh-keygen does."""
    path.touch(mode=0o600)
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    path.with_name(f"{path.name}.pub").write_text(f"{OWN_KEY}\n")


class Hours:
    """A clock on which only sleep, and what a test spends, takes time; it makes the calls that became due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}

    def spend(self, seconds: float) -> None:
        self.now += seconds
        for number, (at, call) in sorted(self._due.items()):
            if at <= self.now:
                del self._due[number]
                call()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.spend(seconds)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        number = max(self._due, default=0) + 1
        self._due[number] = (self.now + seconds, call)

        def cancel() -> None:
            self._due.pop(number, None)

        return cancel

    def clock(self) -> Clock:
        return Clock(
            seconds=lambda: self.now,
            sleep=self.sleep,
            wait=lambda _, seconds: self.sleep(seconds),
            later=self.later,
        )


@dataclass
class Shown:
    out: str
    err: str
    code: int

    def golden(self) -> str:
        """Both streams and the exit code, as one text."""
        err = f"--- standard error\n{self.err}" if self.err else ""
        return f"{self.out}{err}--- exit {self.code}\n"


class Typed(io.StringIO):
    """Standard input that a person types."""

    def isatty(self) -> bool:
        return True


class Screen(io.StringIO):
    """Standard output or standard error of a command at a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Stand:
    home: Path
    answers: Mapping[str, Answer] = field(default_factory=dict)
    environ: dict[str, str] = field(
        default_factory=lambda: {"SPLITPLANE_URL": URL, "SPLITPLANE_API_KEY": KEY}
    )
    stdin: io.StringIO = field(default_factory=io.StringIO)
    requests: list[httpx.Request] = field(default_factory=list)
    hours: Hours = field(default_factory=Hours)
    width: int = 80
    at_a_terminal: bool = False
    reached: bool = True
    """Whether something listens at the address of a machine."""

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.get(f"{request.method} {request.url.path}")
        if answer is None:
            raise AssertionError(f"the test has no answer for {request.method} {request.url}")
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, json=answer) if isinstance(answer, dict) else answer(request)

    def run(self, *arguments: str) -> Shown:
        out, err = (Screen(), Screen()) if self.at_a_terminal else (io.StringIO(), io.StringIO())
        terminal = Terminal(
            environ={"HOME": str(self.home), "TERM": "xterm", "COLUMNS": str(self.width)} | self.environ,
            stdin=self.stdin,
            stdout=out,
            stderr=err,
            now=lambda: NOW,
            clock=self.hours.clock(),
            ask_secret=lambda _: self.stdin.readline(),
            become=_become,
            reaches=lambda *_: self.reached,
            make_key=_make_key,
            program="splitplane",
            transport=httpx.MockTransport(self._answer),
        )
        code = main.main(arguments, terminal)
        return Shown(out.getvalue(), err.getvalue(), int(code))
