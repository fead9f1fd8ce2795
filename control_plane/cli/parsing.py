"""The command line: how commands are declared, and errors that name no secret."""

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from control_plane.cli.errors import Exit
from control_plane.cli.terminal import Terminal

_SECRET = re.compile(r"spk_[A-Za-z0-9_-]+")

Run = Callable[[Terminal, argparse.Namespace], None]
Commands = Any
"""What `add_subparsers` answers; argparse keeps the name of its type to itself."""


class Parser(argparse.ArgumentParser):
    """An argument parser of 80 columns that does not repeat a key which was typed where none belongs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, width=80, max_help_position=28
            ),
            allow_abbrev=False,  # `--s` must not change its meaning when a new flag begins with an s.
            **options,
        )

    def error(self, message: str) -> NoReturn:
        hidden, keys = _SECRET.subn("spk_...", message)
        if keys:
            hidden += "\nA key does not belong on the command line, where others see it; revoke it if they may have."
        sys.stderr.write(f"{self.format_usage()}error: usage: {hidden}\nSee: {self.prog} --help\n")
        raise SystemExit(int(Exit.USAGE))


def noun(to: Commands, name: str, summary: str) -> Commands:
    """A word that has commands of its own, such as `lease`."""
    parser = to.add_parser(name, help=_lowered(summary), description=summary)
    return parser.add_subparsers(metavar="COMMAND", title="commands", required=True, parser_class=Parser)


def _lowered(summary: str) -> str:
    return summary[0].lower() + summary[1:].rstrip(".")


def command(to: Commands, name: str, run: Run, summary: str, *, more: str = "", examples: str) -> Parser:
    description = f"{summary}\n\n{more.strip()}" if more else summary
    lines = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    parser: Parser = to.add_parser(
        name,
        help=_lowered(summary),
        description=description,
        epilog=f"examples:\n{lines}",
    )
    parser.add_argument("--json", action="store_true", help="print the API's answer as JSON")
    parser.set_defaults(run=run)
    return parser
