"""`port.KubernetesPort` with lightkube.

We use the request layer below its AsyncClient, because that one cannot name the uid of what it deletes, and gives no
place for parameters of our own. Objects stay dictionaries, so lightkube's models are not used.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import cache
from typing import Any

import httpx2
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as Address
from lightkube.config.models import Context
from lightkube.core.generic_client import ALL_NS, BasicRequest, GenericAsyncClient
from lightkube.core.resource import ApiInfo, GlobalSubResource, NamespacedSubResource, ResourceDef
from lightkube.generic_resource import (
    Generic,
    GenericGlobalResource,
    GenericNamespacedResource,
    create_api_info,
)
from lightkube.types import PatchType

from data_plane.cluster.connection import tls
from data_plane.cluster.faults import Expired, as_cluster_errors
from data_plane.cluster.port import (
    FIELD_MANAGER,
    AnswerTooLong,
    Change,
    ChangeKind,
    Cluster,
    IssuedToken,
    NotFound,
    Snapshot,
    Token,
    Unreachable,
)
from data_plane.cluster.resource import Object, Objects, Resource, resource_of
from data_plane.cluster.transport import WATCH_SECONDS, BoundedTransport, PageTooLong, Sleep

CONNECT_SECONDS_MAX = 5.0
READ_SECONDS_MAX = 15.0
"""How long an answer may pause."""
CALL_SECONDS_MAX = 55.0
"""How long one call may take, with all its pages and all waits for an overloaded API server."""
PAGE = 500
PAGE_OF_LARGE = 20
"""Of objects as large as etcd takes them. A node can make its Node so large, and must not hide the others by it."""
OBJECTS_MAX = 50_000
"""How many objects a list may have. 1,000 nodes of 110 pods are more; ask for less than that at a time."""
LISTS_MAX = 3
"""How often a list starts anew because it expired between two pages."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]{0,251}[A-Za-z0-9])?")


