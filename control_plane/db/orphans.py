"""Queries on orphans: machines with our launch keys that no open record matches."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from control_plane.domain.machine import MAY_EXIST
from control_plane.domain.money import Nano, accrued
from control_plane.domain.orphan import Choice, Held, HeldCode, Order, Origin, Orphan, origin, why_not_adopted
from control_plane.domain.sighting import Sighting


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an orphan in the order of the pages: those that are listed come first, then the last to go."""

    gone_at: datetime | None
    account: AccountName
    provider_ref: ProviderRef


@dataclass(frozen=True, slots=True)
class ListedOrphan:
    """An orphan as operators read it."""

    account: AccountName
    provider_ref: ProviderRef
    launch_key: LaunchKey
    native_status: str
    origin: Origin
    cost_nano_per_hour: Nano | None
    """What its record says, or else the dearest offer of its type; None where neither is known."""
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
    not_adopted_why: str | None
    """Why the record of its launch key cannot take it; None when it can."""
    choice: Choice | None
    """What an operator decided; None when nobody did, or the decision was revoked."""
    decided_at: datetime | None
    decided_by: str | None
    decided_why: str | None

    def cost(self, now: datetime) -> Nano | None:
        """What it has cost since it was first seen, until it was gone or `now`; None where nobody knows."""
        if self.cost_nano_per_hour is None:
            return None
        seconds = int(((self.gone_at or now) - self.first_seen_at).total_seconds())
        return accrued(self.cost_nano_per_hour, max(0, seconds))

    @property
    def place(self) -> Place:
        return Place(self.gone_at, self.account, self.provider_ref)


@dataclass(frozen=True, slots=True)
class _HeldRow:
    provider_ref: ProviderRef
    code: HeldCode
    why: str


@dataclass(frozen=True, slots=True)
class _Seen:
    provider_ref: ProviderRef
    launch_key: LaunchKey
    native_status: str
    origin: Origin
    cost_nano_per_hour: Nano | None
    not_adopted_why: str | None


