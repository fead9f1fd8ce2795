"""Queries on what operators ask for concerning provider accounts, and what the reconciler makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import secrets, work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.account_request import (
    AccountCode,
    AccountOutcome,
    AccountRequest,
    AccountVerb,
    Finding,
    Holdings,
)
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName, AccountRequestId, LaunchKey, ProviderRef, SecretId
from control_plane.domain.machine import MAY_EXIST, WANTED


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as operators read it."""

    id: AccountRequestId
    account: AccountName
    verb: AccountVerb
    why: str | None
    actor: str
    asked_at: datetime
    outcome: AccountOutcome | None
    """None while it is open."""
    code: AccountCode | None
    said: str | None
    finished_at: datetime | None


_INSERT = text("""
INSERT INTO account_requests (id, account, verb, secret_id, why, actor_kind, actor, request_id, asked_at, due_at)
VALUES (:id, :account, :verb, :secret_id, :why, :actor_kind, :actor, :request_id, :now, :now)
""")
_COLUMNS = "id, account, verb, why, actor, asked_at, outcome, code, said, finished_at"
_GET = text(f"SELECT {_COLUMNS} FROM account_requests WHERE id = :id")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM account_requests
WHERE (CAST(:account AS text) IS NULL OR account = :account)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (asked_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY asked_at DESC, id DESC LIMIT :limit
""")


async def insert(
    connection: Connection,
    request: AccountRequest,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    await write(
        connection,
        _INSERT,
        id=request.id,
        account=request.account,
        verb=request.verb,
        secret_id=request.secret_id,
        why=request.why,
        actor_kind=actor.kind,
        actor=actor.name,
        request_id=actor.request_id,
        now=now,
    )


async def get(connection: Connection, request_id: AccountRequestId) -> RecordedRequest | None:
    return await read_one(connection, _GET, RecordedRequest, id=request_id)


async def page(
    connection: Connection,
    *,
    account: AccountName | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[RecordedRequest]:
    """Requests, newest first; `before` is time and id of the last one of the previous page."""
    return await read(
        connection,
        _PAGE,
        RecordedRequest,
        account=account,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


# What the reconciler does with them

# Requests about one account are done one after the other, in the order in which they were made.
_FIRST = """
NOT EXISTS (SELECT FROM account_requests AS earlier WHERE earlier.account = account_requests.account
            AND earlier.finished_at IS NULL
            AND (earlier.asked_at, earlier.id) < (account_requests.asked_at, account_requests.id))
"""
_TAKE = work.take(
    "account_requests", f"finished_at IS NULL AND due_at <= :now AND {_FIRST}", order="due_at, id"
)
_TAKEN = text("""
SELECT id, account, verb, secret_id, why, tries FROM account_requests WHERE id = ANY(:ids) ORDER BY asked_at, id
""")
_RETRY = work.retry("account_requests")
_POSTPONE = text(
    f"UPDATE account_requests SET due_at = :due_at, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}"
)
_FINISH = text(f"""
UPDATE account_requests SET outcome = :outcome, code = :code, said = :said, finished_at = :now, secret_id = NULL,
                            {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_LOCK_ACCOUNT = text("SELECT name FROM provider_accounts WHERE name = :account FOR UPDATE")
_HOLDINGS = text(f"""
SELECT removed_at IS NULL AS known, secret_id IS NOT NULL AS stored, drained_at,
  (SELECT count(*) FROM machines m WHERE m.account = a.name AND {among("m.state", WANTED | MAY_EXIST)}) AS machines,
  (SELECT count(*) FROM orphans o WHERE o.account = a.name AND o.gone_at IS NULL) AS orphans,
  a.children_listed AS children, a.children_due_at IS NOT NULL AND EXISTS (
    SELECT FROM machines m WHERE m.account = a.name AND m.asked_at IS NOT NULL
      AND m.gone_at > coalesce(a.children_listed_at, '-infinity')) AS children_unlisted
FROM provider_accounts a WHERE name = :account
""")
_SHOWN = text(f"""
SELECT provider_ref FROM machines
WHERE account = :account AND provider_ref IS NOT NULL AND sighted_at IS NOT NULL AND missed_since IS NULL
  AND {among("state", MAY_EXIST)}
""")
_CLAIMANTS = text(f"""
SELECT DISTINCT account FROM machines
WHERE launch_key = ANY(:keys) AND account <> :account AND {among("state", MAY_EXIST)} ORDER BY account
""")
_SECRET = text("SELECT secret_id FROM provider_accounts WHERE name = :account AND secret_id IS NOT NULL")
_PUT_IN_FORCE = text("""
INSERT INTO provider_accounts (name, provider, listing_due_at, offers_due_at, secret_id, credentials_version,
                               credentials_since)
VALUES (:account, :provider, :now, :now, :secret_id, 1, :now)
ON CONFLICT (name) DO UPDATE SET
  secret_id = excluded.secret_id, credentials_version = provider_accounts.credentials_version + 1,
  credentials_since = excluded.credentials_since, listing_due_at = excluded.listing_due_at,
  offers_due_at = excluded.offers_due_at, failing_since = NULL, failing_why = NULL, offers_failing_since = NULL,
  offers_failing_why = NULL,
  drained_at = CASE WHEN provider_accounts.removed_at IS NULL THEN provider_accounts.drained_at END,
  drained_why = CASE WHEN provider_accounts.removed_at IS NULL THEN provider_accounts.drained_why END,
  armed_at = CASE WHEN provider_accounts.removed_at IS NULL AND :same_account THEN provider_accounts.armed_at END,
  disarmed_why = CASE
    WHEN provider_accounts.removed_at IS NOT NULL THEN NULL
    WHEN provider_accounts.armed_at IS NOT NULL AND NOT :same_account THEN :disarmed_why
    ELSE provider_accounts.disarmed_why END,
  removed_at = NULL
""")
_DISARMED_WHY = (
    "Its credentials were changed, and no machine showed that they are of the same account of the provider."
)
_DRAIN = text("""
UPDATE provider_accounts SET drained_at = coalesce(drained_at, :now), drained_why = :why WHERE name = :account
""")
_RESUME = text("UPDATE provider_accounts SET drained_at = NULL, drained_why = NULL WHERE name = :account")
_ARM = text(
    "UPDATE provider_accounts SET armed_at = coalesce(armed_at, :now), disarmed_why = NULL WHERE name = :account"
)
_DISARM = text("UPDATE provider_accounts SET armed_at = NULL, disarmed_why = NULL WHERE name = :account")
_REMOVE = text("UPDATE provider_accounts SET removed_at = :now, secret_id = NULL WHERE name = :account")
_FORGET_OFFERS = text("DELETE FROM offers WHERE account = :account")


@dataclass(frozen=True, slots=True)
class _HoldingsRow:
    known: bool
    stored: bool
    drained_at: datetime | None
    machines: int
    orphans: int
    children: int
    children_unlisted: bool


async def take(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[AccountRequest]:
    ids = await read(connection, _TAKE, UUID, token=token, now=now, until=until, limit=limit)
    return await read(connection, _TAKEN, AccountRequest, ids=ids)


async def holdings(connection: Connection, account: AccountName, *, lock: bool = False) -> Holdings:
    """What is known about an account. With `lock`, nobody else changes it before this transaction ends."""
    if lock:
        await read(connection, _LOCK_ACCOUNT, str, account=account)
    row = await read_one(connection, _HOLDINGS, _HoldingsRow, account=account)
    if row is None:
        return Holdings(known=False, stored=False, machines=0, orphans=0)
    shown = await read(connection, _SHOWN, ProviderRef, account=account)
    return Holdings(
        known=row.known,
        stored=row.known and row.stored,
        machines=row.machines,
        orphans=row.orphans,
        children=row.children,
        children_unlisted=row.children_unlisted,
        drained_at=row.drained_at,
        refs=frozenset(shown),
    )


async def claimants(
    connection: Connection, account: AccountName, keys: Sequence[LaunchKey]
) -> list[AccountName]:
    """The accounts other than `account` that have open records of these launch keys."""
    return await read(connection, _CLAIMANTS, AccountName, account=account, keys=list(keys))


async def secret_in_force(connection: Connection, account: AccountName) -> SecretId | None:
    return await read_one(connection, _SECRET, SecretId, account=account)


async def retry(
    connection: Connection, request: AccountRequest, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a request back after a try that failed."""
    await write(connection, _RETRY, id=request.id, token=token, now=now, due_at=due_at)


async def postpone(connection: Connection, request: AccountRequest, *, token: UUID, due_at: datetime) -> None:
    """Give a request back that has to wait; that is no try."""
    await write(connection, _POSTPONE, id=request.id, token=token, due_at=due_at)


async def finish(
    connection: Connection, request: AccountRequest, finding: Finding, *, token: UUID, now: datetime
) -> bool:
    """Store what came of a request. False when the hold was lost: another worker does it, and nothing may be changed.

    The request no longer names its credentials afterwards. The caller deletes them, or puts them in force.
    """
    return bool(
        await write(
            connection,
            _FINISH,
            id=request.id,
            outcome=finding.outcome,
            code=finding.code,
            said=finding.said,
            token=token,
            now=now,
        )
    )


async def put_in_force(
    connection: Connection,
    account: AccountName,
    provider: str,
    secret_id: SecretId,
    *,
    same_account: bool = False,
    now: datetime,
) -> None:
    """Let an account use new credentials, and delete the old ones. An account that was removed exists again.

    It stays armed only if the credentials are known to be of the `same_account` of the provider as the old ones.
    """
    old = await secret_in_force(connection, account)
    await write(
        connection,
        _PUT_IN_FORCE,
        account=account,
        provider=provider,
        secret_id=secret_id,
        same_account=same_account,
        disarmed_why=_DISARMED_WHY,
        now=now,
    )
    if old is not None:
        await secrets.delete(connection, old)


async def drain(connection: Connection, account: AccountName, *, why: str, now: datetime) -> None:
    """Order nothing at an account any more."""
    await write(connection, _DRAIN, account=account, why=why, now=now)


async def resume(connection: Connection, account: AccountName) -> None:
    await write(connection, _RESUME, account=account)


async def arm(connection: Connection, account: AccountName, *, now: datetime) -> None:
    """Let orphans of an account be terminated."""
    await write(connection, _ARM, account=account, now=now)


async def disarm(connection: Connection, account: AccountName) -> None:
    """Only report the orphans of an account."""
    await write(connection, _DISARM, account=account)


async def remove(connection: Connection, account: AccountName, *, now: datetime) -> None:
    """Remove an account with its credentials and its offers. Its machines that are gone stay on record."""
    old = await secret_in_force(connection, account)
    await write(connection, _REMOVE, account=account, now=now)
    await write(connection, _FORGET_OFFERS, account=account)
    if old is not None:
        await secrets.delete(connection, old)


# What every replica connects with


@dataclass(frozen=True, slots=True)
class StoredAccount:
    name: AccountName
    version: int
    secret_id: SecretId


_STORED = text("""
SELECT name, credentials_version AS version, secret_id FROM provider_accounts
WHERE secret_id IS NOT NULL AND removed_at IS NULL ORDER BY name
""")


_TAKEN_OVER = text("SELECT name FROM provider_accounts WHERE credentials_version > 0")


async def taken_over(connection: Connection) -> Sequence[AccountName]:
    """The accounts whose credentials operators ever stored, also those that were removed since."""
    return await read(connection, _TAKEN_OVER, AccountName)


async def stored(connection: Connection) -> Sequence[StoredAccount]:
    """The accounts whose credentials operators stored."""
    return await read(connection, _STORED, StoredAccount)
