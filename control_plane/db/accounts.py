"""Queries on provider accounts: when each is listed next, and its last list."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.freeze import Freeze
from control_plane.domain.ids import AccountName, SecretId


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
    frozen_missing: int
    """How many machines the last list misses, while the account is frozen."""
    failing_since: datetime | None
    """Since when its machines cannot be listed, or their list not be stored. Nothing is bought there meanwhile."""
    failing_why: str | None
    offers_failing_since: datetime | None
    """Since when its offers cannot be listed or stored. They grow stale, and are not used then."""
    offers_failing_why: str | None
    offers_left_out: tuple[str, ...]
    """What the last listing of offers had that is no offer of ours, and why."""
    offers_at: datetime | None
    """When its offers were listed last; None before the first time."""
    drained_at: datetime | None
    """Since when nothing is ordered there; None while it is used."""
    drained_why: str | None
    armed_at: datetime | None
    """Since when its orphans are terminated; None while they are only reported."""
    disarmed_why: str | None
    """Why they no longer are, when no operator asked for it."""
    secret_id: SecretId | None
    """Its sealed credentials; None when the reconciler's environment has them."""
    credentials_version: int
    credentials_since: datetime | None

    @property
    def freeze(self) -> Freeze | None:
        if self.frozen_since is None:
            return None
        return Freeze(self.frozen_since, self.frozen_lists, self.frozen_why or "", self.frozen_missing)


_REGISTER = text("""
INSERT INTO provider_accounts (name, provider, listing_due_at, offers_due_at) VALUES (:name, :provider, :now, :now)
ON CONFLICT (name) DO NOTHING
""")
_ALL = text("""
SELECT name, provider, listing_asked_at, listing_size, frozen_since, frozen_lists, frozen_why, frozen_missing,
       failing_since, failing_why, offers_failing_since, offers_failing_why, offers_left_out, offers_at, drained_at,
       drained_why, armed_at, disarmed_why, secret_id, credentials_version, credentials_since
FROM provider_accounts WHERE name = :name OR CAST(:name AS text) IS NULL AND removed_at IS NULL ORDER BY name
""")
_TAKE_LISTING = text("""
UPDATE provider_accounts SET listing_due_at = :next WHERE name = :name AND listing_due_at <= :now
""")
_TAKE_OFFERS = text("""
UPDATE provider_accounts SET offers_due_at = :next WHERE name = :name AND offers_due_at <= :now
""")
_TAKE_ORPHANS = text("""
UPDATE provider_accounts SET orphans_due_at = :next WHERE name = :name AND coalesce(orphans_due_at <= :now, true)
""")
# An operator who armed the account again meanwhile has seen more than this run.
_TRIP = text("""
UPDATE provider_accounts SET armed_at = NULL, disarmed_why = :why WHERE name = :name AND armed_at = :armed_at
""")
_TAKE_LISTED = text("""
UPDATE provider_accounts SET listed_at = :asked_at WHERE name = :name AND coalesce(listed_at <= :asked_at, true)
""")
# The time of the last list is the evidence for every machine that no list missed. A list that is not believed
# records no absence, so its time must not count: it would be evidence for machines that it does not show.
_LISTED = text("""
UPDATE provider_accounts SET
  listing_asked_at = CASE WHEN CAST(:frozen_since AS timestamptz) IS NULL THEN greatest(listing_asked_at, :asked_at)
                          ELSE listing_asked_at END,
  listing_size = :size,
  listing_foreign = :foreign, frozen_since = :frozen_since, frozen_lists = :frozen_lists, frozen_why = :frozen_why,
  frozen_missing = :frozen_missing,
  failing_since = NULL, failing_why = NULL
WHERE name = :name
""")
_REFRESHED = text("""
UPDATE provider_accounts SET offers_at = :now, offers_failing_since = NULL, offers_failing_why = NULL,
  offers_left_out = CAST(:left_out AS jsonb)
WHERE name = :name AND removed_at IS NULL AND coalesce(offers_at <= :now, true)
""")
_FAILING = text("""
UPDATE provider_accounts SET failing_since = coalesce(failing_since, :now), failing_why = :why WHERE name = :name
""")
_OFFERS_FAILING = text("""
UPDATE provider_accounts SET offers_failing_since = coalesce(offers_failing_since, :now), offers_failing_why = :why
WHERE name = :name
""")
_UNREFRESHED = text("""
SELECT name FROM provider_accounts
WHERE name = ANY(:names) AND offers_failing_since IS NULL AND (offers_at IS NULL OR offers_at < :since)
""")
_INSTALLATION = text("SELECT code FROM installation")


