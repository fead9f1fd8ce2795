"""The command line: how commands are declared, and usage errors that name the nearest match and repeat no secret."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from control_plane.cli.errors import CliError, Exit, usage

if TYPE_CHECKING:  # It draws, and `splitplane --version` starts without the weight of that.
    from control_plane.cli.terminal import Terminal

_SECRET = re.compile(r"sp[kr]_[A-Za-z0-9_-]+")
_INVALID_CHOICE = re.compile(r"argument ([^:]+): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)

_NO_COMMAND = "the following arguments are required: COMMAND"
"""What argparse says of a noun without a verb."""

_LENGTH = re.compile(r"([0-9]{1,9})([smhd]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_ID = re.compile(r"([a-z]+)_[0-9a-f]{32}")

Run = Callable[["Terminal", argparse.Namespace], None]
Commands = Any
"""What `add_subparsers` returns; argparse does not export the name of its type."""


NO_GROUPS: Mapping[str, str] = MappingProxyType({})


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help of 80 columns, in which commands may stand below headings."""

    def __init__(self, prog: str, groups: Mapping[str, str]) -> None:
        super().__init__(prog, width=80, max_help_position=28)
        self._groups = groups

    def _format_action(self, action: argparse.Action) -> str:
        shown = super()._format_action(action)
        heading = self._groups.get(action.dest)
        return shown if heading is None else f"\n  {heading}:\n{shown}"


class Parser(argparse.ArgumentParser):
    """An argument parser whose help fits 80 columns and whose errors do not repeat an API key."""

    def __init__(self, *, groups: Mapping[str, str] = NO_GROUPS, **options: Any) -> None:
        """`groups` has the headings of the help, by the command that comes first below each."""
        super().__init__(
            formatter_class=lambda prog: _Help(prog, groups),
            allow_abbrev=False,  # `--s` must not change its meaning when a flag that begins with s is added.
            **options,
        )

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for a namespace of one's own.
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; an unknown option is an error of the command that was given it, which knows its own options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = unknown[0].partition("=")[0]
            near = self._nearest_option(option) if option.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}.{near}")
        return found, unknown

    def _nearest_option(self, option: str) -> str:
        """The nearest option. Dashes do not count: two short words are similar enough because of them."""
        if option == "--yes":
            return " This command does not ask."
        known = {name.lstrip("-"): name for name in self._option_string_actions}
        near = get_close_matches(option.lstrip("-"), list(known), n=1)
        if near:
            return f" Did you mean {known[near[0]]!r}?"
        return " The options of a command follow it." if self._subparsers is not None else ""

    def error(self, message: str) -> NoReturn:
        needs_command = message == _NO_COMMAND
        if needs_command:
            message = "a command is missing."
        hidden, keys = _SECRET.subn("spk_...", _with_suggestion(message))
        if keys:
            hidden += (
                "\nOther users can see the command line. Do not put an API key there, and revoke this one."
            )
        raise CliError(
            f"{hidden}\nSee: {self.prog} --help",
            code="usage",
            exit_code=Exit.USAGE,
            usage=_SECRET.sub("spk_...", self.format_help() if needs_command else self.format_usage()),
        )


def is_id(prefix: str, word: str) -> bool:
    """Whether the word is a whole id of this kind, such as `le_` and 32 hexadecimal digits."""
    found = _ID.fullmatch(word)
    return found is not None and found[1] == prefix


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?` with the known word that is nearest; empty when none is near."""
    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _with_suggestion(message: str) -> str:
    """An error of argparse about a word that is not among the choices, with the nearest of them."""
    found = _INVALID_CHOICE.fullmatch(message)
    if found is None:
        return message
    argument, word, choices = found[1], found[2], re.findall(r"[\w.-]+", found[3])
    what = "no such command" if argument == "COMMAND" else f"{argument}: no such value"
    near = suggestion(word, choices) or f" Choose from: {', '.join(choices)}."
    return f"{what}: {word!r}.{near}"


def empty_argument(words: Sequence[str]) -> str | None:
    """What to say about the first empty argument; None when there is none.

    A variable that is not set makes one, and no value of ours is empty: a filter that is empty would list everything.
    """
    for before, word in zip(["", *words], words, strict=False):
        if word.startswith("--") and word.endswith("="):
            return f"{word[:-1]} has an empty value"
        if not word:
            return f"{before} has an empty value" if before.startswith("--") else "an argument is empty"
    return None


def noun(to: Commands, name: str, summary: str) -> Commands:
    """Declare a noun with commands of its own, such as `lease`."""
    parser = to.add_parser(name, help=_lowered(summary), description=summary)
    return parser.add_subparsers(metavar="COMMAND", title="commands", required=True, parser_class=Parser)


def _lowered(summary: str) -> str:
    return summary[0].lower() + summary[1:].rstrip(".")


def seconds(text: str, flag: str) -> int:
    """The seconds of a length of time such as `90s`, `30m`, `12h`, `7d` or `0`. Anything else is a usage error."""
    found = _LENGTH.fullmatch(text)
    if found is None or not (found[2] or found[1] == "0"):
        raise usage(f"{flag}: {text!r} is not a length of time; use 90s, 30m, 12h or 7d.")
    return int(found[1]) * _SECONDS[found[2] or "s"]


def command(to: Commands, name: str, run: Run, summary: str, *, more: str = "", examples: str) -> Parser:
    description = f"{summary}\n\n{more.strip()}" if more else summary
    lines = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
    parser: Parser = to.add_parser(
        name,
        help=_lowered(summary),
        description=description,
        epilog=f"examples:\n{lines}",
    )
    parser.add_argument("--json", action="store_true", help="print the answer, or the error, as JSON")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print ids only, without progress and remarks"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        help="how long to retry while the API is away (default: 60)",
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="the stored login to use (see: splitplane profile list)"
    )
    parser.set_defaults(run=run)
    return parser


def _seconds(text: str) -> float:
    """Between a second and a day. Raises `argparse.ArgumentTypeError` for anything else."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 86_400):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 86400")
    return float(text)
