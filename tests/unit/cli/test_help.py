"""Every command explains itself, with examples that parse; the page in docs/ knows every one."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from control_plane.cli import main
from control_plane.cli.parsing import Parser
from tests.support.cases import check_every


def _commands(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below and isinstance(parser, Parser):
        yield parser
    for action in below:
        for child in action.choices.values():
            yield from _commands(child)


COMMANDS = {parser.prog: parser for parser in _commands(main.parser())}


def _examples(parser: Parser) -> list[str]:
    return [line.strip() for line in (parser.epilog or "").splitlines()[1:]]


def test_every_command_has_examples_that_parse() -> None:
    def check(name: str) -> None:
        examples = [line for line in _examples(COMMANDS[name]) if line.startswith(name)]
        assert examples
        for line in examples:
            words = shlex.split(re.split(r" > |   \(| \| ", line)[0])
            main.parsed(words[1:])

    check_every(COMMANDS, check)


def test_help_fits_80_columns_and_offers_json() -> None:
    def check(name: str) -> None:
        text = COMMANDS[name].format_help()
        assert "--json" in text
        assert [line for line in text.splitlines() if len(line) > 80] == []

    check_every(COMMANDS, check)


def test_the_page_shows_every_command() -> None:
    page = Path("docs/cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"    {name}" not in page and f"| {name}" not in page] == []


def test_the_overview_and_the_help_of_every_noun_fit_80_columns() -> None:
    every = main.parser()
    nouns = next(
        action for action in every._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    for text in (every.format_help(), *(noun.format_help() for noun in nouns.values())):
        assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_overview_has_each_command_below_a_heading() -> None:
    _, _, shown = main.parser().format_help().partition("\ncommands:\n")
    first = {found[2]: found[1] for found in re.finditer(r"\n  (\w.*):\n    ([a-z-]+)", shown)}
    assert first == main.GROUPS
    listed = re.findall(r"^    ([a-z-]+)", shown.partition("\n\nEvery command")[0], re.MULTILINE)
    assert listed == [name for names in main.FILES.values() for name in names]
    assert listed[0] in main.GROUPS
