"""Every `splitplane` command in the docs is one: its words and options exist. Every error code of the CLI is in the docs.

The README lists every page.
"""

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from control_plane.cli.main import parser

PAGES = [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
PARSER: argparse.ArgumentParser = parser()
COMMAND = re.compile(r"(?:`|^ {4,}(?:\.venv/bin/)?)splitplane ([a-z][^`#|>\n]*)", re.MULTILINE)

CONNECTIONS = {"listener", "bell"}
"""`splitplane listener` is what the database calls a connection of ours."""


def _commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found in COMMAND.finditer(page.read_text().replace("\\\n", " ")):
            if found[1].strip() not in CONNECTIONS:
                yield page.name, found[1].strip()


def _fault(command: str) -> str | None:
    """What is wrong with a command; `...`, values and names of things are not looked at."""
    words = shlex.split(command.partition(" -- ")[0].replace("'", ""))
    at = PARSER
    while words and (below := _below(at)):
        if (word := words.pop(0)).startswith("-") or "|" in word:
            return None
        if word not in below:
            return f"there is no {word}"
        at = below[word]
    options = {option for action in at._actions for option in action.option_strings}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
    return f"there is no option {unknown[0]}" if unknown else None


def _below(at: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in at._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_every_command_in_the_docs_exists() -> None:
    commands = list(_commands())
    assert len(commands) > 150
    assert [(page, command, fault) for page, command in commands if (fault := _fault(command))] == []


def test_every_error_code_of_the_command_line_is_in_the_docs() -> None:
    page = Path("docs/cli.md").read_text()
    sources = [source.read_text() for source in Path("control_plane/cli").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'code="([a-z_]+)"', source)}
    assert len(codes) > 50
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_the_readme_lists_every_page() -> None:
    table = Path("README.md").read_text()
    assert [str(page) for page in PAGES[1:] if f"| [{page}]({page}) |" not in table] == []


def test_every_endpoint_in_the_docs_exists() -> None:
    paths = json.loads(Path("docs/generated/openapi.json").read_text())["paths"]
    endpoints = [
        (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path)))
        for path, methods in paths.items()
        for method in methods
    ]
    named = [
        (page.name, *found)
        for page in PAGES
        for found in re.findall(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}.-]*[\w}])", page.read_text())
    ]
    assert len(named) > 50
    assert [
        (page, verb, path)
        for page, verb, path in named
        if not any(verb == method and pattern.fullmatch(path) for method, pattern in endpoints)
    ] == []
