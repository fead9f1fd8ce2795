"""Answers a shell that asks how a command line goes on. `splitplane completion SHELL` prints what makes it ask."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import Any

from control_plane.cli.answers import Answer
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Parser
from control_plane.cli.terminal import Terminal

TRY_SECONDS = 1.0
"""How long the API is asked for names; a person who pressed Tab waits without a sign of life."""
LISTS = {
    "LEASE": "/v1/leases",
    "SKU": "/v1/skus",
    "PROJECT": "/v1/projects",
    "KEY": "/v1/ssh-keys",
    "NETWORK": "/v1/projects/default/networks",
    "CLUSTER": "/v1/clusters",
    "POOL": "/v1/node-pools",
    "NODE": "/v1/nodes",
}
"""The lists whose names complete an argument, by its place holder in the help."""


def answer(terminal: Terminal, parser: Callable[[str | None], Parser]) -> None:
    """Print the completions and exit, if a shell asks for them; otherwise return."""
    if "_ARGCOMPLETE" not in terminal.environ:
        return
    import argcomplete  # noqa: PLC0415 - only a shell that asks needs it.
    from argcomplete.completers import BaseCompleter, FilesCompleter  # noqa: PLC0415 - only a shell that asks needs it

    words = terminal.environ.get("COMP_LINE", "").split()
    asked = parser(words[1] if len(words) > 1 else None)

    class Completer(BaseCompleter):
        def __call__(
            self, *, prefix: str, action: Action, parser: ArgumentParser, parsed_args: Namespace
        ) -> Iterable[str]:
            if action.metavar == "FILE":
                return FilesCompleter()(prefix=prefix, action=action, parser=parser, parsed_args=parsed_args)
            return names(terminal, action)

    argcomplete.autocomplete(asked, default_completer=Completer())


def names(terminal: Terminal, action: Action) -> list[str]:
    """The names that an argument takes; none when the API does not answer, or has no list of them."""
    path = LISTS.get(str(action.metavar))
    if path is None:
        return []
    terminal.timeout = TRY_SECONDS  # An outage is reported after a longer time, so nothing is printed.
    try:
        page: Answer[dict[str, Any]] = terminal.client().whole(path, dict)
    except CliError:
        return []
    found = [item.get("name") for item in page.content.get("items", ()) if isinstance(item, dict)]
    return [name for name in found if isinstance(name, str) and name.isprintable()]
