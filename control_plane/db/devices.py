"""Queries on terminals that wait to be signed in."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.domain.device_flow import Device, DeviceState
from control_plane.domain.ids import OrganizationId, UserId

_COLUMNS = """id, state, client, address, created_at, expires_at, interval_seconds, polled_at, approved_organization,
  approved_user"""
_INSERT = text(f"""
INSERT INTO device_authorizations (id, device_sha256, user_sha256, state, client, address, created_at, expires_at,
  interval_seconds)
VALUES (:id, :device_sha256, :user_sha256, '{DeviceState.PENDING}', :client, :address, :created_at, :expires_at,
  :interval_seconds)
ON CONFLICT DO NOTHING
""")
_BY_DEVICE = text(f"SELECT {_COLUMNS} FROM device_authorizations WHERE device_sha256 = :sha256 FOR UPDATE")
_BY_USER = text(f"SELECT {_COLUMNS} FROM device_authorizations WHERE user_sha256 = :sha256")
_POLLED = text("""
UPDATE device_authorizations SET polled_at = :now, interval_seconds = :interval_seconds WHERE id = :id
""")
_MOVE = text("""
UPDATE device_authorizations SET state = :after, approved_organization = :organization, approved_user = :user
WHERE id = :id AND state = :before
""")
_WAITING = text("SELECT count(*) FROM device_authorizations WHERE address = :address AND expires_at > :now")
_FORGET = text("""
DELETE FROM device_authorizations WHERE id IN (
  SELECT id FROM device_authorizations WHERE expires_at < :before ORDER BY expires_at LIMIT :limit)
""")


async def insert(connection: Connection, device: Device, *, device_sha256: bytes, user_sha256: bytes) -> bool:
    """Store a terminal that waits. False when another one has the same code."""
    return bool(
        await write(
            connection,
            _INSERT,
            id=device.id,
            device_sha256=device_sha256,
            user_sha256=user_sha256,
            client=device.client,
            address=device.address,
            created_at=device.created_at,
            expires_at=device.expires_at,
            interval_seconds=device.interval_seconds,
        )
    )


async def lock(connection: Connection, device_sha256: bytes) -> Device | None:
    return await read_one(connection, _BY_DEVICE, Device, sha256=device_sha256)


async def with_user_code(connection: Connection, user_sha256: bytes) -> Device | None:
    return await read_one(connection, _BY_USER, Device, sha256=user_sha256)


async def polled(connection: Connection, device_id: UUID, *, now: datetime, interval_seconds: int) -> None:
    await write(connection, _POLLED, id=device_id, now=now, interval_seconds=interval_seconds)


async def move(
    connection: Connection,
    device: Device,
    after: DeviceState,
    *,
    to: tuple[OrganizationId, UserId] | None = None,
) -> bool:
    """Change the state, and say for whom. False when it is another one meanwhile."""
    organization, user = to or (device.approved_organization, device.approved_user)
    values = {"before": device.state.value, "after": after.value, "organization": organization, "user": user}
    return bool(await write(connection, _MOVE, id=device.id, **values))


async def waiting_at(connection: Connection, address: str, *, now: datetime) -> int:
    """How many terminals of an address wait."""
    return await read_one(connection, _WAITING, int, address=address, now=now) or 0


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete terminals whose codes expired before a time."""
    return await write(connection, _FORGET, before=before, limit=limit)
