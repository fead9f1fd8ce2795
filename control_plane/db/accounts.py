"""Queries on provider accounts: whose turn a listing is, what the last one showed, strangers on it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.sweep import Freeze, Listed, Stranger


@dataclass(frozen=True, slots=True)
class Account:
    name: AccountName
    provider: str
    listing_asked_at: datetime | None
    listing_size: int
    freeze: Freeze | None
    failing_since: datetime | None
    failing_why: str | None


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
# The time of the last list is the evidence of every machine that no list missed. A list that is not believed
# records no absence, so it must not be evidence either: it would vouch for machines that it does not show.
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


async def installation(connection: AsyncConnection) -> str:
    """The eight digits in every launch key of this database."""
    return str((await rows(connection, _INSTALLATION))[0].code)


async def register(connection: AsyncConnection, name: AccountName, provider: str, *, now: datetime) -> None:
    await connection.execute(_REGISTER, {"name": name, "provider": provider, "now": now})


def _account(row: Any) -> Account:
    freeze = None
    if row.frozen_since is not None:
        freeze = Freeze(row.frozen_since, row.frozen_lists, row.frozen_why)
    return Account(
        name=AccountName(row.name),
        provider=row.provider,
        listing_asked_at=row.listing_asked_at,
        listing_size=row.listing_size,
        freeze=freeze,
        failing_since=row.failing_since,
        failing_why=row.failing_why,
    )


async def get(connection: AsyncConnection, name: AccountName) -> Account:
    return _account((await rows(connection, _ALL, name=name))[0])


async def every(connection: AsyncConnection) -> list[Account]:
    return [_account(row) for row in await rows(connection, _ALL, name=None)]


async def take_listing(
    connection: AsyncConnection, name: AccountName, *, now: datetime, due_next: datetime
) -> bool:
    """Whether this replica lists the account now. A replica that dies leaves the next turn to anyone."""
    result = await connection.execute(_TAKE_LISTING, {"name": name, "now": now, "next": due_next})
    return bool(result.rowcount)


async def take_offers(
    connection: AsyncConnection, name: AccountName, *, now: datetime, due_next: datetime
) -> bool:
    result = await connection.execute(_TAKE_OFFERS, {"name": name, "now": now, "next": due_next})
    return bool(result.rowcount)


async def record_listing(
    connection: AsyncConnection,
    name: AccountName,
    *,
    asked_at: datetime,
    size: int,
    foreign: int,
    freeze: Freeze | None,
) -> None:
    values = {
        "name": name,
        "asked_at": asked_at,
        "size": size,
        "foreign": foreign,
        "frozen_since": freeze.since if freeze else None,
        "frozen_lists": freeze.lists if freeze else 0,
        "frozen_why": freeze.why if freeze else None,
    }
    await connection.execute(_LISTED, values)


async def record_refresh(connection: AsyncConnection, name: AccountName, *, now: datetime) -> None:
    await connection.execute(_REFRESHED, {"name": name, "now": now})


async def record_failure(connection: AsyncConnection, name: AccountName, *, why: str, now: datetime) -> None:
    """The account did not answer. Shown to operators, and to placement as a reason to wait."""
    await connection.execute(_FAILING, {"name": name, "why": why, "now": now})


_SEE_STRANGERS = text("""
WITH listed AS (
  SELECT * FROM jsonb_to_recordset(CAST(:strangers AS jsonb))
    AS s(provider_ref text, launch_key text, native_status text)
), left_again AS (
  DELETE FROM strangers WHERE account = :account AND provider_ref NOT IN (SELECT provider_ref FROM listed)
)
INSERT INTO strangers (account, provider_ref, launch_key, native_status, first_seen_at, last_seen_at)
SELECT :account, provider_ref, launch_key, native_status, :asked_at, :asked_at FROM listed
ON CONFLICT (account, provider_ref) DO UPDATE SET
  last_seen_at = excluded.last_seen_at, native_status = excluded.native_status, lists_seen = strangers.lists_seen + 1
""")
_STRANGERS = text("""
SELECT account, provider_ref, launch_key, native_status, first_seen_at, last_seen_at, lists_seen, terminate_asked_at,
       note
FROM strangers WHERE CAST(:account AS text) IS NULL OR account = :account ORDER BY account, provider_ref
""")
_STRANGER_ENDED = text("""
UPDATE strangers SET terminate_asked_at = coalesce(terminate_asked_at, :now), note = :note
WHERE account = :account AND provider_ref = :ref
""")


async def see_strangers(
    connection: AsyncConnection,
    account: AccountName,
    listed: Sequence[tuple[Listed, str]],
    *,
    asked_at: datetime,
) -> None:
    """Make the account's strangers what the list shows now. Pairs of machine and its native status."""
    document = [
        {"provider_ref": one.provider_ref, "launch_key": one.launch_key, "native_status": status}
        for one, status in listed
    ]
    values = {"strangers": json.dumps(document), "account": account, "asked_at": asked_at}
    await connection.execute(_SEE_STRANGERS, values)


async def strangers(connection: AsyncConnection, account: AccountName) -> list[Stranger]:
    return [
        Stranger(row.provider_ref, row.launch_key, row.first_seen_at, row.lists_seen)
        for row in await rows(connection, _STRANGERS, account=account)
    ]


async def strangers_shown(connection: AsyncConnection) -> list[dict[str, Any]]:
    """Strangers of every account, for the operator."""
    found = await rows(connection, _STRANGERS, account=None)
    return [dict(row._mapping) for row in found]  # noqa: SLF001


async def note_stranger(
    connection: AsyncConnection, account: AccountName, ref: ProviderRef, *, note: str, now: datetime
) -> None:
    await connection.execute(_STRANGER_ENDED, {"account": account, "ref": ref, "note": note, "now": now})


_RESERVE = text("""
INSERT INTO budgets (account, bucket, free_at) VALUES (:account, :bucket, CAST(:now AS timestamptz) + :spacing)
ON CONFLICT (account, bucket) DO UPDATE
  SET free_at = greatest(budgets.free_at, CAST(:now AS timestamptz)) + :spacing
  WHERE budgets.free_at <= CAST(:now AS timestamptz) + :wait_max
RETURNING free_at - :spacing AS starts_at
""")


async def reserve(
    connection: AsyncConnection,
    account: AccountName,
    bucket: str,
    *,
    spacing: object,
    wait_max: object,
    now: datetime,
) -> datetime | None:
    """Take the next free moment of a bucket, at most `wait_max` (timedelta) from now; None when it is further away."""
    found = await rows(
        connection, _RESERVE, account=account, bucket=bucket, spacing=spacing, wait_max=wait_max, now=now
    )
    return found[0].starts_at if found else None
