"""Queries on private networks: one per organization, one address per machine."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import MachineId, OrganizationId


@dataclass(frozen=True, slots=True)
class PeerRow:
    machine_id: MachineId
    slot: int
    address: str
    public_key: str


# Numbers are handed out one by one under an advisory lock; organizations come seldom.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane networks'))")
_NETWORK = text("SELECT number FROM networks WHERE organization_id = :organization_id FOR UPDATE")
_NEW_NETWORK = text("""
INSERT INTO networks (organization_id, number)
SELECT :organization_id, coalesce(max(number), 0) + 1 FROM networks RETURNING number
""")
_UNSYNCED = text("""
SELECT organization_id, number FROM networks WHERE synced_at IS NULL OR synced_at < :before ORDER BY number LIMIT :limit
""")
_PEERS = text("""
SELECT p.machine_id, p.slot, p.address, p.public_key FROM peers p JOIN machines i ON i.id = p.machine_id
WHERE p.organization_id = :organization_id AND i.state IN ('bootstrapping', 'verified') ORDER BY p.slot
""")
_SLOT = text("""
SELECT coalesce(
  (SELECT slot FROM peers WHERE machine_id = :machine_id),
  (SELECT min(free) FROM generate_series(1, (SELECT count(*) + 1 FROM peers WHERE organization_id = :organization_id))
     AS free
   WHERE NOT EXISTS (SELECT FROM peers p WHERE p.organization_id = :organization_id AND p.slot = free))
) AS slot
""")
_PUT_PEER = text("""
INSERT INTO peers (machine_id, organization_id, slot, address, public_key)
VALUES (:machine_id, :organization_id, :slot, :address, :public_key)
ON CONFLICT (machine_id) DO UPDATE SET public_key = excluded.public_key RETURNING address
""")
_DROP = text("""
WITH dropped AS (
  DELETE FROM peers USING machines i
  WHERE i.id = peers.machine_id AND i.state IN ('ending', 'gone') RETURNING peers.organization_id
)
UPDATE networks SET synced_at = NULL WHERE organization_id IN (SELECT organization_id FROM dropped)
""")
_CLAIM = text("""
UPDATE networks SET claim_token = :token, claimed_until = :until
WHERE organization_id = :organization_id AND (claimed_until IS NULL OR claimed_until <= :now OR claim_token = :token)
""")
_UNCLAIM = text("""
UPDATE networks SET claim_token = NULL, claimed_until = NULL, synced_at = coalesce(:synced_at, synced_at)
WHERE organization_id = :organization_id AND claim_token = :token
""")


async def network_number(connection: AsyncConnection, organization_id: OrganizationId) -> int:
    """The organization's network, made on first use, and locked: slots are handed out one by one."""
    found = await rows(connection, _NETWORK, organization_id=organization_id)
    if not found:
        await connection.execute(_LOCK)
        found = await rows(connection, _NETWORK, organization_id=organization_id) or await rows(
            connection, _NEW_NETWORK, organization_id=organization_id
        )
    return int(found[0].number)


async def unsynced(
    connection: AsyncConnection, *, before: datetime, limit: int
) -> list[tuple[OrganizationId, int]]:
    """Networks that the hub was not told about since they changed, or not since `before`."""
    found = await rows(connection, _UNSYNCED, before=before, limit=limit)
    return [(OrganizationId(row.organization_id), row.number) for row in found]


async def slot_for(
    connection: AsyncConnection, organization_id: OrganizationId, machine_id: MachineId
) -> int:
    """The machine's slot in its network, or the lowest free one. The caller holds the network's lock."""
    found = await rows(connection, _SLOT, organization_id=organization_id, machine_id=machine_id)
    return int(found[0].slot)


async def put_peer(connection: AsyncConnection, organization_id: OrganizationId, peer: PeerRow) -> None:
    values = {
        "machine_id": peer.machine_id,
        "organization_id": organization_id,
        "slot": peer.slot,
        "address": peer.address,
        "public_key": peer.public_key,
    }
    await connection.execute(_PUT_PEER, values)


async def peers(connection: AsyncConnection, organization_id: OrganizationId) -> list[PeerRow]:
    """Who belongs on the hub now: machines being set up or verified."""
    return [
        PeerRow(MachineId(row.machine_id), row.slot, row.address, row.public_key)
        for row in await rows(connection, _PEERS, organization_id=organization_id)
    ]


async def drop_ended(connection: AsyncConnection) -> int:
    """Forget peers whose machine has to go; answers how many networks changed."""
    return (await connection.execute(_DROP)).rowcount


async def claim(
    connection: AsyncConnection,
    organization_id: OrganizationId,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
) -> bool:
    """Whether this worker may speak to the hub for the network: two lists at once could lose a peer."""
    values = {"organization_id": organization_id, "token": token, "now": now, "until": until}
    result = await connection.execute(_CLAIM, values)
    return bool(result.rowcount)


async def unclaim(
    connection: AsyncConnection, organization_id: OrganizationId, *, token: UUID, synced_at: datetime | None
) -> None:
    """Give the network back; `synced_at` is when the list that reached the hub was read, None when none did."""
    values = {"organization_id": organization_id, "token": token, "synced_at": synced_at}
    await connection.execute(_UNCLAIM, values)
