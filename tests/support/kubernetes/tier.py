"""What a test that needs real Kubernetes says of itself: `pytestmark = KUBERNETES`, or `NODES` if it boots nodes too."""

import pytest

from tests.support.kubernetes.requirements import reasons


def _marks(*, nodes: bool) -> list[pytest.MarkDecorator]:
    absent = reasons(nodes=nodes)
    return [
        pytest.mark.kubernetes,
        pytest.mark.xdist_group("kubernetes"),  # One worker, so that one control plane serves them all.
        pytest.mark.skipif(bool(absent), reason="; ".join(absent)),
    ]


KUBERNETES = _marks(nodes=False)
NODES = [pytest.mark.machines, *_marks(nodes=True)]
