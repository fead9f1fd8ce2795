"""Queries on organizations and their standings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.credit_terms import CREDIT_LEFT
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.admission import Standing
from control_plane.domain.envelope import Level
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.organization import EFFECTS, OPEN, OrganizationEvent, OrganizationState, Unsettled
from control_plane.domain.transitions import Moved


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization with its standing."""

    id: OrganizationId
    name: str
    state: OrganizationState
    generation: int
    platform: bool
    """Whether it is the organization of those who run the installation."""
    gpu_quota: int | None
    """The limit of its ceiling; None: there is none."""
    gpus_held: int
    posted_nano: Nano
    held_nano: Nano
    created_at: datetime
    erased_at: datetime | None
    """When its data was erased, after its deletion."""


@dataclass(frozen=True, slots=True)
class Closing(Unsettled):
    """An organization that is closing, with what keeps it from being closed."""

    id: OrganizationId
    name: str
    since: datetime
    """When its closure was requested."""


_SPENDING = [state for state, effects in EFFECTS.items() if effects.spends]
_INSERT = text(f"""
WITH made AS (
  INSERT INTO organizations (id, name, state, platform, created_at)
  VALUES (:id, :name, '{OrganizationState.ACTIVE}', :platform, :now)
  ON CONFLICT (name) DO NOTHING RETURNING id
)
INSERT INTO standings (organization_id) SELECT id FROM made
""")
_GET = text(f"""
SELECT o.id, o.name, o.state, o.generation, o.platform,
       (SELECT CAST(e.limits ->> 'gpus' AS integer) FROM envelopes e
        WHERE e.organization_id = o.id AND e.level = '{Level.CEILING}') AS gpu_quota,
       s.gpus_held, s.posted_nano, s.held_nano, o.created_at, o.erased_at
FROM organizations o JOIN standings s ON s.organization_id = o.id WHERE o.id = :id
""")
# A function that runs with its owner's rights: the tenant filter would hide all organizations but one.
_IDS = text("""
SELECT id FROM organization_ids(CAST(:after_at AS timestamptz), CAST(:after_id AS uuid), CAST(:states AS text[]),
                                CAST(:part AS text), CAST(:limit AS integer))
""")
# It answers nothing unless the connection acts for the platform's organization.
_NAMES = text("SELECT id, name FROM organization_names(CAST(:ids AS uuid[]))")
_LOCK = text(_GET.text + " FOR NO KEY UPDATE OF o")
_HOLD_OPEN = text(f"SELECT id FROM organizations WHERE id = :id AND {among('state', OPEN)} FOR SHARE")
_MOVE = text("""
UPDATE organizations SET state = :after, generation = generation + 1
WHERE id = :id AND state = :before AND generation = :seen
""")
_UNERASED = text(f"""
SELECT id FROM organizations WHERE state = '{OrganizationState.DELETED}' AND erased_at IS NULL ORDER BY id LIMIT :limit
""")
_ERASED = text("UPDATE organizations SET name = :name, erased_at = :now WHERE id = :id")
_LEFT = f"""
  (SELECT count(*) FROM leases WHERE organization_id = {{id}} AND state <> '{LeaseState.ENDED}') AS leases,
  (SELECT count(*) FROM leases WHERE organization_id = {{id}} AND state = '{LeaseState.ENDED}'
     AND ready_at IS NOT NULL AND NOT meter_closed) AS unmetered,
  (SELECT count(*) FROM unrated WHERE organization_id = {{id}}) AS unrated,
  (SELECT count(*) FROM holds WHERE organization_id = {{id}} AND released_at IS NULL) AS holds
"""
_UNSETTLED = text(f"SELECT {_LEFT.format(id=':id')}")
_CLOSING = text(f"""
SELECT o.id, o.name, (SELECT max(at) FROM organization_events e WHERE e.organization_id = o.id) AS since,
{_LEFT.format(id="o.id")} FROM organizations o WHERE o.state = '{OrganizationState.CLOSING}'
ORDER BY since, o.id LIMIT :limit
""")
_NOT_SPENDING = text(f"""
SELECT id FROM organizations WHERE id = ANY(:ids) AND NOT {among("state", _SPENDING)}
""")
_PLATFORM = text("SELECT id FROM organizations WHERE platform ORDER BY created_at, id LIMIT 1")
_BY_NAME = text("SELECT id FROM organizations WHERE name = :name")
_STANDING = text(f"""
SELECT o.state, (s.posted_nano - s.held_nano + {CREDIT_LEFT})::bigint AS available_nano,
       ({CREDIT_LEFT})::bigint AS credit_nano,
       (SELECT coalesce(sum(l.nano_per_unit_hour * l.units), 0)::bigint FROM leases l
        WHERE l.organization_id = :id AND l.funding_warned_at IS NOT NULL AND l.state = '{LeaseState.READY}'
       ) AS short_nano
FROM standings s JOIN organizations o ON o.id = s.organization_id WHERE s.organization_id = :id
""")
_STATE = text("""
SELECT o.state FROM standings s JOIN organizations o ON o.id = s.organization_id WHERE s.organization_id = :id
""")
_LOCK_STANDINGS = text("""
SELECT organization_id FROM standings WHERE organization_id = ANY(:ids) ORDER BY organization_id FOR UPDATE
""")


