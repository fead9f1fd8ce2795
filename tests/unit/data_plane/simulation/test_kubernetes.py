"""The simulated API server answers as the real one does, as far as scenario tests rely on it."""

from contextlib import aclosing
from datetime import timedelta

import pytest

from data_plane.cluster.port import Change, ChangeKind, Cluster, Conflict, NotFound, Snapshot, Token
from data_plane.cluster.resource import NAMESPACE, NODE, SERVICE_ACCOUNT, head
from data_plane.simulation.kubernetes import FakeClusters, FakeKubernetes
from tests.support.clock import Clock


def _server() -> tuple[FakeKubernetes, Clock]:
    clock = Clock()
    return FakeKubernetes(clock.now), clock


async def test_applying_changes_the_fields_of_the_intent_and_removes_those_that_it_had_before() -> None:
    server, _ = _server()
    node = head(NODE, "n", labels={"a": "1", "b": "2"})
    made = await server.apply(node)
    await server.patch(NODE, "n", {"metadata": {"labels": {"c": "3"}}, "spec": {"unschedulable": True}})
    changed = await server.apply(head(NODE, "n", labels={"a": "4"}))
    assert changed["metadata"]["labels"] == {"a": "4", "c": "3"}
    assert changed["spec"] == {"unschedulable": True}
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(Conflict):
        await server.patch(NODE, "n", {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}})


async def test_a_namespace_goes_with_everything_in_it_and_nothing_is_made_without_one() -> None:
    server, _ = _server()
    account = head(SERVICE_ACCOUNT, "a", "tenant")
    with pytest.raises(NotFound):
        await server.apply(account)
    await server.apply(head(NAMESPACE, "tenant"))
    await server.apply(account)
    with pytest.raises(Conflict):
        await server.delete(NAMESPACE, "tenant", uid="another")
    await server.delete(NAMESPACE, "tenant")
    assert server.named(SERVICE_ACCOUNT) == set()


async def test_a_token_opens_until_its_time_is_over_or_its_account_is_another_one() -> None:
    server, clock = _server()
    account = head(SERVICE_ACCOUNT, "a", "default")
    await server.apply(account)
    issued = await server.request_token("a", "default", life_s=600)
    assert server.opens(issued.token.value)
    await server.delete(SERVICE_ACCOUNT, "a", "default")
    await server.apply(account)
    assert not server.opens(issued.token.value)
    again = await server.request_token("a", "default", life_s=600)
    clock.advance(timedelta(minutes=10).total_seconds())
    assert not server.opens(again.token.value)


async def test_a_watch_tells_what_is_there_and_then_each_change() -> None:
    server, _ = _server()
    await server.apply(head(NODE, "old"))
    async with aclosing(server.watch(NODE)) as changes:
        first = await anext(changes)
        assert isinstance(first, Snapshot)
        assert [node["metadata"]["name"] for node in first.objects] == ["old"]
        await server.apply(head(NAMESPACE, "unseen"))
        await server.delete(NODE, "old")
        second = await anext(changes)
        assert isinstance(second, Change)
        assert (second.kind, second.changed["metadata"]["name"]) == (ChangeKind.DELETED, "old")


async def test_each_endpoint_is_a_cluster_of_its_own() -> None:
    clusters = FakeClusters(Clock().now)
    for endpoint in ("https://a", "https://b"):
        async with clusters.connect(Cluster(endpoint, "", Token(""))) as port:
            await port.apply(head(NODE, endpoint[-1]))
    assert clusters.at("https://a").named(NODE) == {"a"}
