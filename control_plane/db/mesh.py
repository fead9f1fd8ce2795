"""Queries on private networks: one per organization, with one address per claim."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import ClaimId, OrganizationId


@dataclass(frozen=True, slots=True)
class Peer:
    """The machine of a claim as a member of its organization's network."""

    claim_id: ClaimId
    host_number: int
    """Which of the network's addresses it has, 1 to `PEERS_MAX`."""
    address: str
    public_key: str


@dataclass(frozen=True, slots=True)
class Network:
    organization_id: OrganizationId
    number: int


# Numbers are assigned one at a time under an advisory lock, which is fast enough: new organizations are rare.
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
SELECT p.claim_id, p.host_number, p.address, p.public_key FROM peers p JOIN claims c ON c.id = p.claim_id
WHERE p.organization_id = :organization_id AND c.ended_at IS NULL ORDER BY p.host_number
""")
_HOST_NUMBER = text("""
SELECT coalesce(
  (SELECT host_number FROM peers WHERE claim_id = :claim_id),
  (SELECT min(free) FROM generate_series(1, (SELECT count(*) + 1 FROM peers WHERE organization_id = :organization_id))
     AS free
   WHERE NOT EXISTS (SELECT FROM peers p WHERE p.organization_id = :organization_id AND p.host_number = free))
) AS host_number
""")
_PUT_PEER = text("""
INSERT INTO peers (claim_id, organization_id, host_number, address, public_key)
VALUES (:claim_id, :organization_id, :host_number, :address, :public_key)
ON CONFLICT (claim_id) DO UPDATE SET public_key = excluded.public_key
""")
_DROP = text("""
WITH dropped AS (
  DELETE FROM peers USING claims c WHERE c.id = peers.claim_id AND c.ended_at IS NOT NULL
  RETURNING peers.organization_id
)
UPDATE networks SET synced_at = NULL WHERE organization_id IN (SELECT organization_id FROM dropped)
""")
_TAKE = text(f"""
UPDATE networks SET work_token = :token, work_until = :until, overtaken = false
WHERE organization_id = :organization_id AND ({work.FREE} OR {work.HELD})
""")
_GIVE_BACK = text(f"""
UPDATE networks SET synced_at = CASE WHEN NOT overtaken THEN coalesce(:synced_at, synced_at) END, {work.GIVE_BACK}
WHERE organization_id = :organization_id AND {work.HELD}
""")
# A worker that lost its hold may have replaced a newer list on the hub by its own: that of the worker that holds the
# network now, or of one that has finished since.
_OVERTAKE = text(
    "UPDATE networks SET synced_at = NULL, overtaken = true WHERE organization_id = :organization_id"
)


async def network_number(connection: Connection, organization_id: OrganizationId) -> int:
    """The number of the organization's network, created at first use.

    Locks the network, so that host numbers are assigned one at a time.
    """
    number = await read_one(connection, _NETWORK, int, organization_id=organization_id)
    if number is not None:
        return number
    await read(connection, _LOCK, object)
    number = await read_one(connection, _NETWORK, int, organization_id=organization_id)
    number = number or await read_one(connection, _NEW_NETWORK, int, organization_id=organization_id)
    if number is None:
        raise LookupError(f"organization {organization_id} got no network")
    return number


async def unsynced(connection: Connection, *, before: datetime, limit: int) -> list[Network]:
    """Networks whose list the hub has not received since they changed, or since `before`."""
    return await read(connection, _UNSYNCED, Network, before=before, limit=limit)


async def host_number_for(connection: Connection, organization_id: OrganizationId, claim_id: ClaimId) -> int:
    """The claim's host number in its network, or the lowest free one. The caller holds the network's lock."""
    (host_number,) = await read(
        connection, _HOST_NUMBER, int, organization_id=organization_id, claim_id=claim_id
    )
    return host_number


async def put_peer(connection: Connection, organization_id: OrganizationId, peer: Peer) -> None:
    await write(
        connection,
        _PUT_PEER,
        claim_id=peer.claim_id,
        organization_id=organization_id,
        host_number=peer.host_number,
        address=peer.address,
        public_key=peer.public_key,
    )


async def peers(connection: Connection, organization_id: OrganizationId) -> list[Peer]:
    """The peers that the hub should have now: the machines of open claims."""
    return await read(connection, _PEERS, Peer, organization_id=organization_id)


async def drop_ended(connection: Connection) -> int:
    """Delete the peers of claims that have ended; returns how many networks changed."""
    return await write(connection, _DROP)


async def take(
    connection: Connection, organization_id: OrganizationId, *, token: UUID, now: datetime, until: datetime
) -> bool:
    """Whether this worker may update the hub for the network. Two updates at once could lose a peer."""
    values = {"organization_id": organization_id, "token": token, "now": now, "until": until}
    return bool(await write(connection, _TAKE, **values))


async def give_back(
    connection: Connection, organization_id: OrganizationId, *, token: UUID, synced_at: datetime | None
) -> None:
    """Give the network back. `synced_at` is when the list that reached the hub was read; None when none did.

    When the hold was lost, the list may be older than the one on the hub, so the network has to be synced again.
    """
    held = await write(
        connection, _GIVE_BACK, organization_id=organization_id, token=token, synced_at=synced_at
    )
    if not held:
        await write(connection, _OVERTAKE, organization_id=organization_id)