class _Requests(GenericAsyncClient):
    """Lightkube's requests over a connection of ours. Its own one reads the CAs of the system, which takes 0.1 s."""

    def __init__(self, cluster: Cluster, transport: BoundedTransport) -> None:
        timeout = httpx2.Timeout(READ_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        credential = cluster.credential
        headers = {"Authorization": f"Bearer {credential.value}"} if isinstance(credential, Token) else {}
        connection = httpx2.AsyncClient(
            base_url=cluster.endpoint, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )
        self.AdapterClient = lambda config, conn_parameters: connection  # noqa: ARG005 - lightkube names them
        place = SingleConfig("cluster", Context("cluster"), Address(server=cluster.endpoint))
        super().__init__(
            ConnectionParams(timeout=timeout, trust_env=False), place, field_manager=FIELD_MANAGER
        )


class LightkubePort:
    """One cluster, over a few connections that are kept. `aclose` ends them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        sleep: Sleep = asyncio.sleep,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`inner` replaces the network. Raises ssl.SSLError or ValueError when the cluster's certificates are bad."""
        network = inner or httpx2.AsyncHTTPTransport(verify=tls(cluster), trust_env=False)
        self._client = _Requests(cluster, BoundedTransport(network, sleep, server_name=cluster.server_name))

    async def aclose(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]  # lightkube left its types out.

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return _plain(await self._request("get", _class_of(resource), name=name, namespace=namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Objects:
        _, objects = await self._listed(resource, namespace, _selectors(labels, fields))
        return objects

    async def _listed(
        self, resource: Resource, namespace: str | None, selectors: dict[str, str]
    ) -> tuple[str, Objects]:
        """The version of the list, and its objects."""
        _checked(namespace)
        with as_cluster_errors():
            async with asyncio.timeout(CALL_SECONDS_MAX):
                page = PAGE
                for _ in range(LISTS_MAX):
                    try:
                        return await self._pages(resource, namespace, selectors, page)
                    except Expired:
                        continue
                    except PageTooLong:
                        if page == PAGE_OF_LARGE:
                            raise
                        page = PAGE_OF_LARGE
        raise Unreachable(f"the list of {resource.plural} expired {LISTS_MAX} times while it was read")

    async def _pages(
        self, resource: Resource, namespace: str | None, selectors: dict[str, str], page: int
    ) -> tuple[str, Objects]:
        request = self._list_request(resource, namespace, {**selectors, "limit": str(page)}, watch=False)
        objects: Objects = []
        version = ""
        with as_cluster_errors():
            async for current, items in self._client.list_chunks(request):
                version = current or ""
                objects += [_plain(item) for item in items]
                if len(objects) > OBJECTS_MAX:
                    raise AnswerTooLong(f"there are more than {OBJECTS_MAX} {resource.plural}")
        return version, objects

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Snapshot | Change, None]:
        selectors = _selectors(labels, fields)
        while True:
            version, objects = await self._listed(resource, namespace, selectors)
            yield Snapshot(tuple(objects))
            try:
                async with aclosing(self._changes(resource, namespace, selectors, version)) as changes:
                    async for change in changes:
                        yield change
            except Expired:
                continue

    async def _changes(
        self, resource: Resource, namespace: str | None, selectors: dict[str, str], version: str
    ) -> AsyncGenerator[Change, None]:
        """Changes since a version, until it has expired. Bookmarks keep the version young on a quiet watch."""
        ways = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "resourceVersion": version,
        }
        request = self._list_request(resource, namespace, {**selectors, **ways}, watch=True)
        async with aclosing(self._client.watch(request)) as events:
            while True:
                with as_cluster_errors():
                    kind, changed = await anext(events)
                if kind != "BOOKMARK":
                    yield Change(ChangeKind(kind), _plain(changed))

    def _list_request(
        self, resource: Resource, namespace: str | None, parameters: dict[str, str], *, watch: bool
    ) -> BasicRequest:
        place = ALL_NS if resource.namespaced and namespace is None else _checked(namespace)
        return self._client.prepare_request(
            "list", _class_of(resource), namespace=place, watch=watch, params=parameters
        )

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:
        resource, metadata = resource_of(intent), intent["metadata"]
        applied = await self._request(
            "patch",
            _class_of(resource),
            obj=intent,
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            headers={"Content-Type": PatchType.APPLY.value},
            params={"force": "true"} if take_over else {},
        )
        return _plain(applied)

    async def apply_status(self, intent: Object) -> Object:
        resource, metadata = resource_of(intent), intent["metadata"]
        applied = await self._request(
            "patch",
            _status_of(resource),
            obj=intent,
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            headers={"Content-Type": PatchType.APPLY.value},
            params={"force": "true"},
        )
        return _plain(applied)

    async def patch(
        self, resource: Resource, name: str, change: Object, namespace: str | None = None
    ) -> Object:
        changed = await self._request(
            "patch",
            _class_of(resource),
            obj=change,
            name=name,
            namespace=namespace,
            headers={"Content-Type": PatchType.MERGE.value},
        )
        return _plain(changed)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        # The API server also reads DeleteOptions, with the uid as a precondition, from the query.
        options = {"propagationPolicy": "Background", "uid": uid, "gracePeriodSeconds": _text(grace_s)}
        await self._request("delete", _class_of(resource), name=name, namespace=namespace, params=options)

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        kind = _subresource("policy", "Eviction", "Pod", "pods", "eviction")
        eviction = kind(
            metadata={"name": pod, "namespace": namespace},
            deleteOptions={"preconditions": {"uid": uid}},
        )
        await self._request("post", kind, obj=eviction, name=pod, namespace=namespace)

    async def request_token(self, service_account: str, namespace: str, *, life_s: int) -> IssuedToken:
        kind = _subresource(
            "authentication.k8s.io", "TokenRequest", "ServiceAccount", "serviceaccounts", "token"
        )
        wanted = kind(metadata={"namespace": namespace}, spec={"expirationSeconds": life_s})
        answer = await self._request("post", kind, obj=wanted, name=service_account, namespace=namespace)
        try:
            status = answer["status"]
            return IssuedToken(Token(status["token"]), datetime.fromisoformat(status["expirationTimestamp"]))
        except (KeyError, ValueError):
            raise Unreachable("an answer to a request for a token that holds none") from None

    async def _request(self, method: str, kind: Any, *, name: str, namespace: str | None, **rest: Any) -> Any:
        _checked(name)
        _checked(namespace)
        try:
            with as_cluster_errors():
                async with asyncio.timeout(CALL_SECONDS_MAX):
                    return await self._client.request(method, kind, name=name, namespace=namespace, **rest)
        except Expired as error:
            raise NotFound(str(error)) from None


@cache
def _class_of(resource: Resource) -> Any:
    """What lightkube reads a resource's path from. Its own registry refuses a kind that it has a model for."""
    base = GenericNamespacedResource if resource.namespaced else GenericGlobalResource
    info = create_api_info(resource.group, resource.version, resource.kind, resource.plural)
    return type(resource.kind, (base,), {"_api_info": info})


@cache
def _status_of(resource: Resource) -> Any:
    base = NamespacedSubResource if resource.namespaced else GlobalSubResource
    of = ResourceDef(resource.group, resource.version, resource.kind)
    info = ApiInfo(of, resource.plural, ["get", "patch", "put"], of, "status")
    return type(f"{resource.kind}Status", (base, Generic), {"_api_info": info})


@cache
def _subresource(group: str, kind: str, of: str, plural: str, action: str) -> Any:
    info = ApiInfo(ResourceDef(group, "v1", kind), plural, ["post"], ResourceDef("", "v1", of), action)
    return type(kind, (NamespacedSubResource, Generic), {"_api_info": info})


def _checked(name: str | None) -> str | None:
    """A name that stays one segment of a URL's path. Raises ValueError: names of nodes come from nodes."""
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a Kubernetes object")
    return name


def _selectors(labels: Mapping[str, str] | None, fields: Mapping[str, str] | None) -> dict[str, str]:
    written = {"labelSelector": labels, "fieldSelector": fields}
    return {
        key: ",".join(f"{name}={value}" for name, value in pairs.items())
        for key, pairs in written.items()
        if pairs
    }


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _plain(thing: Any) -> Object:
    return dict(thing)
