"""Asking before a command does what no command takes back (docs/decisions/0064)."""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from control_plane.cli.errors import CliError, Exit

if TYPE_CHECKING:  # It draws, and a command line is parsed without the weight of that.
    from control_plane.cli.terminal import Terminal


def add_yes(parser: ArgumentParser) -> None:
    """Declare `--yes`, which every command has that asks."""
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def confirm(
    terminal: "Terminal",
    args: Namespace,
    question: str,
    *,
    name: str | None = None,
    instead: Sequence[str] = ("--yes",),
) -> None:
    """Return once a person has agreed to what the question says, or without asking where `--yes` was given.

    With `name`, the person has to type it: for what ends a whole customer. `instead` is what says yes on the command
    line. A command asks once, after everything that it can find out without changing anything. Raises CliError when
    the answer is not yes, and when nobody can answer because standard input is not a terminal.
    """
    if args.yes:
        return
    if not terminal.stdin.isatty():
        raise CliError(
            f"{question} Nobody can answer, because standard input is not a terminal."
            f" To confirm, run: splitplane {shlex.join((*terminal.arguments, *instead))}",
            code="not_confirmed",
            exit_code=Exit.USAGE,
        )
    ends = "[y/N]" if name is None else "Type its name to confirm:"
    terminal.err.print(f"{question} {ends} ", end="")
    answer = terminal.stdin.readline().strip()
    if name is None and answer.lower() not in ("y", "yes"):
        raise CliError("Nothing was done.", code="not_confirmed")
    if name is not None and answer != name:
        raise CliError("The name differs. Nothing was done.", code="not_confirmed")
