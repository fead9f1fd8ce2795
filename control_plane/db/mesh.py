"""Queries on the places of private networks on the hub, and on the machines in them: one address per claim.

What customers ask of their networks is in `db/networks.py`.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import ClaimId, MachineId, NetworkId, OrganizationId


@dataclass(frozen=True, slots=True)
class Peer:
    """The machine of a claim as a member of a network."""

    claim_id: ClaimId
    host_number: int
    """Which of the network's addresses it has, 1 to `PEERS_MAX`."""
    address: str
    public_key: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The network that a claim's lease has chosen."""

    network_id: NetworkId
    organization_id: OrganizationId
    block: int


@dataclass(frozen=True, slots=True)
class HubNetwork:
    """A network with its place on the hub."""

    network_id: NetworkId
    block: int
    number: int


# Numbers are assigned one at a time under an advisory lock, which is fast enough: networks are joined first rarely.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane networks'))")
_OF_CLAIM = text("""
SELECT n.id AS network_id, n.organization_id, n.block
FROM claims c JOIN leases l ON l.id = c.lease_id JOIN networks n ON n.id = l.network_id WHERE c.id = :claim_id
""")
_NUMBER = text("SELECT number FROM hub_networks WHERE network_id = :network_id FOR UPDATE")
_NEW_NUMBER = text("""
INSERT INTO hub_networks (network_id, organization_id, number)
SELECT :network_id, :organization_id, min(free) FROM generate_series(1, :numbers - 1) AS free
WHERE NOT EXISTS (SELECT FROM hub_networks WHERE number = free) HAVING min(free) IS NOT NULL RETURNING number
""")
_UNSYNCED = text("""
SELECT h.network_id, n.block, h.number FROM hub_networks h JOIN networks n ON n.id = h.network_id
WHERE h.synced_at IS NULL OR h.synced_at < :before ORDER BY h.number LIMIT :limit
""")
_EMPTY = text("""
SELECT h.network_id, n.block, h.number FROM hub_networks h JOIN networks n ON n.id = h.network_id
WHERE h.empty_since < :before ORDER BY h.empty_since LIMIT :limit
""")
_HAS_PEERS = text("SELECT EXISTS (SELECT FROM peers WHERE network_id = :network_id) AS found")
_FORGET = text(f"DELETE FROM hub_networks WHERE network_id = :network_id AND {work.HELD}")
_PEERS = text("""
SELECT p.claim_id, p.host_number, p.address, p.public_key FROM peers p JOIN claims c ON c.id = p.claim_id
WHERE p.network_id = :network_id AND c.ended_at IS NULL ORDER BY p.host_number
""")
_HOST_NUMBER = text("""
SELECT coalesce(
  (SELECT host_number FROM peers WHERE claim_id = :claim_id),
  (SELECT min(free) FROM generate_series(1, (SELECT count(*) + 1 FROM peers WHERE network_id = :network_id)) AS free
   WHERE NOT EXISTS (SELECT FROM peers p WHERE p.network_id = :network_id AND p.host_number = free))
) AS host_number
""")
_PUT_PEER = text("""
WITH put AS (
  INSERT INTO peers (claim_id, organization_id, network_id, host_number, address, public_key, joined_at, due_at)
  VALUES (:claim_id, :organization_id, :network_id, :host_number, :address, :public_key, :now, :now)
  ON CONFLICT (claim_id) DO UPDATE SET public_key = excluded.public_key
)
UPDATE hub_networks SET empty_since = NULL WHERE network_id = :network_id
""")
_DROP = text("""
WITH dropped AS (
  DELETE FROM peers USING claims c WHERE c.id = peers.claim_id AND c.ended_at IS NOT NULL
  RETURNING peers.network_id, peers.claim_id
)
UPDATE hub_networks h SET synced_at = NULL, empty_since = CASE WHEN NOT EXISTS (
    SELECT FROM peers p WHERE p.network_id = h.network_id AND p.claim_id NOT IN (SELECT claim_id FROM dropped)
  ) THEN CAST(:now AS timestamptz) END
WHERE h.network_id IN (SELECT network_id FROM dropped)
""")
# The time is in it, so that a database which was restored from a backup, and the next network with this place on the
# hub, go on above what the hub has seen.
_TAKE = text(f"""
UPDATE hub_networks SET work_token = :token, work_until = :until, fence = greatest(fence + 1, :milliseconds)
WHERE network_id = :network_id AND ({work.FREE} OR {work.HELD}) RETURNING fence
""")
_GIVE_BACK = text(f"""
UPDATE hub_networks SET synced_at = coalesce(:synced_at, synced_at),
  public_key = coalesce(:public_key, public_key), endpoint = coalesce(:endpoint, endpoint), {work.GIVE_BACK}
WHERE network_id = :network_id AND {work.HELD}
""")
_LOST = text("UPDATE hub_networks SET synced_at = NULL WHERE network_id = :network_id")


