"""Kubeconfigs: request, read, rotate and revoke them. The reconciler issues them, as the API reaches no cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import clusters, issued, kubeconfigs, projects
from control_plane.db.connection import Connection
from control_plane.domain.access import Principal, Reach
from control_plane.domain.cluster import Cluster
from control_plane.domain.ids import KubeconfigId, OrganizationId, ProjectId
from control_plane.domain.kubeconfig import (
    Kubeconfig,
    KubeconfigRole,
    KubeconfigState,
    Revocation,
    refusal,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.services.clusters import find as find_cluster
from control_plane.services.projects import named as named_project
from control_plane.world import World

__all__ = [
    "Kubeconfig",
    "KubeconfigRole",
]  # For controllers and views, which must not import the layer below.

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "There is no kubeconfig with this id.")


@dataclass(frozen=True, slots=True)
class WantedKubeconfig:
    """What a request says of a new kubeconfig."""

    name: str
    project: str | None
    """Its name or its id; the default project when it is None."""
    role: KubeconfigRole
    lasts: timedelta
    recipient: bytes


@dataclass(frozen=True, slots=True)
class Shown:
    """A kubeconfig with the names that its reader knows."""

    kubeconfig: Kubeconfig
    cluster: str
    project: str


async def request(
    connection: Connection,
    world: World,
    principal: Principal,
    cluster: str,
    wanted: WantedKubeconfig,
    *,
    reach: Reach,
) -> Shown | Refused:
    """Request a kubeconfig for the namespace of a project in a cluster, which is named by its name or its id.

    The caller holds the principal's credential and organization, so that whoever takes the right away finds it.
    """
    found = await find_cluster(connection, principal.organization_id, cluster)
    if isinstance(found, Refused):
        return found
    project_id = await _project(connection, principal.organization_id, wanted.project, reach)
    if isinstance(project_id, Refused):
        return project_id
    return await _insert(connection, world, principal, found, wanted, project_id=project_id)


async def _project(
    connection: Connection, organization_id: OrganizationId, word: str | None, reach: Reach
) -> ProjectId | Refused:
    if word is None:
        project_id = (await projects.default(connection, organization_id)).id
        why = "You may not create kubeconfigs of the default project; name the project that you work in."
    else:
        found = await named_project(connection, organization_id, word, reach=reach)
        if isinstance(found, Refused):
            return found
        project_id = found.id
        why = f"You may not create kubeconfigs of all of the project {found.name!r}."
    if reach.contains(Scope(ScopeKind.PROJECT, project_id)):
        return project_id
    return Refused(RefusalCode.PROJECT_UNKNOWN, why)


async def _insert(
    connection: Connection,
    world: World,
    principal: Principal,
    cluster: Cluster,
    wanted: WantedKubeconfig,
    *,
    project_id: ProjectId,
    rotates: KubeconfigId | None = None,
    overlap: timedelta | None = None,
) -> Shown | Refused:
    organization_id, now = principal.organization_id, world.now()
    live = await kubeconfigs.count_live(connection, organization_id, project_id, cluster.id, now=now)
    refused = refusal(cluster, live)
    if refused is not None:
        return refused
    stored = await kubeconfigs.insert(
        connection,
        Kubeconfig(
            id=KubeconfigId(world.new_id()),
            organization_id=organization_id,
            project_id=project_id,
            cluster_id=cluster.id,
            name=wanted.name,
            role=wanted.role,
            lasts_seconds=int(wanted.lasts.total_seconds()),
            recipient=wanted.recipient,
            subject=principal.subject,
            credential=principal.credential_name,
            credential_ends_at=principal.expires_at,
            rotates=rotates,
            overlap_seconds=None if overlap is None else int(overlap.total_seconds()),
            requested_at=now,
        ),
        now=now,
    )
    return await _shown(connection, stored)


async def rotate(
    connection: Connection,
    world: World,
    principal: Principal,
    kubeconfig_id: UUID,
    recipient: bytes,
    *,
    overlap: timedelta,
    reach: Reach,
) -> Shown | Refused:
    """Request a kubeconfig in place of an issued one, which ends so long after the new one is issued."""
    organization_id, now = principal.organization_id, world.now()
    old = await kubeconfigs.get(connection, organization_id, kubeconfig_id, lock=True)
    if old is None or not reach.contains(old.scope):
        return _UNKNOWN
    if old.state(now) is not KubeconfigState.ISSUED:
        why = f"The kubeconfig is {old.state(now)}; one that is issued can be rotated. Create another one."
        return Refused(RefusalCode.STATE_CONFLICT, why)
    cluster = await clusters.get(connection, old.cluster_id)
    if cluster is None:
        raise LookupError(f"{old.wire_id} is of a cluster that never was")
    lasts = timedelta(seconds=old.lasts_seconds)
    wanted = WantedKubeconfig(old.name, None, old.role, lasts, recipient)
    return await _insert(
        connection,
        world,
        principal,
        cluster,
        wanted,
        project_id=old.project_id,
        rotates=old.id,
        overlap=overlap,
    )


async def show(
    world: World, organization_id: OrganizationId, kubeconfig_id: UUID, *, reach: Reach
) -> Shown | Refused:
    async with world.db.reading(organization_id) as connection:
        found = await kubeconfigs.get(connection, organization_id, kubeconfig_id)
        if found is None or not reach.contains(found.scope):
            return _UNKNOWN
        return await _shown(connection, found)


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[Shown]:
    """Kubeconfigs of the projects within reach, newest first; `before` is time and id of the last one read."""
    async with world.db.reading(organization_id) as connection:
        found = await kubeconfigs.page(connection, organization_id, reach, before=before, limit=limit)
        return [await _shown(connection, each) for each in found]


async def revoke(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    kubeconfig_id: UUID,
    *,
    reach: Reach,
) -> Shown | Refused:
    """Revoke a kubeconfig. One that is over stays as it is."""
    found = await kubeconfigs.get(connection, organization_id, kubeconfig_id, lock=True)
    if found is None or not reach.contains(found.scope):
        return _UNKNOWN
    now = world.now()
    why = Revocation.REQUESTED
    await issued.revoke_these(connection, kubeconfigs.REVOCABLE, organization_id, [found.id], why, now=now)
    changed = await kubeconfigs.get(connection, organization_id, kubeconfig_id)
    return await _shown(connection, changed or found)


async def _shown(connection: Connection, kubeconfig: Kubeconfig) -> Shown:
    cluster = await clusters.get(connection, kubeconfig.cluster_id)
    project = await projects.get(connection, kubeconfig.organization_id, kubeconfig.project_id)
    if cluster is None or project is None:
        raise LookupError(f"{kubeconfig.wire_id} is of a cluster or a project that never was")
    return Shown(kubeconfig, cluster.name, project.name)
