"""Simulated API servers of clusters, for development without root, and for scenario tests.

They keep objects as Kubernetes does, with versions, uids and field-wise applying, and run no controller: no pod is
scheduled, and a namespace is gone with everything in it as soon as it is deleted.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from data_plane.cluster.port import (
    Change,
    ChangeKind,
    Cluster,
    ClusterError,
    Conflict,
    Invalid,
    IssuedToken,
    KubernetesPort,
    NotFound,
    Snapshot,
    Token,
    Unreachable,
)
from data_plane.cluster.resource import (
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    VALIDATING_ADMISSION_POLICY,
    Object,
    Objects,
    Resource,
    head,
    resource_of,
)

Place = tuple[str, str | None, str]
"""Plural, namespace and name."""
TOKEN_SECONDS_MIN = 600


@dataclass
class FakeKubernetes:
    """The API server of one cluster, as its administrator uses it."""

    now: Callable[[], datetime]
    objects: dict[Place, Object] = field(default_factory=dict[Place, Object])
    tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict[str, tuple[str, datetime]])
    """The uid of the ServiceAccount and the end of each token."""
    fail_next: list[ClusterError] = field(default_factory=list[ClusterError])
    """Each call raises the first entry, if any, and does nothing."""
    away: bool = False
    """Every call fails, as when its host is down."""
    refuse_patches: set[str] = field(default_factory=set[str])
    """The kinds, in the plural, of which no object can be patched, as when somebody else changes it all the time."""
    pods_until_rules_bind: int = 1
    """So many pods pass after an admission policy was applied: the real one takes seconds too."""
    _applied: dict[Place, Object] = field(default_factory=dict[Place, Object])
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    watched_by: list["asyncio.Queue[Change | None]"] = field(
        default_factory=list["asyncio.Queue[Change | None]"]
    )
    """One for each watch. None ends it as a lost connection does."""

    def __post_init__(self) -> None:
        for name in ("default", "kube-system"):
            self._store((NAMESPACE.plural, None, name), head(NAMESPACE, name))

    def opens(self, token: str) -> bool:
        """Whether the API server accepts a token: its account exists, and its time is not over."""
        uid, ends_at = self.tokens.get(token, ("", self.now()))
        accounts = (each for place, each in self.objects.items() if place[0] == SERVICE_ACCOUNT.plural)
        return self.now() < ends_at and any(each["metadata"]["uid"] == uid for each in accounts)

    def named(self, resource: Resource) -> set[str]:
        """The names of all objects of a kind."""
        return {name for plural, _, name in self.objects if plural == resource.plural}

    def put(self, thing: Object) -> None:
        """Store what somebody else than us writes, such as a kubelet."""
        metadata = thing["metadata"]
        self._store((resource_of(thing).plural, metadata.get("namespace"), metadata["name"]), thing)

    def break_watches(self) -> None:
        """Every watch that is open loses its connection."""
        for queue in self.watched_by:
            queue.put_nowait(None)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        self._call()
        return copy.deepcopy(self._found(resource, name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Objects:
        self._call()
        return [
            copy.deepcopy(thing)
            for (plural, where, _), thing in sorted(self.objects.items(), key=lambda pair: str(pair[0]))
            if plural == resource.plural
            and namespace in (None, where)
            and _has_labels(thing, labels)
            and _has_fields(thing, fields)
        ]

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Snapshot | Change, None]:
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self.watched_by.append(queue)
        try:
            yield Snapshot(tuple(await self.list(resource, namespace, labels=labels, fields=fields)))
            while True:
                change = await queue.get()
                if change is None:
                    raise Unreachable("the connection of the watch was lost")
                thing = change.changed
                if (
                    resource_of(thing) == resource
                    and namespace in (None, thing["metadata"].get("namespace"))
                    and _has_labels(thing, labels)
                    and _has_fields(thing, fields)
                ):
                    yield change
        finally:
            self.watched_by.remove(queue)

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:  # noqa: ARG002 - nobody else writes here
        self._call()
        resource, metadata = resource_of(intent), intent["metadata"]
        place = (resource.plural, metadata.get("namespace"), metadata["name"])
        self._in_namespace(place)
        before = self.objects.get(place)
        if before is None:
            self._admit(resource, intent)
        base = _without(before or {}, self._applied.get(place, {}), intent)
        self._applied[place] = copy.deepcopy(intent)
        return copy.deepcopy(self._store(place, _merged(base, intent)))

    async def apply_status(self, intent: Object) -> Object:
        self._call()
        resource, metadata = resource_of(intent), intent["metadata"]
        before = self._found(resource, metadata["name"], metadata.get("namespace"))
        if before.get("status") == intent["status"]:
            return copy.deepcopy(before)
        place = (resource.plural, metadata.get("namespace"), metadata["name"])
        return copy.deepcopy(self._store(place, {**before, "status": intent["status"]}))

    async def patch(
        self, resource: Resource, name: str, change: Object, namespace: str | None = None
    ) -> Object:
        self._call()
        if resource.plural in self.refuse_patches:
            raise Conflict(f"{name} was changed meanwhile")
        before = self._found(resource, name, namespace)
        version = change.get("metadata", {}).get("resourceVersion")
        if version not in (None, before["metadata"]["resourceVersion"]):
            raise Conflict(f"{resource.kind} {name} was changed meanwhile")
        place = (resource.plural, namespace, name)
        stored = copy.deepcopy(self._store(place, _merged(before, change)))
        if "deletionTimestamp" in stored["metadata"] and not stored["metadata"].get("finalizers"):
            self._drop(place)
        return stored

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,  # noqa: ARG002 - no pod runs here that could use it
    ) -> None:
        self._call()
        found = self._found(resource, name, namespace)
        if uid not in (None, found["metadata"]["uid"]):
            raise Conflict(f"{resource.kind} {name} is another one by now")
        if found["metadata"].get("finalizers"):
            marked = {**found["metadata"], "deletionTimestamp": self.now().isoformat()}
            self._store((resource.plural, namespace, name), {**found, "metadata": marked})
            return
        self._drop((resource.plural, namespace, name))
        if resource == NAMESPACE:
            for place in [place for place in self.objects if place[1] == name]:
                self._drop(place)

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        await self.delete(POD, pod, namespace, uid=uid)

    async def request_token(self, service_account: str, namespace: str, *, life_s: int) -> IssuedToken:
        self._call()
        account = self._found(SERVICE_ACCOUNT, service_account, namespace)
        if life_s < TOKEN_SECONDS_MIN:
            raise Invalid(f"spec.expirationSeconds: may not be less than {TOKEN_SECONDS_MIN}")
        value, ends_at = f"simulated-token-{next(self._numbers)}", self.now() + timedelta(seconds=life_s)
        self.tokens[value] = account["metadata"]["uid"], ends_at
        return IssuedToken(Token(value), ends_at)

    def _call(self) -> None:
        if self.away:
            raise Unreachable("the host of the API server is away")
        if self.fail_next:
            raise self.fail_next.pop(0)

    def _found(self, resource: Resource, name: str, namespace: str | None) -> Object:
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound(f'{resource.plural} "{name}" not found')
        return found

    def _in_namespace(self, place: Place) -> None:
        if place[1] is not None and (NAMESPACE.plural, None, place[1]) not in self.objects:
            raise NotFound(f'namespaces "{place[1]}" not found')

    def _admit(self, resource: Resource, intent: Object) -> None:
        """As our admission policies do, once they bind."""
        if resource != POD or not self.named(VALIDATING_ADMISSION_POLICY):
            return
        if self.pods_until_rules_bind > 0:
            self.pods_until_rules_bind -= 1
        elif str(intent["spec"].get("priorityClassName", "")).startswith("system-"):
            raise Invalid("priority classes of the system are not for workloads")

    def _store(self, place: Place, thing: Object) -> Object:
        before = self.objects.get(place)
        number = next(self._numbers)
        metadata = {
            "uid": f"uid-{number}",
            "creationTimestamp": self.now().isoformat(),
            **thing["metadata"],
            "resourceVersion": str(number),
        }
        stored = self.objects[place] = copy.deepcopy({**thing, "metadata": metadata})
        self._tell(ChangeKind.MODIFIED if before else ChangeKind.ADDED, stored)
        return stored

    def _drop(self, place: Place) -> None:
        self._applied.pop(place, None)
        self._tell(ChangeKind.DELETED, self.objects.pop(place))

    def _tell(self, kind: ChangeKind, thing: Object) -> None:
        for queue in self.watched_by:
            queue.put_nowait(Change(kind, copy.deepcopy(thing)))


@dataclass
class FakeClusters:
    """A simulated API server for each endpoint, made when it is first connected to."""

    now: Callable[[], datetime]
    report: Callable[[FakeKubernetes], Awaitable[None]] | None = None
    """What kubelets tell an API server before it is asked (`kubelets.py`)."""
    servers: dict[str, FakeKubernetes] = field(default_factory=dict[str, FakeKubernetes])

    def at(self, endpoint: str) -> FakeKubernetes:
        if endpoint not in self.servers:
            self.servers[endpoint] = FakeKubernetes(self.now)
        return self.servers[endpoint]

    @asynccontextmanager
    async def connect(self, cluster: Cluster) -> AsyncIterator[KubernetesPort]:
        server = self.at(cluster.endpoint)
        if self.report is not None:
            await self.report(server)
        yield server


def _has_labels(thing: Object, labels: Mapping[str, str] | None) -> bool:
    own = thing["metadata"].get("labels", {})
    return all(own.get(name) == value for name, value in (labels or {}).items())


def _has_fields(thing: Object, fields: Mapping[str, str] | None) -> bool:
    return all((_at(thing, path.split(".")) or "") == value for path, value in (fields or {}).items())


def _at(thing: Any, path: list[str]) -> Any:
    for part in path:
        thing = thing.get(part) if isinstance(thing, dict) else None
    return thing


def _merged(base: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7396): null removes a field, and a list is replaced as a whole."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = dict(base)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name, {}), value)
    return result


def _without(thing: Object, applied: Object, intent: Object) -> Object:
    """The object without the fields that were applied before and that the intent has no more."""
    result = {}
    for name, value in thing.items():
        if name in applied and name not in intent:
            continue
        before, after = applied.get(name), intent.get(name)
        if isinstance(value, dict) and isinstance(before, dict) and isinstance(after, dict):
            result[name] = _without(value, before, after)
        else:
            result[name] = value
    return result
