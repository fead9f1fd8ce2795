"""The command line: how commands are declared, and usage errors that repeat no secret."""

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
"""What `add_subparsers` returns; argparse does not export the name of its type."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose help fits 80 columns and whose errors do not repeat an API key."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, width=80, max_help_position=28
            ),
            allow_abbrev=False,  # `--s` must not change its meaning when a flag that begins with s is added.
            **options,
        )

    def error(self, message: str) -> NoReturn:
        hidden, keys = _SECRET.subn("spk_...", message)
        if keys:
            hidden += (
                "\nOther users can see the command line. Do not put an API key there, and revoke this one."
            )
        sys.stderr.write(f"{self.format_usage()}error: usage: {hidden}\nSee: {self.prog} --help\n")
        raise SystemExit(int(Exit.USAGE))


def noun(to: Commands, name: str, summary: str) -> Commands:
    """Declare a noun with commands of its own, such as `lease`."""
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
    parser.add_argument("--json", action="store_true", help="print the answer of the API as JSON")
    parser.set_defaults(run=run)
    return parser
