"""Queries on provider accounts: when each is listed next, its last list, its orphans, and its call budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from control_plane.domain.orphan import Orphan
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
    failing_why: str | None

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
       failing_why
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
_REFRESHED = text("UPDATE provider_accounts SET offers_at = :now WHERE name = :name")
_FAILING = text("""
UPDATE provider_accounts SET failing_since = coalesce(failing_since, :now), failing_why = :why WHERE name = :name
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
    await write(connection, _REFRESHED, name=name, now=now)


async def record_failure(connection: Connection, name: AccountName, *, why: str, now: datetime) -> None:
    """Store that the account did not answer. Operators can read it, and placement buys nothing there meanwhile."""
    await write(connection, _FAILING, name=name, why=why, now=now)


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


_LISTING = Recordset(Sighting, "listed")
_SEE_ORPHANS = text(f"""
WITH seen AS (
  SELECT provider_ref, launch_key, native_status FROM {_LISTING}
), claimed_or_gone AS (
  DELETE FROM orphans WHERE account = :account AND provider_ref NOT IN (SELECT provider_ref FROM seen)
)
INSERT INTO orphans (account, provider_ref, launch_key, native_status, first_seen_at, last_seen_at)
SELECT :account, provider_ref, launch_key, native_status, :asked_at, :asked_at FROM seen
ON CONFLICT (account, provider_ref) DO UPDATE SET
  last_seen_at = excluded.last_seen_at, native_status = excluded.native_status, lists_seen = orphans.lists_seen + 1
""")
_ORPHANS = text("""
SELECT account, provider_ref, launch_key, native_status, first_seen_at, last_seen_at, lists_seen, terminate_asked_at,
       note
FROM orphans WHERE CAST(:account AS text) IS NULL OR account = :account ORDER BY account, provider_ref
""")
_NOTE_ORPHAN = text("""
UPDATE orphans SET terminate_asked_at = coalesce(terminate_asked_at, :now), note = :note
WHERE account = :account AND provider_ref = :ref
""")


async def see_orphans(
    connection: Connection, account: AccountName, listed: Sequence[Sighting], *, asked_at: datetime
) -> None:
    """Replace the account's orphans with those that its last list shows."""
    await write(
        connection, _SEE_ORPHANS, listed=_LISTING.document(listed), account=account, asked_at=asked_at
    )


async def orphans(connection: Connection, account: AccountName) -> list[Orphan]:
    """The orphans of an account."""
    return await read(connection, _ORPHANS, Orphan, account=account)


async def orphans_shown(connection: Connection) -> list[ListedOrphan]:
    """The orphans of every account, for operators."""
    return await read(connection, _ORPHANS, ListedOrphan, account=None)


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
