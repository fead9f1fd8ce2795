"""What a cluster has once is kept as a whole, also where the API server refuses a part of it."""

from datetime import UTC, datetime

import pytest

from data_plane.cluster.port import Invalid
from data_plane.cluster.resource import CLUSTER_ROLE, CONFIG_MAP, SECRET, VALIDATING_ADMISSION_POLICY, Object
from data_plane.cluster.tenant import prepare_cluster
from data_plane.simulation.kubernetes import FakeKubernetes

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class _WithoutSecrets(FakeKubernetes):
    """Refuses each Secret, as a real API server does when somebody created it with another type."""

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:
        if intent["kind"] == SECRET.kind:
            raise Invalid("type: field is immutable")
        return await super().apply(intent, take_over=take_over)


async def test_an_object_that_is_refused_holds_up_no_other_one_and_is_reported() -> None:
    whole, without = FakeKubernetes(lambda: NOW), _WithoutSecrets(lambda: NOW)
    await prepare_cluster(whole, "cl-1")
    with pytest.raises(Invalid, match="immutable"):
        await prepare_cluster(without, "cl-1")
    for resource in (VALIDATING_ADMISSION_POLICY, CLUSTER_ROLE, CONFIG_MAP):
        assert without.named(resource) == whole.named(resource) != set()
    assert whole.named(SECRET)
