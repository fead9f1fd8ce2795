"""The port to a cluster's API server: what we may ask of it, and the closed set of what can go wrong.

Handled behind the port, and therefore nowhere else: an API server that is overloaded (it is asked again, as late as it
says, within a bound), a list or a watch that has expired (it starts anew), an answer that is too long or never ends,
and kinds whose API is away (nothing here depends on the list of all kinds).

Every write can be repeated: it applies a whole intent, or names the version or the uid that it is for. So after
`Unreachable`, where nobody knows whether a write took place, the next activation simply does it again.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from data_plane.cluster.resource import Object, Objects, Resource

FIELD_MANAGER = "splitplane"
"""How the fields that we set are marked in every object."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token of a ServiceAccount."""

    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    certificate: str
    """PEM."""
    key: str = field(repr=False)
    """PEM."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a cluster, and as whom."""

    endpoint: str
    """`https://HOST:PORT`"""
    authority: str
    """The PEM certificates of the cluster's CA. No other CA is trusted."""
    credential: Token | ClientCertificate
    server_name: str | None = None
    """The name that its certificate has to have; None for the one of the endpoint."""


class ClusterError(Exception):
    """What every error of the port is."""


class NotFound(ClusterError):  # noqa: N818 - reads as a sentence
    """The object does not exist, or its kind does not."""


class Conflict(ClusterError):  # noqa: N818 - reads as a sentence
    """Somebody else owns a field, or the object is another one or a newer one than the caller knew."""

    def __init__(self, message: str, managers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.managers = managers
        """Who owns the fields in question; empty when the conflict is about a version or a uid."""


class Forbidden(ClusterError):  # noqa: N818 - reads as a sentence
    """We lack the right, or an admission rule or a quota refused."""


class Unauthorized(ClusterError):  # noqa: N818 - reads as a sentence
    """The credential is not, or no longer, accepted."""


class Invalid(ClusterError):  # noqa: N818 - reads as a sentence
    """The object is refused as it is; the text says which field."""


class TooManyRequests(ClusterError):  # noqa: N818 - reads as a sentence
    """The API server stayed overloaded for as long as we wait, or a disruption budget forbids an eviction for now."""


class Unreachable(ClusterError):  # noqa: N818 - reads as a sentence
    """No answer, a broken one, or the server's own failure. Whether a write took place is unknown."""


class AnswerTooLong(ClusterError):  # noqa: N818 - reads as a sentence
    """The answer exceeds what we read."""


class ChangeKind(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects as of now. What the reader knew before and misses here is gone."""

    objects: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Change:
    kind: ChangeKind
    changed: Object


@dataclass(frozen=True, slots=True)
class IssuedToken:
    token: Token
    expires_at: datetime
    """As the API server says; it may shorten what was asked for."""


class KubernetesPort(Protocol):
    """One cluster. Any call may raise any `ClusterError`; each ends within a minute, except `watch`."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object: ...

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Objects:
        """Objects with these labels and fields, of all namespaces where none is named. It is complete, or an error."""
        ...

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Snapshot | Change, None]:
        """A snapshot, then each change; another snapshot whenever changes may have been missed.

        It has no end. Close it (`contextlib.aclosing`), which ends its connection.
        """
        ...

    async def apply(self, intent: Object, *, take_over: bool = False) -> Object:
        """Server-side apply: create the object or change it so that the fields of `intent` are as given.

        A field that we applied before and that `intent` no longer has is removed. With `take_over`, fields that others
        own become ours; without, that is a `Conflict` that names them. Take over only what is ours to decide.
        """
        ...

    async def apply_status(self, intent: Object) -> Object:
        """As `apply`, for the status of an object that exists: whatever else `intent` says has no effect.

        What others wrote into the status becomes ours.
        """
        ...

    async def patch(
        self, resource: Resource, name: str, change: Object, namespace: str | None = None
    ) -> Object:
        """Merge `change` into an object that exists. A `metadata.resourceVersion` in it has to be the current one."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete an object and, in the background, what it owns. If the name has another uid by now: Conflict."""
        ...

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        """Delete a pod with its own grace. `TooManyRequests` when a disruption budget does not permit it."""
        ...

    async def request_token(self, service_account: str, namespace: str, *, life_s: int) -> IssuedToken:
        """A token for a ServiceAccount, of at least 600 s of life."""
        ...


async def delete_if_there(
    port: KubernetesPort,
    resource: Resource,
    name: str,
    namespace: str | None = None,
    *,
    uid: str | None = None,
) -> None:
    """Delete an object, if there is one. With the uid, another one of the same name is a Conflict."""
    try:
        await port.delete(resource, name, namespace, uid=uid)
    except NotFound:
        return