_LISTING = Recordset(_Seen, "listed")
_HELD = Recordset(_HeldRow, "held")
_ADOPTED = f"""
EXISTS (SELECT FROM machines AS m WHERE m.account = o.account AND m.provider_ref = o.provider_ref
        AND {among("m.state", MAY_EXIST)})
"""
_ORDERS = text("""
SELECT id, launch_key, account, provider_ref, asked_at, fail_reason, cost_nano_per_hour, state, gone_evidence,
       sighted_at IS NOT NULL AND missed_since IS NULL AS listed
FROM machines WHERE launch_key = ANY(:keys)
""")
# The dearest, where a type has several prices: what we do not know is not made to look cheap.
_PRICES = text("""
SELECT native_type, max(cost_nano_per_hour) AS cost_nano_per_hour FROM offers
WHERE account = :account AND native_type = ANY(:types) GROUP BY native_type
""")
# An orphan that shows again after it was gone is watched anew: its grace and its lists count from here.
_SEE = text(f"""
WITH seen AS (
  SELECT provider_ref, launch_key, native_status, origin, cost_nano_per_hour, not_adopted_why FROM {_LISTING}
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
INSERT INTO orphans (account, provider_ref, launch_key, native_status, origin, cost_nano_per_hour, not_adopted_why,
                     first_seen_at, last_seen_at)
SELECT :account, provider_ref, launch_key, native_status, origin, cost_nano_per_hour, not_adopted_why, :asked_at,
       :asked_at
FROM seen
ON CONFLICT (account, provider_ref) DO UPDATE SET
  launch_key = excluded.launch_key, native_status = excluded.native_status, last_seen_at = excluded.last_seen_at,
  origin = excluded.origin,
  cost_nano_per_hour = coalesce(excluded.cost_nano_per_hour, orphans.cost_nano_per_hour),
  not_adopted_why = excluded.not_adopted_why,
  first_seen_at = CASE WHEN orphans.gone_at IS NULL THEN orphans.first_seen_at ELSE excluded.first_seen_at END,
  lists_seen = CASE WHEN orphans.gone_at IS NULL THEN orphans.lists_seen + 1 ELSE 1 END,
  gone_at = NULL
""")
# A decision counts for the machine that its operator saw: one that was gone since is watched anew.
_SELECT = f"""
SELECT o.account, o.provider_ref, o.launch_key, o.native_status, o.origin, o.cost_nano_per_hour, o.first_seen_at,
       o.last_seen_at, o.lists_seen, o.terminate_asked_at, o.note, o.gone_at, o.held_code, o.held_why,
       o.not_adopted_why, d.choice, d.at AS decided_at, d.actor AS decided_by, d.why AS decided_why
FROM orphans AS o LEFT JOIN LATERAL (
  SELECT t.choice, t.at, t.actor, t.why FROM orphan_decisions AS t
  WHERE t.account = o.account AND t.provider_ref = o.provider_ref AND t.launch_key = o.launch_key
    AND t.at >= o.first_seen_at
  ORDER BY t.at DESC, t.id DESC LIMIT 1) AS d ON d.choice <> '{Choice.REVOKE}'
"""
_GONE_AT = "coalesce(o.gone_at, 'infinity')"
_AFTER = "coalesce(CAST(:after_gone_at AS timestamptz), 'infinity')"
_PAGE = text(f"""
{_SELECT} WHERE (o.gone_at IS NULL OR CAST(:gone AS boolean))
  AND (CAST(:account AS text) IS NULL OR o.account = :account)
  AND (CAST(:ref AS text) IS NULL OR o.provider_ref = :ref)
  AND (CAST(:after_ref AS text) IS NULL OR {_GONE_AT} < {_AFTER} OR {_GONE_AT} = {_AFTER}
       AND (o.account, o.provider_ref) > (CAST(:after_account AS text), :after_ref))
ORDER BY {_GONE_AT} DESC, o.account, o.provider_ref LIMIT :limit
""")
_LISTED = text("""
SELECT provider_ref, launch_key, not_adopted_why FROM orphans
WHERE account = :account AND provider_ref = ANY(:refs) AND gone_at IS NULL
""")
# A record may have claimed one since the last list. A launch key is unique, so at most one record of another account
# has it.
_CLAIMED = f"""
EXISTS (SELECT FROM machines AS m WHERE m.account = o.account AND {among("m.state", MAY_EXIST)}
        AND (m.provider_ref = o.provider_ref OR m.provider_ref IS NULL AND m.launch_key = o.launch_key))
"""
_OF_ACCOUNT = text(f"""
SELECT o.*, r.account AS other_account
FROM ({_SELECT} WHERE o.account = :account AND o.gone_at IS NULL) AS o
LEFT JOIN machines AS r ON r.launch_key = o.launch_key AND r.account <> o.account AND {among("r.state", MAY_EXIST)}
WHERE NOT {_CLAIMED}
ORDER BY o.provider_ref
""")
_STILL = text(f"""
{_SELECT} WHERE o.account = :account AND o.provider_ref = :ref AND o.launch_key = :launch_key AND o.gone_at IS NULL
  AND NOT {_CLAIMED}
FOR UPDATE OF o
""")
_ASK = text("""
UPDATE orphans SET terminate_asked_at = coalesce(terminate_asked_at, :now)
WHERE account = :account AND provider_ref = :ref
""")
_TAKEN = text("DELETE FROM orphans WHERE account = :account AND provider_ref = :ref")
_HOLD = text(f"""
UPDATE orphans AS o SET held_code = held.code, held_why = held.why
FROM orphans AS l LEFT JOIN {_HELD} ON held.provider_ref = l.provider_ref
WHERE l.account = :account AND l.gone_at IS NULL AND o.account = l.account AND o.provider_ref = l.provider_ref
  AND (o.held_code, o.held_why) IS DISTINCT FROM (held.code, held.why)
""")
_FORGET = text("""
DELETE FROM orphans WHERE (account, provider_ref) IN (
  SELECT account, provider_ref FROM orphans WHERE gone_at < :before ORDER BY gone_at LIMIT :limit)
""")
_NOTE = text("""
UPDATE orphans SET note = :note
WHERE account = :account AND provider_ref = :ref
""")


