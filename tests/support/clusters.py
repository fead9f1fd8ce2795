"""Clusters on a stage, with simulated servers."""

from sqlalchemy import text

from control_plane.db import kubeconfigs, projects, ssh_authorities
from control_plane.db.issued import revoke_these
from control_plane.domain.cluster import Cluster
from control_plane.domain.ids import KubeconfigId, OrganizationId, ServiceAccountId
from control_plane.domain.kubeconfig import Kubeconfig, KubeconfigRole, Revocation
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.services import clusters, server_hosts
from control_plane.world import uuid7
from tests.support.rows import rows
from tests.support.stage import Stage

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
REGION = "eu-central-1"


async def created(stage: Stage, name: str, *, on_new_host: bool = True) -> Cluster:
    """A shared cluster, on a host of its own or on a free one. There has to be an organization of operators."""
    async with stage.db.transaction() as connection:
        platform = await ssh_authorities.owner(connection)
        assert platform is not None
        if on_new_host:
            await server_hosts.add(
                connection,
                stage.api,
                name=f"host of {name}",
                region=REGION,
                address=f"{name}.internal",
                ssh_port=22,
                host_key=HOST_KEY,
                outside=None,
            )
        made = await clusters.create(
            connection,
            stage.api,
            name=name,
            region=REGION,
            dedicated_to=None,
            platform=OrganizationId(platform),
        )
    assert isinstance(made, Cluster), made
    return made


async def deleted(stage: Stage, name: str) -> None:
    async with stage.db.transaction() as connection:
        platform = await ssh_authorities.owner(connection)
        assert platform is not None
        of = OrganizationId(platform)
        assert isinstance(await clusters.delete(connection, stage.api, name, platform=of), Cluster)


async def key_asked(stage: Stage, name: str) -> None:
    """An operator asks for another key of its server."""
    async with stage.db.transaction() as connection:
        platform = await ssh_authorities.owner(connection)
        assert platform is not None
        of = OrganizationId(platform)
        assert isinstance(await clusters.rotate_key(connection, stage.api, name, platform=of), Cluster)


RECIPIENT = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
"""The public X25519 key of RFC 7748, 6.1."""
_ACCOUNT = text("SELECT id FROM service_accounts WHERE organization_id = :id")
_MAKE_ACCOUNT = text("""
INSERT INTO service_accounts (id, organization_id, name, state, created_at) VALUES (:id, :of, 'test', 'active', :now)
""")


async def asked(stage: Stage, cluster: Cluster, organization_id: OrganizationId, name: str) -> Kubeconfig:
    """A kubeconfig that is requested of the default project."""
    now = stage.clock.now()
    async with stage.db.transaction() as connection:
        found = await rows(connection, _ACCOUNT, id=organization_id)
        account = ServiceAccountId(found[0].id if found else uuid7())
        if not found:
            await connection.execute(_MAKE_ACCOUNT, {"id": account, "of": organization_id, "now": now})
        project = await projects.default(connection, organization_id)
        wanted = Kubeconfig(
            id=KubeconfigId(uuid7()),
            organization_id=organization_id,
            project_id=project.id,
            cluster_id=cluster.id,
            name=name,
            role=KubeconfigRole.EDIT,
            lasts_seconds=86_400,
            recipient=RECIPIENT,
            subject=Subject(SubjectKind.SERVICE_ACCOUNT, account),
            credential="key_" + "0" * 32,
            credential_ends_at=None,
            rotates=None,
            overlap_seconds=None,
            requested_at=now,
        )
        return await kubeconfigs.insert(connection, wanted, now=now)


async def revoked(stage: Stage, kubeconfig: Kubeconfig) -> None:
    async with stage.db.transaction() as connection:
        why, now = Revocation.REQUESTED, stage.clock.now()
        organization_id = kubeconfig.organization_id
        await revoke_these(connection, kubeconfigs.REVOCABLE, organization_id, [kubeconfig.id], why, now=now)


async def issued(stage: Stage, cluster: Cluster, organization_id: OrganizationId, name: str) -> Kubeconfig:
    """A kubeconfig that opens the namespace of the default project."""
    made = await asked(stage, cluster, organization_id, name)
    for _ in range(2):
        await stage.run("keep_tenants")
        stage.clock.advance(1)
    await stage.run("keep_kubeconfigs")
    return made
