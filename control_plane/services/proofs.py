"""Reads GPU proofs: customers read those of their leases, operators the record of every provider."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import proof_records, proofs
from control_plane.db.proof_records import RecordLine
from control_plane.db.proofs import Finding, Proof, ProofDetail, Rate
from control_plane.domain.access import Reach
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.proof import ProofOutcome
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import lease_reach
from control_plane.world import World

# For views, which must not import the layer below.
__all__ = ["Finding", "Proof", "ProofDetail", "Rate", "RecordLine"]


async def page(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    reach: Reach,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[Proof] | Refused:
    """The proofs of a lease's machines, newest first; `before` is time and id of the last one read."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        return await proofs.page(connection, organization_id, lease_id, before=before, limit=limit)


async def get(
    world: World, organization_id: OrganizationId, proof_id: UUID, *, reach: Reach
) -> ProofDetail | Refused:
    """One proof with its evidence."""
    async with world.db.reading(organization_id) as connection:
        found = await proofs.get(connection, organization_id, proof_id, reach)
    if found is None:
        return Refused(
            RefusalCode.NOT_FOUND, "There is no such proof; GET /v1/leases/{id}/proofs lists yours."
        )
    return found


async def records(
    world: World,
    *,
    account: str | None,
    outcome: ProofOutcome | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[RecordLine]:
    """The results of our providers' machines, newest first. They do not name the customers."""
    async with world.db.reading() as connection:
        return await proof_records.record_page(
            connection, account=account, outcome=outcome, before=before, limit=limit
        )