async def see(
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
    orders = await orders_of(connection, [sighting.launch_key for sighting in listed])
    unrecorded = [
        sighting
        for sighting in listed
        if origin(orders.get(sighting.launch_key), account, sighting.provider_ref) is Origin.UNRECORDED
    ]
    prices = await _prices(connection, account, {each.native_type for each in unrecorded if each.native_type})
    document = _LISTING.document(
        [_seen(account, sighting, orders.get(sighting.launch_key), prices) for sighting in listed]
    )
    values = {"listed": document, "account": account, "believed": believed, "asked_at": asked_at}
    await write(connection, _SEE, **values)


@dataclass(frozen=True, slots=True)
class _Price:
    native_type: str
    cost_nano_per_hour: Nano


async def _prices(
    connection: Connection, account: AccountName, types: Collection[str]
) -> Mapping[str | None, Nano]:
    """What machines of these types cost, by the account's offers."""
    if not types:
        return {}
    found = await read(connection, _PRICES, _Price, account=account, types=sorted(types))
    return {price.native_type: price.cost_nano_per_hour for price in found}


async def orders_of(connection: Connection, keys: Sequence[LaunchKey]) -> dict[LaunchKey, Order]:
    """What our records tell about these orders, those of other accounts among them."""
    if not keys:
        return {}
    found = await read(connection, _ORDERS, Order, keys=list(keys))
    return {order.launch_key: order for order in found}


def _seen(
    account: AccountName, sighting: Sighting, order: Order | None, prices: Mapping[str | None, Nano]
) -> _Seen:
    what = origin(order, account, sighting.provider_ref)
    # What another account's record costs already counts there.
    cost = None if order is None or what is Origin.OTHER_ACCOUNT else order.cost_nano_per_hour
    return _Seen(
        sighting.provider_ref,
        sighting.launch_key,
        sighting.native_status,
        what,
        prices.get(sighting.native_type, cost) if what is Origin.UNRECORDED else cost,
        why_not_adopted(order, account, sighting.provider_ref),
    )


async def of_account(connection: Connection, account: AccountName) -> list[Orphan]:
    """The orphans of an account that are still listed and that no record has claimed since."""
    return await read(connection, _OF_ACCOUNT, Orphan, account=account)


async def page(
    connection: Connection,
    *,
    gone: bool,
    after: Place | None,
    limit: int,
    account: AccountName | None = None,
    ref: ProviderRef | None = None,
) -> list[ListedOrphan]:
    """Orphans after a place, for operators: of all accounts or of one, or a single one; with `gone`, also those that
    are no longer listed.
    """
    return await read(
        connection,
        _PAGE,
        ListedOrphan,
        gone=gone,
        account=account,
        ref=ref,
        after_gone_at=after.gone_at if after else None,
        after_account=after.account if after else None,
        after_ref=after.provider_ref if after else None,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """What a decision on an orphan is about."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    not_adopted_why: str | None


async def listed(
    connection: Connection, account: AccountName, refs: Sequence[ProviderRef]
) -> dict[ProviderRef, Listed]:
    """Those of these machines that are listed as orphans of the account now."""
    found = await read(connection, _LISTED, Listed, account=account, refs=list(refs))
    return {orphan.provider_ref: orphan for orphan in found}


async def still(connection: Connection, account: AccountName, orphan: Orphan) -> Orphan | None:
    """The orphan as it is now, locked; None when a record has claimed it, or a list no longer shows it."""
    values = {"account": account, "ref": orphan.provider_ref, "launch_key": orphan.launch_key}
    return await read_one(connection, _STILL, Orphan, **values)


async def ask(connection: Connection, account: AccountName, ref: ProviderRef, *, now: datetime) -> None:
    """Store that the provider is about to be asked to terminate an orphan."""
    await write(connection, _ASK, account=account, ref=ref, now=now)


async def taken(connection: Connection, account: AccountName, ref: ProviderRef) -> None:
    """Delete an orphan that its record has taken: it is none any more."""
    await write(connection, _TAKEN, account=account, ref=ref)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete orphans that were gone before `before`, oldest first. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)


async def hold(connection: Connection, account: AccountName, held: Mapping[ProviderRef, Held]) -> None:
    """Store why the last run did not terminate the account's orphans; one that is not in `held` is not held."""
    rows = [_HeldRow(ref, reason.code, reason.why) for ref, reason in held.items()]
    await write(connection, _HOLD, account=account, held=_HELD.document(rows))


async def note(connection: Connection, account: AccountName, ref: ProviderRef, *, note: str) -> None:
    """Store the result of a try to terminate an orphan."""
    await write(connection, _NOTE, account=account, ref=ref, note=note)