async def insert(
    connection: Connection,
    organization_id: OrganizationId,
    name: str,
    *,
    platform: bool,
    now: datetime,
) -> bool:
    """Store an organization and its standing. False when the name is taken."""
    values = {"name": name, "platform": platform, "now": now}
    return bool(await write(connection, _INSERT, id=organization_id, **values))


async def get(connection: Connection, organization_id: OrganizationId) -> Organization | None:
    return await read_one(connection, _GET, Organization, id=organization_id)


async def ids(
    connection: Connection,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
    states: Sequence[OrganizationState] | None = None,
    part: str | None = None,
) -> list[OrganizationId]:
    """The ids of organizations, oldest first; `after` is creation time and id of the previous page's last one.

    With `states` only those in these states, with `part` only those whose names contain it.
    """
    return await read(
        connection,
        _IDS,
        OrganizationId,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        states=None if states is None else [state.value for state in states],
        part=part,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class _Named:
    id: OrganizationId
    name: str


async def names(
    connection: Connection, organization_ids: Collection[OrganizationId]
) -> dict[OrganizationId, str]:
    """The names of organizations, for operators. The connection acts for the platform's organization."""
    found = await read(connection, _NAMES, _Named, ids=list(organization_ids))
    return {organization.id: organization.name for organization in found}


async def lock(connection: Connection, organization_id: OrganizationId) -> Organization | None:
    """An organization, locked before its state changes: the first of all locks."""
    return await read_one(connection, _LOCK, Organization, id=organization_id)


async def hold_open(connection: Connection, organization_id: OrganizationId) -> bool:
    """Keep the state of an organization until this transaction is over. False when its API keys are refused.

    A closure waits for transactions that hold its organization, and finds what they wrote. Transactions that come
    after it find the organization closed. So nothing is left that a refused key made. The first of all locks.
    """
    return bool(await read(connection, _HOLD_OPEN, OrganizationId, id=organization_id))


async def move(
    connection: Connection,
    organization_id: OrganizationId,
    moved: Moved[OrganizationState, OrganizationEvent],
    *,
    seen: int,
) -> bool:
    """Change the state of an organization, unless it has moved since the generation `seen`."""
    values = {"before": moved.before.value, "after": moved.after.value, "seen": seen}
    return bool(await write(connection, _MOVE, id=organization_id, **values))


async def unerased(connection: Connection, *, limit: int) -> list[OrganizationId]:
    """Deleted organizations whose data is still to be erased."""
    return await read(connection, _UNERASED, OrganizationId, limit=limit)


async def erased(
    connection: Connection, organization_id: OrganizationId, *, name: str, now: datetime
) -> None:
    """Replace the name of a deleted organization, and store that its data is erased."""
    await write(connection, _ERASED, id=organization_id, name=name, now=now)


async def unsettled(connection: Connection, organization_id: OrganizationId) -> Unsettled:
    """What keeps an organization from being closed. Once it is closing, none of these numbers grows."""
    found = await read_one(connection, _UNSETTLED, Unsettled, id=organization_id)
    if found is None:
        raise LookupError("a sum without a row")
    return found


async def closing(connection: Connection, *, limit: int) -> list[Closing]:
    """The organizations that are closing, with what is still open, the longest closing first."""
    return await read(connection, _CLOSING, Closing, limit=limit)


async def not_spending(
    connection: Connection, organization_ids: Collection[OrganizationId]
) -> frozenset[OrganizationId]:
    """Those of these organizations that must not spend."""
    return frozenset(await read(connection, _NOT_SPENDING, OrganizationId, ids=sorted(set(organization_ids))))


async def platform(connection: Connection) -> OrganizationId | None:
    """The organization of those who run the installation; None while there is none."""
    return await read_one(connection, _PLATFORM, OrganizationId)


async def named(connection: Connection, name: str) -> OrganizationId | None:
    return await read_one(connection, _BY_NAME, OrganizationId, name=name)


async def standing(connection: Connection, organization_id: OrganizationId, *, lock: bool) -> Standing | None:
    """The facts that admission decides on. With `lock`, no other transaction can spend for this organization.

    They are read once the lock is held: a statement that waits for the lock sees the standing as it is then, but credit
    terms and leases as they were before.
    """
    if lock:
        await lock_standings(connection, [organization_id])
    return await read_one(connection, _STANDING, Standing, id=organization_id)


async def hold_standing(connection: Connection, organization_id: OrganizationId) -> OrganizationState | None:
    """The state of an organization, with the lock of its standing: for commands on the host, which read no leases."""
    await lock_standings(connection, [organization_id])
    return await read_one(connection, _STATE, OrganizationState, id=organization_id)


async def lock_standings(connection: Connection, organization_ids: Collection[OrganizationId]) -> None:
    """Lock the standings of several organizations, in id order. Holds are locked after them."""
    await connection.execute(_LOCK_STANDINGS, {"ids": sorted(set(organization_ids))})
