"""Queries on the links of machines to the hub of their private network.

A machine learns the hub's key and endpoint when it joins. Both change when the hub is built anew without its files, and
the machine then knows a hub that is not there any more.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.ids import AccountName, ClaimId, LaunchKey
from control_plane.domain.machine import MachineState


@dataclass(frozen=True, slots=True)
class Broken:
    """A customer's machine that has the key or the endpoint of a hub that is not there any more."""

    claim_id: ClaimId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None
    inside: str
    """Its address in the private network."""
    number: int
    """Of the network, on the hub."""
    block: int
    public_key: str
    """The hub's, as it said last."""
    endpoint: str
    tries: int


_TAKE = text(f"""
WITH taken AS (
  SELECT p.claim_id, m.launch_key, m.address, m.ssh_port, m.host_key, h.number, n.block, h.public_key, h.endpoint
  FROM machines m JOIN claims c ON c.machine_id = m.id JOIN peers p ON p.claim_id = c.id
  JOIN hub_networks h ON h.network_id = p.network_id JOIN networks n ON n.id = p.network_id
  WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}' AND c.admitted_at IS NOT NULL
    AND c.ended_at IS NULL AND h.public_key IS NOT NULL
    AND (p.hub_key, p.hub_endpoint) IS DISTINCT FROM (h.public_key, h.endpoint)
    AND p.due_at <= :now AND {work.FREE.replace("work_until", "p.work_until")}
  ORDER BY p.due_at, p.claim_id LIMIT :limit FOR UPDATE OF p SKIP LOCKED
)
UPDATE peers p SET work_token = :token, work_until = :until FROM taken WHERE p.claim_id = taken.claim_id
RETURNING p.claim_id, taken.launch_key, taken.address, taken.ssh_port, taken.host_key, p.address AS inside,
  taken.number, taken.block, taken.public_key, taken.endpoint, p.tries
""")
_LINKED = "hub_key = :public_key, hub_endpoint = :endpoint, linked_at = :now, due_at = :now, tries = 0"
_JOINED = text(f"UPDATE peers SET {_LINKED} WHERE claim_id = :claim_id")
_REPAIRED = text(f"UPDATE peers SET {_LINKED}, {work.GIVE_BACK} WHERE claim_id = :claim_id AND {work.HELD}")
_FAILED = text(f"""
UPDATE peers SET tries = tries + 1, tried_at = :now, due_at = :due_at, {work.GIVE_BACK}
WHERE claim_id = :claim_id AND {work.HELD}
""")


async def take_broken(
    connection: Connection, account: AccountName, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[Broken]:
    """Hold, until `until`, machines of an account with customers that know another hub than the one that is there."""
    values = {"account": account, "token": token, "now": now, "until": until, "limit": limit}
    return sorted(await read(connection, _TAKE, Broken, **values), key=lambda each: each.claim_id.bytes)


async def joined(
    connection: Connection, claim_id: ClaimId, public_key: str, endpoint: str, *, now: datetime
) -> None:
    """Record that a machine that joins has reached the hub with this key at this endpoint, through its tunnel."""
    values = {"claim_id": claim_id, "public_key": public_key, "endpoint": endpoint}
    await write(connection, _JOINED, **values, now=now)


async def repaired(connection: Connection, link: Broken, *, token: UUID, now: datetime) -> bool:
    """Record that a machine reaches the hub again. False when another worker holds it."""
    values = {"claim_id": link.claim_id, "public_key": link.public_key, "endpoint": link.endpoint}
    return bool(await write(connection, _REPAIRED, **values, token=token, now=now))


async def failed(
    connection: Connection, link: Broken, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Try a machine again at `due_at`. Has no effect when another worker holds it."""
    values = {"claim_id": link.claim_id, "due_at": due_at}
    await write(connection, _FAILED, **values, token=token, now=now)
