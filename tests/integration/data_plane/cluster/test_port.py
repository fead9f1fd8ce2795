"""The port against a real API server, with what cannot be provoked for real answered by somebody in between."""

from collections.abc import Callable

import httpx2
import pytest

from data_plane.cluster import lightkube_port
from data_plane.cluster.connection import tls
from data_plane.cluster.faults import Expired
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Change, Conflict, NotFound, Snapshot, Token, Unauthorized, Unreachable
from data_plane.cluster.resource import NODE, SECRET, Object, Resource, head
from data_plane.cluster.tenant import remove_tenant
from tests.support.kubernetes.clients import cluster, eventually, held, merge, new_name, port, raw
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES


def _secret(tenant: Tenant, name: str, **values: str) -> Object:
    return {**head(SECRET, name, tenant.namespace), "stringData": values}


class InBetween(httpx2.AsyncBaseTransport):
    """Passes requests on to the API server, but for those that `lie` answers itself."""

    def __init__(self, plane: ControlPlane, lie: Callable[[httpx2.Request], httpx2.Response | None]) -> None:
        self._real = httpx2.AsyncHTTPTransport(verify=tls(cluster(plane, plane.admin)))
        self._lie = lie

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._lie(request) or await self._real.handle_async_request(request)

    async def aclose(self) -> None:
        await self._real.aclose()


async def test_an_object_is_applied_read_and_deleted(admin: LightkubePort, tenant: Tenant) -> None:
    applied = await admin.apply(_secret(tenant, "s", a="1"))
    again = await admin.apply(_secret(tenant, "s", a="1"))
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    assert (await admin.get(SECRET, "s", tenant.namespace))["data"] == {"a": "MQ=="}
    await admin.delete(SECRET, "s", tenant.namespace)
    with pytest.raises(NotFound):
        await admin.get(SECRET, "s", tenant.namespace)
    with pytest.raises(NotFound):
        await admin.delete(SECRET, "s", tenant.namespace)


async def test_a_field_of_somebody_else_is_a_conflict_that_names_them_until_it_is_taken_over(
    admin: LightkubePort, kubernetes: ControlPlane, tenant: Tenant
) -> None:
    await admin.apply(_secret(tenant, "s"))
    async with raw(kubernetes, kubernetes.admin) as client:
        path = f"/api/v1/namespaces/{tenant.namespace}/secrets/s?fieldManager=somebody"
        (await merge(client, path, {"metadata": {"labels": {"x": "theirs"}}})).raise_for_status()
    ours = head(SECRET, "s", tenant.namespace, labels={"x": "ours"})
    with pytest.raises(Conflict) as caught:
        await admin.apply(ours)
    assert caught.value.managers == ("somebody",)
    taken = await admin.apply(ours, take_over=True)
    assert taken["metadata"]["labels"] == {"x": "ours"}
    # What an intent no longer has is removed.
    assert "labels" not in (await admin.apply(_secret(tenant, "s")))["metadata"]


async def test_a_deletion_is_for_one_uid_and_a_change_for_one_version(
    admin: LightkubePort, tenant: Tenant
) -> None:
    first = await admin.apply(_secret(tenant, "s", a="1"))
    await admin.delete(SECRET, "s", tenant.namespace)
    second = await admin.apply(_secret(tenant, "s", a="2"))
    with pytest.raises(Conflict):
        await admin.delete(SECRET, "s", tenant.namespace, uid=first["metadata"]["uid"])
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"], "labels": {"x": "1"}}}
    with pytest.raises(Conflict):
        await admin.patch(SECRET, "s", stale, tenant.namespace)
    await admin.delete(SECRET, "s", tenant.namespace, uid=second["metadata"]["uid"])


async def test_a_watch_shows_what_is_there_and_then_each_change(admin: LightkubePort, tenant: Tenant) -> None:
    await admin.apply(_secret(tenant, "a"))
    watch = admin.watch(SECRET, tenant.namespace, fields={"type": "Opaque"})
    snapshot = await anext(watch)
    assert isinstance(snapshot, Snapshot)
    assert [thing["metadata"]["name"] for thing in snapshot.objects] == ["a"]
    await admin.apply(_secret(tenant, "b"))
    await admin.apply(_secret(tenant, "b", x="1"))
    await admin.delete(SECRET, "b", tenant.namespace)
    seen = [await anext(watch) for _ in range(3)]
    kinds = [
        (change.kind, change.changed["metadata"]["name"]) for change in seen if isinstance(change, Change)
    ]
    assert kinds == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


