"""Wraps data keys anew under the newest master key, and encrypts secrets anew when their data key is too old.

A master key becomes outdated when an operator configures another one, or an organization brings its own. Each
activation takes a few data keys. The key manager is called with no transaction open; what it answers is stored in one
transaction, guarded by the token of this worker and by each secret's version. A crash anywhere leaves every secret
readable: until the new bytes are committed, the old ones are valid. A data key whose master key is refused waits, and
delays no other.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from control_plane.db import audit, data_keys, secrets
from control_plane.db.connection import Connection
from control_plane.db.data_keys import Counts, DueKey
from control_plane.domain.audit import AuditLine, AuditOutcome, Happening, SubjectKind
from control_plane.domain.backoff import delay
from control_plane.domain.ids import DataKeyId
from control_plane.domain.secret import Renewal, Sealed, renewal
from control_plane.vault.errors import KeyManagerError
from control_plane.vault.sealing.envelope import seal_under, wrapped
from control_plane.vault.unsealing.envelope import open_with
from control_plane.vault.unsealing.port import KeyManager
from reconciler.figures import ROTATION
from reconciler.loop import Loop, Report, each
from reconciler.worlds.secrets import SecretWorld

NAME = "rotate_keys"
KEYS_PER_ACTIVATION_MAX = 20
SECRETS_PER_KEY_MAX = 20
"""So many secrets of one data key are encrypted anew in one transaction; the rest follows in the next activation."""
HOLD = timedelta(minutes=2)
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(hours=1)
UNUSED_KEPT = timedelta(hours=1)
"""A data key without a secret may be new, with its secret's transaction still open."""


async def activate(world: SecretWorld) -> Report:
    keys = world.keys
    if keys is None:
        return Report(notes=["No key manager is configured, so there is nothing to rotate."])
    now, token = world.now(), world.new_id()
    old = now - world.data_keys_last
    async with world.db.transaction() as connection:
        due = await data_keys.take_due(
            connection,
            newest=keys.master,
            old=old,
            token=token,
            now=now,
            until=now + HOLD,
            limit=KEYS_PER_ACTIVATION_MAX,
        )
        forgotten = await data_keys.forget_unused(
            connection, before=now - UNUSED_KEPT, limit=KEYS_PER_ACTIVATION_MAX
        )
    report = Report(acted_on=forgotten, more=len(due) == KEYS_PER_ACTIVATION_MAX)
    await each(due, lambda key: _renew(world, keys, key, token, report), report)
    async with world.db.reading() as connection:
        left = await data_keys.counts(connection, newest=keys.master, old=old)
    ROTATION.counts = left
    report.looked_at = left.data_keys
    report.notes += _progress(left)
    return report


def _progress(left: Counts) -> Sequence[str]:
    waiting = (
        (left.to_rewrap, "to be wrapped under the newest master key"),
        (left.to_replace, "older than allowed, with secrets to be encrypted anew"),
    )
    return [f"{count} of {left.data_keys} data keys: {what}." for count, what in waiting if count]


async def _renew(world: SecretWorld, keys: KeyManager, due: DueKey, token: UUID, report: Report) -> None:
    needed = renewal(
        due.key, made_at=due.made_at, newest=due.newest, now=world.now(), lasts=world.data_keys_last
    )
    try:
        act = _replace if needed is Renewal.REPLACE else _rewrap
        acted_on = await act(world, keys, due, token)
    except KeyManagerError:
        await _later(world, due, token)
        raise
    report.count(acted_on)


async def _rewrap(world: SecretWorld, keys: KeyManager, due: DueKey, token: UUID) -> int:
    key = await keys.rewrap(due.key, due.newest)
    async with world.db.transaction() as connection:
        rewrapped = await data_keys.rewrapped(connection, key, token=token, now=world.now())
        if rewrapped:
            await _record(connection, world, due, Happening.DATA_KEYS_REWRAP, count=1)
        return rewrapped


async def _replace(world: SecretWorld, keys: KeyManager, due: DueKey, token: UUID) -> int:
    """Encrypt the secrets of a data key anew, under one that is made now."""
    async with world.db.reading() as connection:
        sealed = await secrets.under(connection, due.key.id, limit=SECRETS_PER_KEY_MAX)
    plain = await keys.unwrap(due.key)
    made = await keys.make_data_key(due.key.context, due.newest)
    new = wrapped(made, DataKeyId(world.new_id()), due.key.context)
    renewed: list[Sealed] = []
    for secret in sealed:
        opened = open_with(plain, secret)
        renewed.append(seal_under(made, new, opened, secret_id=secret.id, version=secret.version + 1))
    async with world.db.transaction() as connection:
        count = await data_keys.resealed(connection, due.key, new, renewed, token=token, now=world.now())
        if count:
            await _record(connection, world, due, Happening.DATA_KEYS_REPLACE, count=count)
        return count


async def _record(
    connection: Connection, world: SecretWorld, due: DueKey, event: Happening, *, count: int
) -> None:
    """A line of the organization's audit log, in the transaction of what it is about."""
    line = AuditLine(
        id=world.new_id(),
        organization_id=due.key.context.organization_id,
        at=world.now(),
        event=event,
        outcome=AuditOutcome.ALLOWED,
        subject=NAME,
        subject_kind=SubjectKind.LOOP,
        rule="master_key" if event is Happening.DATA_KEYS_REWRAP else "data_key:age",
        details={"count": count},
    )
    await audit.insert(connection, [line])


async def _later(world: SecretWorld, due: DueKey, token: UUID) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        due_at = now + delay(due.tries + 1, first=FIRST_RETRY, ceiling=LAST_RETRY)
        await data_keys.retry(connection, due.key.id, token=token, now=now, due_at=due_at)


LOOP = Loop(NAME, timedelta(seconds=30), activate, lasts=timedelta(minutes=2))
