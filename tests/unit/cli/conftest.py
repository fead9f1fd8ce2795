"""What tests of commands share."""

from collections.abc import Iterator
from functools import cache

import pytest

from control_plane.cli import main


@pytest.fixture(scope="session", autouse=True)
def parsers() -> Iterator[None]:
    """The parser of a command is made once, and not for each of thousands of runs.

    A process makes one. Parsing leaves it as it was, and making it took half of the time of these tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "parser", cache(main.parser))
        yield