async def installation(connection: Connection) -> str:
    """The eight hexadecimal digits in this database's launch keys. Raises LookupError before the first migration."""
    code = await read_one(connection, _INSTALLATION, str)
    if code is None:
        raise LookupError("the database has no installation code; run the migrations")
    return code


async def register(connection: Connection, name: AccountName, provider: str, *, now: datetime) -> None:
    """Store an account of the reconciler's environment, unless it is known already, or was removed."""
    await write(connection, _REGISTER, name=name, provider=provider, now=now)


async def get(connection: Connection, name: AccountName) -> Account:
    """One account. Raises LookupError when it was never registered."""
    found = await read_one(connection, _ALL, Account, name=name)
    if found is None:
        raise LookupError(f"the provider account {name!r} was never registered")
    return found


async def every(connection: Connection) -> list[Account]:
    """All accounts but those that were removed."""
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


async def take_orphans(
    connection: Connection, name: AccountName, *, now: datetime, due_next: datetime
) -> bool:
    """Whether this replica terminates orphans of the account now: their bound holds for all replicas together."""
    return bool(await write(connection, _TAKE_ORPHANS, name=name, now=now, next=due_next))


async def trip(connection: Connection, name: AccountName, *, armed_at: datetime, why: str) -> None:
    """Disarm an account that was armed at `armed_at`, until an operator arms it again."""
    await write(connection, _TRIP, name=name, armed_at=armed_at, why=why)


async def take_listed(connection: Connection, name: AccountName, *, asked_at: datetime) -> bool:
    """Whether the list that was asked for at `asked_at` may be stored: none that was asked for later is.

    The account's row is locked afterwards, so that no two lists are stored at a time.
    """
    return bool(await write(connection, _TAKE_LISTED, name=name, asked_at=asked_at))


async def record_listing(
    connection: Connection,
    name: AccountName,
    *,
    asked_at: datetime,
    size: int,
    foreign: int,
    freeze: Freeze | None,
) -> None:
    """Store what a complete list showed, with `size` live machines of ours, and clear the account's failure."""
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
        frozen_missing=freeze.missing if freeze else 0,
    )


async def record_refresh(
    connection: Connection, name: AccountName, *, now: datetime, left_out: Sequence[str] = ()
) -> bool:
    """Store that the account's offers were asked for at `now`, and clear their failure if there was one.

    `left_out` are sentences for operators. False, and nothing is stored, when the account was removed meanwhile or
    offers that were asked for later are stored already.
    """
    return bool(await write(connection, _REFRESHED, name=name, now=now, left_out=json.dumps(list(left_out))))


async def record_failure(connection: Connection, name: AccountName, *, why: str, now: datetime) -> None:
    """Store that the account's machines could not be listed. Operators read it, and placement buys nothing there."""
    await write(connection, _FAILING, name=name, why=why, now=now)


async def record_offers_failure(
    connection: Connection, name: AccountName, *, why: str, now: datetime
) -> None:
    """Store that the account's offers could not be refreshed, for operators."""
    await write(connection, _OFFERS_FAILING, name=name, why=why, now=now)


async def unrefreshed(
    connection: Connection, names: Sequence[AccountName], *, since: datetime
) -> list[AccountName]:
    """Those of the accounts whose offers nobody listed since then, although no listing is known to have failed."""
    return await read(connection, _UNREFRESHED, AccountName, names=list(names), since=since)
