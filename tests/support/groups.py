"""Keeps tests of one `xdist_group` on one worker, which pytest-xdist 3.8 means to do and with pytest 9.2 does not.

It writes the group to an attribute that pytest no longer reads, so that nothing is grouped and nobody is told. What tests
of a group share (machines that booted, a control plane) is then made by each worker.
"""

import pytest
from _pytest.nodeid import coerce_node_id


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give items the ids by which the controller groups them: `...::test_name@group`. Only workers do."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and "@" not in item.nodeid:
            item._id = coerce_node_id(f"{item.nodeid}@{mark.args[0]}")
