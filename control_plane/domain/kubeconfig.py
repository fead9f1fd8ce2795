"""A kubeconfig: who asked for it, which namespace it opens, and until when.

    wanted --> issued --> expired
       |          `-----> revoked
       +--> refused
       `--> revoked

The API stores a request, because it holds no credential of a cluster. The reconciler has the cluster make a token, and
seals the file for the public key of the request, so that neither the API nor the database can read it. Behind each
kubeconfig is a ServiceAccount of its own. Deleting that takes the kubeconfig back; until it is deleted, the kubeconfig
stays on the list of what the reconciler has to do.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.cluster import Cluster, ClusterState
from control_plane.domain.ids import ClusterId, KubeconfigId, OrganizationId, Prefix, ProjectId, on_wire
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.subject import Subject

LASTS_MIN = timedelta(minutes=10)
"""Kubernetes makes no token that lasts less."""
LASTS_MAX = timedelta(hours=24)
WAITS_MAX = timedelta(minutes=5)
"""A request that could not be met for so long is refused: whoever asked has given up."""
LIVE_MAX = 100
"""Kubeconfigs of a project that are wanted, or issued and not over."""


def namespace_of(project_id: ProjectId) -> str:
    """The namespace of a project in every cluster: its id, with what Kubernetes allows in names."""
    return on_wire(Prefix.PROJECT, project_id).replace("_", "-")


class KubeconfigRole(StrEnum):
    """What the holder may do in the namespace of the project."""

    VIEW = "view"
    """Read everything but Secrets."""
    EDIT = "edit"
    """Run workloads, read and write Secrets, and open shells in pods."""


class KubeconfigState(StrEnum):
    WANTED = "wanted"
    """Requested, and not issued yet."""
    ISSUED = "issued"
    REFUSED = "refused"
    """It will not be issued."""
    REVOKED = "revoked"
    EXPIRED = "expired"
    """It was issued, and its time is over."""


class IssuingRefusal(StrEnum):
    """Why a kubeconfig was not issued."""

    WAITED_TOO_LONG = "waited_too_long"
    CREDENTIAL_ENDED = "credential_ended"
    """The API key or the session that asked ended meanwhile."""
    CLUSTER_DELETED = "cluster_deleted"
    KEY_UNUSABLE = "key_unusable"
    """Nothing can be sealed for the public key of the request."""


class Revocation(StrEnum):
    """Why a kubeconfig was revoked."""

    REQUESTED = "requested"
    """Somebody revoked it."""
    CREDENTIAL_ENDED = "credential_ended"
    """The API key or the session that asked was revoked, or ended."""
    SUBJECT_ENDED = "subject_ended"
    """The user or the service account was suspended or removed."""
    ROLE_ENDED = "role_ended"
    """No role that is left lets its owner create kubeconfigs of the project."""
    ORGANIZATION_SUSPENDED = "organization_suspended"
    ORGANIZATION_CLOSED = "organization_closed"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig, from the request on."""

    id: KubeconfigId
    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    name: str
    role: KubeconfigRole
    lasts_seconds: int
    recipient: bytes
    """The X25519 public key that the file is sealed for."""
    subject: Subject
    """Who asked."""
    credential: str
    """The API key or the session that was used, as an id on the wire."""
    credential_ends_at: datetime | None
    rotates: KubeconfigId | None
    """The kubeconfig that it replaces."""
    overlap_seconds: int | None
    """How long that one is left once this one is issued; None where it replaces none."""
    requested_at: datetime
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    sealed: bytes | None = None
    """The file, which only the owner of the private key can read; None before it is issued and after its end."""
    refused_at: datetime | None = None
    refused_why: IssuingRefusal | None = None
    revoked_at: datetime | None = None
    revoked_why: Revocation | None = None
    tries: int = 0
    """Failed tries of what the reconciler does with it."""

    @property
    def wire_id(self) -> str:
        return on_wire(Prefix.KUBECONFIG, self.id)

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind.PROJECT, self.project_id)

    def state(self, now: datetime) -> KubeconfigState:
        if self.revoked_at is not None:
            return KubeconfigState.REVOKED
        if self.refused_at is not None:
            return KubeconfigState.REFUSED
        if self.expires_at is None:
            return KubeconfigState.WANTED
        return KubeconfigState.ISSUED if now < self.expires_at else KubeconfigState.EXPIRED

    def end_of_overlap(self, now: datetime, overlap: timedelta) -> datetime:
        """When it ends after its successor was issued: after the overlap, and never later than it was to."""
        end = now + overlap
        return end if self.expires_at is None else min(end, self.expires_at)


@dataclass(frozen=True, slots=True)
class Issue:
    """Have the cluster make a token that counts until then."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Refuse:
    """Store that it is not issued, and delete what a try may have left in the cluster."""

    why: IssuingRefusal


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete its ServiceAccount in the cluster."""


@dataclass(frozen=True, slots=True)
class Close:
    """The cluster is gone, and nothing of it is left there."""


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do before this moment."""

    until: datetime


Decision = Issue | Refuse | Remove | Close | Wait


def decide(kubeconfig: Kubeconfig, cluster: ClusterState, now: datetime) -> Decision:
    """What the reconciler does next with a kubeconfig that still has, or may have, something in its cluster."""
    if kubeconfig.state(now) in {
        KubeconfigState.REFUSED,
        KubeconfigState.REVOKED,
        KubeconfigState.EXPIRED,
    }:
        return Close() if cluster is ClusterState.GONE else Remove()
    if kubeconfig.expires_at is not None:
        return Close() if cluster is ClusterState.GONE else Wait(kubeconfig.expires_at)
    if cluster is not ClusterState.READY:
        return Refuse(IssuingRefusal.CLUSTER_DELETED)
    if now >= kubeconfig.requested_at + WAITS_MAX:
        return Refuse(IssuingRefusal.WAITED_TOO_LONG)
    end = now + timedelta(seconds=kubeconfig.lasts_seconds)
    if kubeconfig.credential_ends_at is not None:
        end = min(end, kubeconfig.credential_ends_at)
    return Refuse(IssuingRefusal.CREDENTIAL_ENDED) if end <= now else Issue(end)


def refusal(cluster: Cluster, live: int) -> Refused | None:
    """Why no kubeconfig is requested; None when one is. `live` is how many the project has in the cluster."""
    if cluster.state is not ClusterState.READY:
        why = f"The cluster {cluster.name!r} is {cluster.state}; a kubeconfig needs one that is ready."
        return Refused(RefusalCode.CLUSTER_NOT_READY, why)
    if live >= LIVE_MAX:
        why = f"The project has {LIVE_MAX} kubeconfigs that are not over; revoke those that nobody uses."
        return Refused(RefusalCode.KUBECONFIGS_TOO_MANY, why)
    return None
