"""Queries on machines. A state changes only through `move`.

A machine belongs to no organization. `journal.py` explains which leases get the journal lines about it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import journal, work
from control_plane.db.connection import Connection
from control_plane.db.nodes import still_leaves
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.actor import Actor
from control_plane.domain.downtime import FLAPS_WITHIN, SETTLED_AFTER
from control_plane.domain.eviction import Notice
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, MachineId, ProviderRef
from control_plane.domain.journal import Note
from control_plane.domain.machine import (
    MAY_EXIST,
    SHOULD_BE_SIGHTED,
    Machine,
    MachineMove,
    MachineOrder,
    MachineState,
    Purpose,
)
from control_plane.domain.node import LEAVE_MAX
from control_plane.domain.progress import Step
from control_plane.domain.sweep import MISSED_LISTS_MIN

SIGHTED_AT = f"""
CASE WHEN m.sighted_at IS NULL OR m.missed_since IS NOT NULL OR m.down_since IS NOT NULL
       OR m.state = '{MachineState.GONE}' THEN m.sighted_at
     ELSE greatest(m.sighted_at, a.listing_asked_at) END
"""
"""SQL: when the provider last listed machine `m` of account `a`, and not as down.

While no list misses a machine, the account's last listing is the evidence that it is alive, so a steady fleet of
any size costs no write.
"""

_COLUMNS = ", ".join(
    f"{SIGHTED_AT} AS sighted_at" if field.name == "sighted_at" else f"m.{field.name}"
    for field in fields(Machine)
)
SELECT = f"SELECT {_COLUMNS} FROM machines m JOIN provider_accounts a ON a.name = m.account"
"""SQL: the columns that `read` needs to build a `Machine`."""

# Inserting and moving rows

_ORDERS = Recordset(MachineOrder, "orders")
_ORDERED = ", ".join(field.name for field in fields(MachineOrder))
_INSERT = text(f"""
INSERT INTO machines ({_ORDERED}, state, due_at, created_at, deadline_at, step, step_at)
SELECT {_ORDERED}, '{MachineState.INTENDED}', :now, :now, :deadline_at, '{Step.PLACED}', :now FROM {_ORDERS}
""")
_MOVES = Recordset(MachineMove, "moves")
_KEPT = (
    *("host_key", "asked_at", "deadline_at", "provider_ref", "address", "ssh_port", "step"),
    *("fail_reason", "gone_evidence", "proof_due_at", "erasing_until"),
)
"""Columns that a move sets when it has a value for them, and keeps otherwise."""
_MOVE = text(f"""
WITH moved AS (
  UPDATE machines m SET
    state = moves.moved ->> 'after', generation = m.generation + 1, tries = 0,
    {work.GIVE_BACK}, due_at = coalesce(moves.due_at, :now),
    {", ".join(f"{column} = coalesce(moves.{column}, m.{column})" for column in _KEPT)},
    running_at = CASE WHEN moves.moved ->> 'after' = '{MachineState.BOOTSTRAPPING}' THEN :now ELSE m.running_at END,
    verified_at = CASE WHEN moves.moved ->> 'after' = '{MachineState.VERIFIED}' THEN :now ELSE m.verified_at END,
    step_at = CASE WHEN moves.step IS NULL THEN m.step_at ELSE :now END,
    fail_why = CASE WHEN moves.fail_reason IS NULL THEN m.fail_why ELSE coalesce(moves.provider_words, moves.why) END,
    gone_at = CASE WHEN moves.moved ->> 'after' = '{MachineState.GONE}' THEN :now ELSE m.gone_at END
  FROM {_MOVES}
  WHERE m.id = moves.id AND m.state = moves.moved ->> 'before' AND m.generation = moves.seen
  RETURNING m.id, moves.moved, coalesce(moves.why, moves.gone_evidence) AS why
), noted AS (
  {journal.INSERT}
  SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, moved.id, :now, {journal.ACTOR},
         moved ->> 'event', moved ->> 'before', moved ->> 'after', why
  FROM moved {journal.CLAIMANTS.format(machine="moved.id")} ORDER BY moved.id
)
SELECT id FROM moved
""")
# A machine that exists is never forgotten, whatever happened to its row meanwhile. The state does not change, but a
# terminating row now has the reference to terminate, and the journal line shows the late answer.
_ADOPT = text(f"""
WITH adopted AS (
  UPDATE machines SET provider_ref = :ref, due_at = :now
  WHERE id = :id AND provider_ref IS NULL AND state <> '{MachineState.GONE}'
  RETURNING id, state
), noted AS (
  {journal.insert_for("adopted", f"'{Note.REFERENCE_LEARNT}'")}
)
SELECT id FROM adopted
""")
# The generation grows, so that nobody moves the row because of what was true of the machine that it had.
_EXCHANGE = text(f"""
WITH exchanged AS (
  UPDATE machines SET provider_ref = :ref, generation = generation + 1, tries = 0, due_at = :now,
    deadline_at = greatest(deadline_at, :deadline_at), sighted_at = :now, missed_since = NULL, missed_lists = 0
  WHERE id = :id AND state = '{MachineState.BOOTING}'
  RETURNING id, state
), noted AS (
  {journal.insert_for("exchanged", f"'{Note.MACHINE_EXCHANGED}'")}
)
SELECT id FROM exchanged
""")

_READDRESS = text(f"""
WITH readdressed AS (
  UPDATE machines SET address = :address, ssh_port = :ssh_port
  WHERE id = :id AND state = '{MachineState.VERIFIED}' AND (address, ssh_port) IS DISTINCT FROM (:address, :ssh_port)
  RETURNING id, state
), noted AS (
  {journal.insert_for("readdressed", f"'{Note.ADDRESS_CHANGED}'")}
)
SELECT id FROM readdressed
""")

_NOTICE = text(f"""
WITH noticed AS (
  UPDATE machines SET
    eviction_announced_at = :announced_at,
    eviction_withdrawn_at = :withdrawn_at
  WHERE id = :id AND {among("state", SHOULD_BE_SIGHTED)}
    AND (eviction_announced_at IS NOT NULL AND eviction_withdrawn_at IS NULL) = :withdrawn
  RETURNING id, state,
    CASE WHEN :withdrawn THEN '{Note.EVICTION_WITHDRAWN}' ELSE '{Note.EVICTION_ANNOUNCED}' END AS event
), noted AS (
  {journal.insert_for("noticed", "noticed.event")}
)
SELECT id FROM noticed
""")


async def insert(
    connection: Connection, orders: Sequence[MachineOrder], *, now: datetime, deadline_at: datetime
) -> None:
    """Store machines as intended. `journal.note_intended` writes their first journal lines.

    `deadline_at` is the time by which the provider has to accept the order.
    """
    if orders:
        await write(connection, _INSERT, orders=_ORDERS.document(orders), now=now, deadline_at=deadline_at)


async def move(
    connection: Connection, moves: Sequence[MachineMove], *, actor: Actor, now: datetime
) -> frozenset[MachineId]:
    """Apply the moves whose machines have not moved meanwhile; returns the machines that moved."""
    if not moves:
        return frozenset()
    document = _MOVES.document(moves)
    values = journal.actor_values(actor)
    return frozenset(await read(connection, _MOVE, MachineId, moves=document, now=now, **values))


async def adopt(
    connection: Connection,
    machine_id: MachineId,
    ref: ProviderRef,
    *,
    actor: Actor,
    why: str,
    now: datetime,
) -> bool:
    """Store the provider's reference on an open row that has none. False when the row has one, or is gone."""
    values = journal.actor_values(actor)
    return bool(await read(connection, _ADOPT, MachineId, id=machine_id, ref=ref, why=why, now=now, **values))


