"""Queries on provider accounts: when each is listed next, its last list, its orphans, and its call budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from control_plane.domain.machine import MAY_EXIST
from control_plane.domain.orphan import Held, HeldCode, Orphan
from control_plane.domain.sighting import Sighting
from control_plane.domain.sweep import Freeze


@dataclass(frozen=True, slots=True)
class Account:
    name: AccountName
    provider: str
    listing_asked_at: datetime | None
    """When the last list that counts as evidence was asked for."""
    listing_size: int
    frozen_since: datetime | None
    frozen_lists: int
    frozen_why: str | None
    failing_since: datetime | None
    """Since when its machines cannot be listed, or their list not be stored. Nothing is bought there meanwhile."""
    failing_why: str | None
    offers_failing_since: datetime | None
    """Since when its offers cannot be listed or stored. They grow stale, and are not used then."""
    offers_failing_why: str | None
    offers_at: datetime | None
    """When its offers were listed last; None before the first time."""

    @property
    def freeze(self) -> Freeze | None:
        if self.frozen_since is None:
            return None
        return Freeze(self.frozen_since, self.frozen_lists, self.frozen_why or "")


_REGISTER = text("""
INSERT INTO provider_accounts (name, provider, listing_due_at, offers_due_at) VALUES (:name, :provider, :now, :now)
ON CONFLICT (name) DO NOTHING
""")
_ALL = text("""
SELECT name, provider, listing_asked_at, listing_size, frozen_since, frozen_lists, frozen_why, failing_since,
       failing_why, offers_failing_since, offers_failing_why, offers_at
FROM provider_accounts WHERE CAST(:name AS text) IS NULL OR name = :name ORDER BY name
""")
_TAKE_LISTING = text("""
UPDATE provider_accounts SET listing_due_at = :next WHERE name = :name AND listing_due_at <= :now
""")
_TAKE_OFFERS = text("""
UPDATE provider_accounts SET offers_due_at = :next WHERE name = :name AND offers_due_at <= :now
""")
# The time of the last list is the evidence for every machine that no list missed. A list that is not believed
# records no absence, so its time must not count: it would be evidence for machines that it does not show.
_LISTED = text("""
UPDATE provider_accounts SET
  listing_asked_at = CASE WHEN CAST(:frozen_since AS timestamptz) IS NULL THEN greatest(listing_asked_at, :asked_at)
                          ELSE listing_asked_at END,
  listing_size = :size,
  listing_foreign = :foreign, frozen_since = :frozen_since, frozen_lists = :frozen_lists, frozen_why = :frozen_why,
  failing_since = NULL, failing_why = NULL
WHERE name = :name
""")
_REFRESHED = text("""
UPDATE provider_accounts SET offers_at = :now, offers_failing_since = NULL, offers_failing_why = NULL
WHERE name = :name
""")
_FAILING = text("""
UPDATE provider_accounts SET failing_since = coalesce(failing_since, :now), failing_why = :why WHERE name = :name
""")
_OFFERS_FAILING = text("""
UPDATE provider_accounts SET offers_failing_since = coalesce(offers_failing_since, :now), offers_failing_why = :why
WHERE name = :name
""")
_INSTALLATION = text("SELECT code FROM installation")


async def installation(connection: Connection) -> str:
    """The eight hexadecimal digits in this database's launch keys. Raises LookupError before the first migration."""
    code = await read_one(connection, _INSTALLATION, str)
    if code is None:
        raise LookupError("the database has no installation code; run the migrations")
    return code


async def register(connection: Connection, name: AccountName, provider: str, *, now: datetime) -> None:
    """Store an account, unless it is known already."""
    await write(connection, _REGISTER, name=name, provider=provider, now=now)


async def get(connection: Connection, name: AccountName) -> Account:
    """One account. Raises LookupError when it was never registered."""
    found = await read_one(connection, _ALL, Account, name=name)
    if found is None:
        raise LookupError(f"the provider account {name!r} was never registered")
    return found


async def every(connection: Connection) -> list[Account]:
    return await read(connection, _ALL, Account, name=None)


async def take_listing(
    connection: Connection, name: AccountName, *, now: datetime, due_next: datetime
) -> bool:
    """Whether this replica lists the account now. If it dies, any replica may list the account at `due_next`."""
    return bool(await write(connection, _TAKE_LISTING, name=name, now=now, next=due_next))


async def take_offers(
    connection: Connection, name: AccountName, *, now: datetime, due_next: datetime
) -> bool:
    """Whether this replica refreshes the account's offers now."""
    return bool(await write(connection, _TAKE_OFFERS, name=name, now=now, next=due_next))


