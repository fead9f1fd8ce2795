"""Fixtures of real Kubernetes. The root conftest imports them."""

from collections.abc import Iterator

import pytest

from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes.binaries import OF_KUBERNETES
from tests.support.kubernetes.control_plane import ControlPlane, running


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The test run's control plane. Every test that takes it is marked `KUBERNETES` and uses a namespace of its own."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with running(folder, OF_KUBERNETES.built(expected_version())) as plane:
        yield plane