async def _new_kind(plane: ControlPlane, admin: LightkubePort) -> Resource:
    """A kind that the API server knows from now on, so that every earlier version is too old for it."""
    kind = Resource(f"{new_name('group')}.example.com", "v1", "Probe", "probes", namespaced=False)
    schema = {"openAPIV3Schema": {"type": "object"}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"probes.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {"kind": kind.kind, "plural": kind.plural},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }

    async def is_known() -> bool:
        try:
            return await admin.list(kind) == []
        except NotFound:
            return False

    async with raw(plane, plane.admin) as client:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        (await client.post(path, json=definition)).raise_for_status()
    await eventually("the kind is known", is_known)
    return kind


async def test_a_version_that_is_too_old_to_watch_from_makes_a_new_snapshot(
    kubernetes: ControlPlane, admin: LightkubePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = await _new_kind(kubernetes, admin)
    with pytest.raises(Expired):
        await anext(admin._changes(kind, None, {}, "1"))
    listed = LightkubePort._listed

    async def old(self: LightkubePort, *arguments: object) -> tuple[str, list[Object]]:
        _, objects = await listed(self, *arguments)  # type: ignore[arg-type]  # Passed on as they came.
        return "1", objects

    monkeypatch.setattr(LightkubePort, "_listed", old)
    watch = admin.watch(kind)
    seen = [await anext(watch) for _ in range(3)]
    assert all(isinstance(event, Snapshot) for event in seen)


async def test_an_overload_and_an_expired_page_end_in_the_whole_list(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lightkube_port, "PAGE", 2)
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await admin.apply(_secret(tenant, name))
    lies = [
        httpx2.Response(429, headers={"Retry-After": "1"}),
        None,
        httpx2.Response(410, json={"kind": "Status", "code": 410, "reason": "Expired"}),
    ]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    between = InBetween(kubernetes, lambda _: lies.pop(0) if lies else None)
    client = LightkubePort(cluster(kubernetes, kubernetes.admin), sleep=sleep, inner=between)
    listed = await client.list(SECRET, tenant.namespace)
    assert [secret["metadata"]["name"] for secret in listed] == names
    assert waits == [1.0]
    await client.aclose()


async def test_an_aggregated_api_that_is_away_harms_no_other_call_and_is_named_where_it_blocks(
    kubernetes: ControlPlane, admin: LightkubePort, tenant: Tenant
) -> None:
    away = Resource("away.example.com", "v1", "Thing", "things", namespaced=True)
    service = {"namespace": "kube-system", "name": "nobody", "port": 443}
    spec = {"group": away.group, "version": "v1", "service": service, "insecureSkipTLSVerify": True}
    name = f"v1.{away.group}"
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {**spec, "groupPriorityMinimum": 100, "versionPriority": 10},
    }
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    async with raw(kubernetes, kubernetes.admin) as client:
        (await client.post(path, json=api)).raise_for_status()
        try:
            # Until the aggregator has noticed, the path is unknown.
            async def is_away() -> bool:
                try:
                    await admin.list(away, tenant.namespace)
                except NotFound:
                    return False
                except Unreachable:
                    return True
                return False

            await eventually("the API is away", is_away)
            await admin.apply(_secret(tenant, "s"))
            assert len(await admin.list(SECRET, tenant.namespace)) == 1
            assert isinstance(await anext(admin.watch(SECRET, tenant.namespace)), Snapshot)

            async def is_blocked() -> bool:
                return away.group in (await remove_tenant(admin, tenant, held) or "")

            await eventually("the namespace says what it waits for", is_blocked)
        finally:
            (await client.delete(f"{path}/{name}")).raise_for_status()

    async def is_gone() -> bool:
        return await remove_tenant(admin, tenant, held) is None

    await eventually("the namespace is gone", is_gone)


async def test_who_cannot_be_trusted_or_does_not_trust_us_is_an_error(kubernetes: ControlPlane) -> None:
    stranger = cluster(kubernetes, kubernetes.admin)
    authority = kubernetes.credentials.authority("request-header-ca").certificate.decode()
    wrong = LightkubePort(type(stranger)(stranger.endpoint, authority, stranger.credential))
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        await wrong.list(NODE)
    await wrong.aclose()
    bad = port(kubernetes, Token(new_name("not-a-token-")))
    with pytest.raises(Unauthorized):
        await bad.list(NODE)
    await bad.aclose()
