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


def test_the_overview_fits_80_columns() -> None:
    assert [line for line in main.parser().format_help().splitlines() if len(line) > 80] == []