async def of_claim(connection: Connection, claim_id: ClaimId) -> Wanted:
    """The network that a claim's machine joins. Raises LookupError for an unknown claim."""
    found = await read_one(connection, _OF_CLAIM, Wanted, claim_id=claim_id)
    if found is None:
        raise LookupError(f"claim {claim_id} has no network")
    return found


async def hub_number(
    connection: Connection, network_id: NetworkId, organization_id: OrganizationId, *, numbers: int
) -> int | None:
    """The number of a network on the hub, assigned at first use; None when all below `numbers` are taken.

    Locks the network's place, so that host numbers are assigned one at a time.
    """
    number = await read_one(connection, _NUMBER, int, network_id=network_id)
    if number is not None:
        return number
    await read(connection, _LOCK, object)
    number = await read_one(connection, _NUMBER, int, network_id=network_id)
    if number is not None:
        return number
    return await read_one(
        connection,
        _NEW_NUMBER,
        int,
        network_id=network_id,
        organization_id=organization_id,
        numbers=numbers,
    )


async def unsynced(connection: Connection, *, before: datetime, limit: int) -> list[HubNetwork]:
    """Networks whose list the hub has not received since they changed, or since `before`."""
    return await read(connection, _UNSYNCED, HubNetwork, before=before, limit=limit)


async def empty(connection: Connection, *, before: datetime, limit: int) -> list[HubNetwork]:
    """Networks on the hub that no machine has been in since `before`."""
    return await read(connection, _EMPTY, HubNetwork, before=before, limit=limit)


async def has_peers(connection: Connection, network_id: NetworkId) -> bool:
    return bool(await read_one(connection, _HAS_PEERS, bool, network_id=network_id))


async def lock(connection: Connection, network_id: NetworkId) -> bool:
    """Lock a network's place on the hub; False when it has none."""
    return await read_one(connection, _NUMBER, int, network_id=network_id) is not None


async def forget(connection: Connection, network_id: NetworkId, *, token: UUID) -> bool:
    """Free the place of a network that the hub has dropped. False when this worker does not hold it any more."""
    return bool(await write(connection, _FORGET, network_id=network_id, token=token))


async def lost(connection: Connection, network_id: NetworkId) -> None:
    """The hub has dropped a network that has machines by now: it has to get their list again."""
    await write(connection, _LOST, network_id=network_id)


async def host_number_for(connection: Connection, network_id: NetworkId, claim_id: ClaimId) -> int:
    """The claim's host number in its network, or the lowest free one. The caller holds the network's lock."""
    (host_number,) = await read(connection, _HOST_NUMBER, int, network_id=network_id, claim_id=claim_id)
    return host_number


async def put_peer(
    connection: Connection,
    organization_id: OrganizationId,
    network_id: NetworkId,
    peer: Peer,
    *,
    now: datetime,
) -> None:
    """Store a member, or its new key. The caller holds the network's lock."""
    await write(
        connection,
        _PUT_PEER,
        claim_id=peer.claim_id,
        organization_id=organization_id,
        network_id=network_id,
        host_number=peer.host_number,
        address=peer.address,
        public_key=peer.public_key,
        now=now,
    )


async def peers(connection: Connection, network_id: NetworkId) -> list[Peer]:
    """The peers that the hub should have now: the machines of open claims."""
    return await read(connection, _PEERS, Peer, network_id=network_id)


async def drop_ended(connection: Connection, *, now: datetime) -> int:
    """Delete the peers of claims that have ended; returns how many networks changed."""
    return await write(connection, _DROP, now=now)


async def take(
    connection: Connection, network_id: NetworkId, *, token: UUID, now: datetime, until: datetime
) -> int | None:
    """The fence of this worker if it may update the hub for the network; None while another one does.

    Two updates at once could lose a peer.
    """
    milliseconds = int(now.timestamp() * 1_000)
    values = {"network_id": network_id, "token": token, "now": now, "until": until}
    return await read_one(connection, _TAKE, int, **values, milliseconds=milliseconds)


async def give_back(
    connection: Connection,
    network_id: NetworkId,
    *,
    token: UUID,
    synced_at: datetime | None,
    public_key: str | None = None,
    endpoint: str | None = None,
) -> None:
    """Give the network back. Has no effect when the hold was lost.

    `synced_at` is when the list that reached the hub was read, None when none did; `public_key` and `endpoint` are what
    the hub then said of itself.
    """
    said = {"public_key": public_key, "endpoint": endpoint}
    await write(connection, _GIVE_BACK, network_id=network_id, token=token, synced_at=synced_at, **said)


_KEEP_KEY = text("UPDATE machines SET mesh_key = :key WHERE id = :id")


async def keep_key(connection: Connection, machine_id: MachineId, public_key: str) -> None:
    """Store with which key a machine will join the private network of whoever claims it."""
    await write(connection, _KEEP_KEY, id=machine_id, key=public_key)
