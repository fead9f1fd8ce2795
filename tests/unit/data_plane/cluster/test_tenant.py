"""What a cluster has once is kept as a whole, also where the API server refuses a part of it."""

from datetime import UTC, datetime

import pytest

from data_plane.cluster.objects.resource_quota import Allowance
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Conflict, Forbidden, Invalid
from data_plane.cluster.resource import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    LIMIT_RANGE,
    NAMESPACE,
    NETWORK_POLICY,
    RESOURCE_QUOTA,
    SECRET,
    VALIDATING_ADMISSION_POLICY,
    Object,
    head,
)
from data_plane.cluster.tenant import keep_tenant, prepare_cluster, remove_tenant
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


class _WithoutSignal(FakeKubernetes):
    """Refuses what a tenant's workloads are asked for, as a real API server does when somebody has made it immutable, or
    has deleted it and the tenant has used up its quota since.
    """

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:
        if intent["kind"] == CONFIG_MAP.kind:
            raise Forbidden("exceeded quota")
        return await super().apply(intent, take_over=take_over)


async def test_a_place_whose_signal_is_refused_has_its_rules_and_its_quota_all_the_same() -> None:
    api, tenant = _WithoutSignal(lambda: NOW), Tenant(f"org_{0:032x}", f"prj_{1:032x}")
    with pytest.raises(Forbidden, match="quota"):
        await keep_tenant(api, tenant, Allowance(nodes=1, gpus=1, cpu_millis=1_000, memory_bytes=2**30), [])
    for resource in (NETWORK_POLICY, RESOURCE_QUOTA, LIMIT_RANGE, CLUSTER_ROLE):
        assert api.named(resource), resource


async def test_a_worker_that_stalled_before_it_removes_a_place_deletes_nothing_that_was_made_later() -> None:
    api, tenant = FakeKubernetes(lambda: NOW), Tenant(f"org_{0:032x}", f"prj_{1:032x}")
    allowance = Allowance(nodes=1, gpus=1, cpu_millis=1_000, memory_bytes=2**30)
    await keep_tenant(api, tenant, allowance, [])

    async def of_another_one() -> bool:
        return False

    async def again() -> bool:
        """Another worker removes it, and then it is needed again."""
        await api.delete(NAMESPACE, tenant.namespace)
        await keep_tenant(api, tenant, allowance, [])
        await api.apply({**head(SECRET, "of the customer", tenant.namespace), "stringData": {"a": "b"}})
        return True

    assert await remove_tenant(api, tenant, of_another_one) == "another worker looks after it"
    assert tenant.namespace in api.named(NAMESPACE)
    with pytest.raises(Conflict):
        await remove_tenant(api, tenant, again)
    assert (await api.get(SECRET, "of the customer", tenant.namespace))["stringData"] == {"a": "b"}