async def record_listing(
    connection: Connection,
    name: AccountName,
    *,
    asked_at: datetime,
    size: int,
    foreign: int,
    freeze: Freeze | None,
) -> None:
    """Store what a complete list showed, and clear the account's failure if it had one."""
    await write(
        connection,
        _LISTED,
        name=name,
        asked_at=asked_at,
        size=size,
        foreign=foreign,
        frozen_since=freeze.since if freeze else None,
        frozen_lists=freeze.lists if freeze else 0,
        frozen_why=freeze.why if freeze else None,
    )


async def record_refresh(connection: Connection, name: AccountName, *, now: datetime) -> None:
    """Store that the account's offers were refreshed, and clear their failure if there was one."""
    await write(connection, _REFRESHED, name=name, now=now)


async def record_failure(connection: Connection, name: AccountName, *, why: str, now: datetime) -> None:
    """Store that the account's machines could not be listed. Operators read it, and placement buys nothing there."""
    await write(connection, _FAILING, name=name, why=why, now=now)


async def record_offers_failure(
    connection: Connection, name: AccountName, *, why: str, now: datetime
) -> None:
    """Store that the account's offers could not be refreshed, for operators."""
    await write(connection, _OFFERS_FAILING, name=name, why=why, now=now)


# Orphans


@dataclass(frozen=True, slots=True)
class ListedOrphan:
    """An orphan as operators read it."""

    account: AccountName
    provider_ref: ProviderRef
    launch_key: LaunchKey
    native_status: str
    first_seen_at: datetime
    last_seen_at: datetime
    lists_seen: int
    terminate_asked_at: datetime | None
    note: str | None
    """The result of the last try to terminate it."""
    gone_at: datetime | None
    """When the first list was asked for that no longer shows it; None while it is listed."""
    held_code: HeldCode | None
    """Why the last run did not terminate it; None when it tried, or when there was none yet."""
    held_why: str | None
    decided_at: datetime | None
    decided_by: str | None
    decided_why: str | None


@dataclass(frozen=True, slots=True)
class _HeldRow:
    provider_ref: ProviderRef
    code: HeldCode
    why: str


_LISTING = Recordset(Sighting, "listed")
_HELD = Recordset(_HeldRow, "held")
_ADOPTED = f"""
EXISTS (SELECT FROM machines AS m WHERE m.account = o.account AND m.provider_ref = o.provider_ref
        AND {among("m.state", MAY_EXIST)})
"""
# An orphan that shows again after it was gone is watched anew: its grace and its lists count from here.
_SEE_ORPHANS = text(f"""
WITH seen AS (
  SELECT provider_ref, launch_key, native_status FROM {_LISTING}
), unlisted AS (
  SELECT o.provider_ref, {_ADOPTED} AS adopted FROM orphans AS o
  WHERE o.account = :account AND o.gone_at IS NULL AND o.provider_ref NOT IN (SELECT provider_ref FROM seen)
), adopted AS (
  DELETE FROM orphans AS o USING unlisted AS u
  WHERE o.account = :account AND o.provider_ref = u.provider_ref AND u.adopted
), gone AS (
  UPDATE orphans AS o SET gone_at = :asked_at FROM unlisted AS u
  WHERE o.account = :account AND o.provider_ref = u.provider_ref AND NOT u.adopted AND CAST(:believed AS boolean)
)
INSERT INTO orphans (account, provider_ref, launch_key, native_status, first_seen_at, last_seen_at)
SELECT :account, provider_ref, launch_key, native_status, :asked_at, :asked_at FROM seen
ON CONFLICT (account, provider_ref) DO UPDATE SET
  launch_key = excluded.launch_key, native_status = excluded.native_status, last_seen_at = excluded.last_seen_at,
  first_seen_at = CASE WHEN orphans.gone_at IS NULL THEN orphans.first_seen_at ELSE excluded.first_seen_at END,
  lists_seen = CASE WHEN orphans.gone_at IS NULL THEN orphans.lists_seen + 1 ELSE 1 END,
  gone_at = NULL
""")
# A decision counts for the machine that its operator saw: one that was gone since is watched anew.
_ORPHANS_FROM = """
SELECT o.account, o.provider_ref, o.launch_key, o.native_status, o.first_seen_at, o.last_seen_at, o.lists_seen,
       o.terminate_asked_at, o.note, o.gone_at, o.held_code, o.held_why, d.at AS decided_at, d.actor AS decided_by,
       d.why AS decided_why
FROM orphans AS o LEFT JOIN LATERAL (
  SELECT t.at, t.actor, t.why FROM orphan_terminations AS t
  WHERE t.account = o.account AND t.provider_ref = o.provider_ref AND t.launch_key = o.launch_key
    AND t.at >= o.first_seen_at
  ORDER BY t.at DESC LIMIT 1) AS d ON true
"""
_ORPHANS_SHOWN = text(f"""
{_ORPHANS_FROM} WHERE o.gone_at IS NULL OR CAST(:gone AS boolean)
ORDER BY o.gone_at DESC NULLS FIRST, o.account, o.provider_ref
""")
# A record may have claimed one since the last list.
_ORPHANS = text(f"""
{_ORPHANS_FROM} WHERE o.account = :account AND o.gone_at IS NULL AND NOT EXISTS (
  SELECT FROM machines AS m WHERE m.account = o.account AND {among("m.state", MAY_EXIST)}
    AND (m.provider_ref = o.provider_ref OR m.provider_ref IS NULL AND m.launch_key = o.launch_key))
ORDER BY o.provider_ref
""")
_HOLD_ORPHANS = text(f"""
UPDATE orphans AS o SET held_code = held.code, held_why = held.why
FROM orphans AS l LEFT JOIN {_HELD} ON held.provider_ref = l.provider_ref
WHERE l.account = :account AND l.gone_at IS NULL AND o.account = l.account AND o.provider_ref = l.provider_ref
  AND (o.held_code, o.held_why) IS DISTINCT FROM (held.code, held.why)
""")
_FORGET_ORPHANS = text("""
DELETE FROM orphans WHERE (account, provider_ref) IN (
  SELECT account, provider_ref FROM orphans WHERE gone_at < :before ORDER BY gone_at LIMIT :limit)
""")
_NOTE_ORPHAN = text("""
UPDATE orphans SET terminate_asked_at = coalesce(terminate_asked_at, :now), note = :note
WHERE account = :account AND provider_ref = :ref
""")


