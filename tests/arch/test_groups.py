"""Tests that share something dear run on one worker."""

import pytest


@pytest.mark.xdist_group("groups")
def test_the_controller_is_told_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    by_group = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@groups") == by_group
