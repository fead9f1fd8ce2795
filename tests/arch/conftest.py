"""The rules of the house look at all of the tree, so they run on one worker, which parses it once."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("tree"))