async def see_orphans(
    connection: Connection,
    account: AccountName,
    listed: Sequence[Sighting],
    *,
    believed: bool,
    asked_at: datetime,
) -> None:
    """Store the orphans that the account's last list shows; those that it no longer shows are gone.

    A list that is not `believed` ends no orphan, because it proves no absence.
    """
    document = _LISTING.document(listed)
    values = {"listed": document, "account": account, "believed": believed, "asked_at": asked_at}
    await write(connection, _SEE_ORPHANS, **values)


async def orphans(connection: Connection, account: AccountName) -> list[Orphan]:
    """The orphans of an account that are still listed and that no record has claimed since."""
    return await read(connection, _ORPHANS, Orphan, account=account)


async def orphans_shown(connection: Connection, *, gone: bool) -> list[ListedOrphan]:
    """The orphans of every account, for operators; with `gone`, also those that are no longer listed, last."""
    return await read(connection, _ORPHANS_SHOWN, ListedOrphan, gone=gone)


async def forget_orphans(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete orphans that were gone before `before`, oldest first. Returns how many."""
    return await write(connection, _FORGET_ORPHANS, before=before, limit=limit)


async def hold_orphans(
    connection: Connection, account: AccountName, held: Mapping[ProviderRef, Held]
) -> None:
    """Store why the last run did not terminate the account's orphans; one that is not in `held` is not held."""
    rows = [_HeldRow(ref, reason.code, reason.why) for ref, reason in held.items()]
    await write(connection, _HOLD_ORPHANS, account=account, held=_HELD.document(rows))


async def note_orphan(
    connection: Connection, account: AccountName, ref: ProviderRef, *, note: str, now: datetime
) -> None:
    """Store the result of a try to terminate an orphan."""
    await write(connection, _NOTE_ORPHAN, account=account, ref=ref, note=note, now=now)


# The call budget that all replicas share

_RESERVE = text("""
INSERT INTO budgets (account, bucket, free_at) VALUES (:account, :bucket, CAST(:now AS timestamptz) + :spacing)
ON CONFLICT (account, bucket) DO UPDATE
  SET free_at = greatest(budgets.free_at, CAST(:now AS timestamptz)) + :spacing
  WHERE budgets.free_at <= CAST(:now AS timestamptz) + :wait_max
RETURNING free_at - :spacing AS starts_at
""")


async def reserve(
    connection: Connection,
    account: AccountName,
    bucket: str,
    *,
    spacing: timedelta,
    wait_max: timedelta,
    now: datetime,
) -> datetime | None:
    """Reserve the next free moment of a bucket, at most `wait_max` from now; None when it is further away."""
    values = {"account": account, "bucket": bucket, "spacing": spacing, "wait_max": wait_max, "now": now}
    return await read_one(connection, _RESERVE, datetime, **values)