async def exchange(
    connection: Connection,
    machine_id: MachineId,
    ref: ProviderRef,
    *,
    deadline_at: datetime,
    actor: Actor,
    why: str,
    now: datetime,
) -> None:
    """Give a booting record another machine of the provider, which was just listed. Lock the record first."""
    values = {"id": machine_id, "ref": ref, "deadline_at": deadline_at, "why": why, "now": now}
    await read(connection, _EXCHANGE, MachineId, **values, **journal.actor_values(actor))


async def readdress(
    connection: Connection,
    machine_id: MachineId,
    address: str,
    ssh_port: int,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Store the new address and SSH port of a verified machine, with a line in its journal."""
    values = {
        "id": machine_id,
        "address": address,
        "ssh_port": ssh_port,
        "why": f"its address is now {address}"
        if ssh_port == 22
        else f"its address is now {address}, port {ssh_port}",
    }
    await read(connection, _READDRESS, MachineId, now=now, **values, **journal.actor_values(actor))


async def notice(connection: Connection, news: Notice, *, actor: Actor, now: datetime) -> None:
    """Store that the eviction of a machine was announced, or withdrawn, with a line in its journal.

    Nothing changes when it was stored before, or the machine moved on meanwhile.
    """
    values = {
        "id": news.id,
        "announced_at": news.announced_at,
        "withdrawn": news.withdrawn,
        "withdrawn_at": now if news.withdrawn else None,
        "why": news.why,
    }
    await read(connection, _NOTICE, MachineId, now=now, **values, **journal.actor_values(actor))


# Reading

_GET = text(f"{SELECT} WHERE m.id = :id")
_LOCK = text(f"{SELECT} WHERE m.id = ANY(:ids) ORDER BY m.id FOR NO KEY UPDATE OF m")
_OPEN_OF_ACCOUNT = text(
    f"{SELECT} WHERE m.account = :account AND {among('m.state', MAY_EXIST)} ORDER BY m.id"
)
_VANISHED = text(f"""
SELECT count(*) FROM machines
WHERE account = :account AND (fail_reason = '{FailReason.VANISHED}' OR down_since IS NOT NULL
    AND {among("fail_reason", (FailReason.PROVIDER_REPORTED_FAILURE, FailReason.NOT_RUNNING))})
  AND (gone_at IS NULL OR gone_at > :since)
""")
_ORDERED_AS = text("SELECT gpu_model, gpu_count FROM machines WHERE host_key = :host_key")


@dataclass(frozen=True, slots=True)
class _Gpus:
    gpu_model: GpuModel | None
    gpu_count: int


_BOUGHT_AS = text("SELECT vcpus, memory_gib FROM machines WHERE host_key = :host_key")


@dataclass(frozen=True, slots=True)
class _Size:
    vcpus: int
    memory_gib: int


async def get(connection: Connection, machine_id: MachineId) -> Machine | None:
    return await read_one(connection, _GET, Machine, id=machine_id)


async def lock(connection: Connection, machine_ids: Iterable[MachineId]) -> dict[MachineId, Machine]:
    """Lock machines in id order, which every transaction that writes several machines has to follow.

    Leases and claims are locked before them: see `outcomes/machines.py`.
    """
    found = await read(connection, _LOCK, Machine, ids=sorted(set(machine_ids)))
    return {machine.id: machine for machine in found}


async def open_of_account(connection: Connection, account: AccountName) -> list[Machine]:
    """The machines of an account that may exist at the provider."""
    return await read(connection, _OPEN_OF_ACCOUNT, Machine, account=account)


async def count_vanished(connection: Connection, account: AccountName, *, since: datetime) -> int:
    """How many machines of an account vanished from its lists, or were down for too long, and were not closed before
    `since`.
    """
    return (await read(connection, _VANISHED, int, account=account, since=since))[0]


async def ordered_as(connection: Connection, host_key: str) -> tuple[GpuModel | None, int]:
    """GPU model and count of the machine that was ordered with this host key. Raises LookupError when there is none."""
    found = await read_one(connection, _ORDERED_AS, _Gpus, host_key=host_key)
    if found is None:
        raise LookupError("no machine was ordered with this host key")
    return found.gpu_model, found.gpu_count


async def bought_as(connection: Connection, host_key: str) -> tuple[int, int]:
    """The vCPUs and GiB of memory of the machine that was ordered with this host key. Raises LookupError for none."""
    found = await read_one(connection, _BOUGHT_AS, _Size, host_key=host_key)
    if found is None:
        raise LookupError("no machine was ordered with this host key")
    return found.vcpus, found.memory_gib


# Taking work and giving it back
# The intent of a lease that has ended is no longer requested from the provider: release_machines closes it.
_INTENDED = text(f"""
{SELECT} WHERE m.account = :account AND m.state = '{MachineState.INTENDED}' AND m.due_at <= :now
  AND (m.purpose <> '{Purpose.LEASE}' OR EXISTS (SELECT FROM claims c WHERE c.machine_id = m.id AND c.ended_at IS NULL))
ORDER BY m.due_at, m.id LIMIT :limit FOR NO KEY UPDATE OF m SKIP LOCKED
""")
_WAITING = text(f"""
{SELECT} WHERE m.account = :account AND m.state = '{MachineState.INTENDED}' ORDER BY m.id LIMIT :limit
""")
_TAKE = work.take(
    "machines",
    f"""account = :account AND state = :state AND due_at <= :now
    AND (NOT CAST(:with_reference AS boolean) OR provider_ref IS NOT NULL)
    AND (erasing_until IS NULL OR erasing_until <= :now)
    AND (state <> '{MachineState.TERMINATING}' OR NOT {still_leaves("n.machine_id = machines.id")})
    AND (state <> '{MachineState.BOOTSTRAPPING}' OR {work.UNTRIED})""",
    order="due_at, id",
)
_TAKEN = text(f"{SELECT} WHERE m.work_token = :token ORDER BY m.due_at, m.id")
_RETRY = work.retry("machines")
_POSTPONE = text(f"""
UPDATE machines SET due_at = :due_at, tried_at = coalesce(:tried_at, tried_at),
  deadline_at = greatest(deadline_at, :deadline_at), {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_TERMINATE_ASKED = text(f"""
UPDATE machines SET terminate_asked_at = coalesce(terminate_asked_at, :now), tries = tries + 1, due_at = :due_at,
  {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_STEP = text(f"""
UPDATE machines SET step = coalesce(:step, step), work_until = :until,
  step_at = CASE WHEN CAST(:step AS text) IS NULL THEN step_at ELSE :now END
WHERE id = :id AND {work.HELD}
""")


async def intended(connection: Connection, account: AccountName, *, limit: int) -> list[Machine]:
    """Machines of an account that are intended, whether or not their orders are due. None is locked."""
    return await read(connection, _WAITING, Machine, account=account, limit=limit)


async def take_intended(
    connection: Connection, account: AccountName, *, now: datetime, limit: int
) -> list[Machine]:
    """Due intents of this account, locked for this transaction. Rows locked by others are skipped."""
    return await read(connection, _INTENDED, Machine, account=account, now=now, limit=limit)


async def take(
    connection: Connection,
    account: AccountName,
    state: MachineState,
    *,
    token: UUID,
    until: datetime,
    now: datetime,
    limit: int,
    with_reference: bool = False,
) -> list[Machine]:
    """Hold due machines beyond this transaction: until `until`, or until they move.

    A machine that waits for the proof that its memory is overwritten is due only after that wait, and one that was
    tried after its time for setup was over is no longer due. `with_reference` leaves out machines whose reference is
    unknown. A machine that is to be terminated is not due while its node leaves its cluster, but for LEAVE_MAX only.
    """
    taken = await read(
        connection,
        _TAKE,
        MachineId,
        account=account,
        state=state.value,
        token=token,
        until=until,
        now=now,
        kept_since=now - LEAVE_MAX,
        with_reference=with_reference,
        limit=limit,
    )
    return await read(connection, _TAKEN, Machine, token=token) if taken else []


async def retry(
    connection: Connection, machine_id: MachineId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a machine back after a try that failed now, due again at `due_at`. Has no effect when the hold was lost."""
    await write(connection, _RETRY, id=machine_id, token=token, now=now, due_at=due_at)


async def postpone(
    connection: Connection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime,
    tried_at: datetime | None = None,
    deadline_at: datetime | None = None,
) -> None:
    """Give a machine back without counting a failed try. Has no effect when the hold was lost.

    `tried_at` says when the machine had its chance; None when it waits for something of ours. `deadline_at` can
    extend the machine's deadline, never shorten it.
    """
    values = {"id": machine_id, "token": token, "due_at": due_at, "deadline_at": deadline_at}
    await write(connection, _POSTPONE, **values, tried_at=tried_at)


async def terminate_asked(
    connection: Connection, machine_id: MachineId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Record that the provider was asked to terminate it; ask again at `due_at` unless a list shows its end."""
    await write(connection, _TERMINATE_ASKED, id=machine_id, token=token, now=now, due_at=due_at)


async def record_step(
    connection: Connection,
    machine_id: MachineId,
    step: Step | None,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
) -> bool:
    """Store a step (None: no new step) and extend the hold on the machine until `until`.

    False when the hold was lost: another worker does the work now.
    """
    shown = None if step is None else step.value
    return bool(await write(connection, _STEP, id=machine_id, step=shown, token=token, now=now, until=until))


# Recording lists

_SIGHTED = text(f"""
UPDATE machines SET sighted_at = CASE WHEN down_since IS NULL THEN :asked_at ELSE sighted_at END,
  missed_since = NULL, missed_lists = 0,
  unsteady_until = CASE WHEN missed_lists >= {MISSED_LISTS_MIN} THEN
    CASE WHEN missed_since - relisted_at < :flaps_within THEN :asked_at + :settled_after END ELSE unsteady_until END,
  relisted_at = CASE WHEN missed_lists >= {MISSED_LISTS_MIN} THEN :asked_at ELSE relisted_at END
WHERE id = ANY(:ids) AND (sighted_at IS NULL OR missed_since IS NOT NULL)
""")
# A machine that is missed for the first time was last sighted by the previous listing.
_MISSED = text(f"""
UPDATE machines m SET sighted_at = {SIGHTED_AT},
  missed_since = coalesce(m.missed_since, :asked_at), missed_lists = m.missed_lists + 1
FROM provider_accounts a WHERE a.name = m.account AND m.id = ANY(:ids)
""")


async def record_sighted(
    connection: Connection, machine_ids: Sequence[MachineId], *, asked_at: datetime
) -> None:
    """Record machines that a complete list requested at `asked_at` shows for the first time or again."""
    if machine_ids:
        await write(
            connection,
            _SIGHTED,
            ids=list(machine_ids),
            asked_at=asked_at,
            flaps_within=FLAPS_WITHIN,
            settled_after=SETTLED_AFTER,
        )


async def record_missed(
    connection: Connection, machine_ids: Sequence[MachineId], *, asked_at: datetime
) -> None:
    """Count one more complete list without these machines. Call it before the account's listing time is updated."""
    if machine_ids:
        await write(connection, _MISSED, ids=list(machine_ids), asked_at=asked_at)
