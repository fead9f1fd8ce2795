"""SSH certificates: request, read and revoke them. The reconciler signs them, because the API holds no such key."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import ssh_certificates, ssh_keys
from control_plane.db.connection import Connection
from control_plane.db.ssh_certificates import Requested
from control_plane.domain.access import Principal, Reach
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, SshCertificateId, on_wire
from control_plane.domain.lease import Lease, LeaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.ssh_certificate import Admission, SshCertificate, refusal
from control_plane.domain.ssh_public_key import InvalidSshKeyError, SshPublicKey, parse
from control_plane.services import lease_reach
from control_plane.world import World

__all__ = ["SshCertificate"]  # For controllers and views, which must not import the layer below.

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "The lease has no SSH certificate with this id.")


async def request(
    connection: Connection,
    world: World,
    principal: Principal,
    lease_id: LeaseId,
    key: str,
    *,
    reach: Reach,
) -> SshCertificate | Refused:
    """Request a certificate that opens the machine of a ready lease.

    `key` is a line of a public key file, or the id of a stored key.
    The caller holds the principal's credential and organization, so that whoever takes the right away finds it.
    """
    organization_id, now = principal.organization_id, world.now()
    given = _parsed(key)
    if isinstance(given, Refused):
        return given
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        why = f"The lease is a node of the node pool {lease.node_pool!r}, and nobody logs in to a node."
        return Refused(RefusalCode.LEASE_IS_NODE, why)
    found = given or await _stored(connection, lease, key)
    if isinstance(found, Refused):
        return found
    admission = await _admission(connection, lease, found, principal, now)
    refused = refusal(admission, found)
    if refused is not None:
        return refused
    requested = Requested(
        id=SshCertificateId(world.new_id()),
        project_id=lease.project_id,
        lease_id=lease.id,
        public_key=found.line,
        fingerprint=found.fingerprint,
        subject=principal.subject,
        credential=principal.credential_name,
        credential_ends_at=principal.expires_at,
    )
    return await ssh_certificates.insert(connection, organization_id, requested, now=now)


def _parsed(key: str) -> SshPublicKey | Refused | None:
    """The key that a line of a file has; None for an id."""
    if key.startswith(f"{Prefix.SSH_KEY}_"):
        return None
    try:
        return parse(key)
    except InvalidSshKeyError as error:
        return Refused(RefusalCode.SSH_KEY_INVALID, str(error))


async def _stored(connection: Connection, lease: Lease, key_id: str) -> SshPublicKey | Refused:
    """A stored key, which is not deleted before this transaction ends: then its deletion finds the request."""
    for stored in await ssh_keys.of_project(connection, lease.organization_id, lease.project_id):
        if on_wire(Prefix.SSH_KEY, stored.id) == key_id:
            held = await ssh_keys.hold(connection, lease.organization_id, [stored.id], stored.fingerprint)
            if any(each.id == stored.id for each in held):
                return SshPublicKey(stored.public_key, stored.fingerprint)
    why = f"There is no SSH key {key_id[:60]!r} for leases of this project; GET /v1/ssh-keys lists yours."
    return Refused(RefusalCode.SSH_KEY_UNKNOWN, why)


async def _admission(
    connection: Connection, lease: Lease, key: SshPublicKey, principal: Principal, now: datetime
) -> Admission:
    ids = [admitted.id for admitted in lease.ssh_keys or ()]
    stored = await ssh_keys.hold(connection, lease.organization_id, ids, key.fingerprint)
    recent = await ssh_certificates.count_recent(connection, lease.id, principal.subject, now=now)
    return Admission(lease.state, lease.ssh_keys, frozenset(each.id for each in stored), recent)


async def get(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, certificate_id: UUID, *, reach: Reach
) -> SshCertificate | Refused:
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        found = await ssh_certificates.get(connection, organization_id, lease_id, certificate_id)
    return found or _UNKNOWN


async def page(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[SshCertificate] | Refused:
    """The certificates of a lease, newest first; `before` is time and id of the last one read."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        return await ssh_certificates.page(connection, organization_id, lease_id, before=before, limit=limit)


async def revoke(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    certificate_id: UUID,
    *,
    reach: Reach,
) -> SshCertificate | Refused:
    """Revoke a certificate. One that is over stays as it is."""
    lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    await ssh_certificates.revoke(connection, organization_id, lease_id, certificate_id, now=world.now())
    found = await ssh_certificates.get(connection, organization_id, lease_id, certificate_id)
    return found or _UNKNOWN
