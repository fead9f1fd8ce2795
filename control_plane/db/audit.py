"""Queries on the audit log: writing lines, giving them their places in chains, and reading them.

A line is written in the transaction of what it is about, without a place in its chain: that would make all changes of
an organization wait for each other. The loop `seal_audit` gives it one within seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.audit import AuditLine
from control_plane.domain.audit_chain import EMPTY, Head, SealedLine, SignedHead
from control_plane.domain.ids import OrganizationId

_COLUMNS = tuple(field.name for field in fields(AuditLine))
COLUMNS = ", ".join(_COLUMNS)
"""SQL: the columns of a line."""
_TEXTS = "targets"
_LINES = Recordset(AuditLine, "lines")
_GIVEN = ", ".join(
    f"ARRAY(SELECT jsonb_array_elements_text(lines.{column}))" if column == _TEXTS else f"lines.{column}"
    for column in _COLUMNS
)
_INSERT = text(f"INSERT INTO audit_pending ({COLUMNS}) SELECT {_GIVEN} FROM {_LINES}")
_INSERT_REFUSED_SIGN_INS = text("SELECT audit_refused_sign_ins(CAST(:lines AS jsonb))")
# PostgreSQL counts here what the session wrote since it last passed its counters on, which it does about once a second:
# rows of earlier transactions may be among them, so the count at the beginning of the transaction is subtracted.
_ROWS_WRITTEN = """
(SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_user_tables WHERE schemaname = 'public')
"""
_NOTE_ROWS = text(f"SELECT set_config('app.rows_before', CAST({_ROWS_WRITTEN} AS text), true)")
_CHANGED = text(f"SELECT {_ROWS_WRITTEN} > CAST(current_setting('app.rows_before') AS bigint)")


async def insert(connection: Connection, lines: Sequence[AuditLine]) -> None:
    """Write lines in the transaction of what they are about. Each belongs to the tenant of the connection."""
    if lines:
        await write(connection, _INSERT, lines=_LINES.document(lines))


async def insert_refused_sign_ins(connection: Connection, lines: Sequence[AuditLine]) -> None:
    """Write lines of the platform's chain about sign-ins that were refused, and about how many were."""
    if lines:
        await connection.execute(_INSERT_REFUSED_SIGN_INS, {"lines": _LINES.document(lines)})


async def begin(connection: Connection) -> None:
    """Begin to count the rows that this transaction writes."""
    await connection.execute(_NOTE_ROWS)


async def has_changed(connection: Connection) -> bool:
    """Whether this transaction has written any row since `begin`."""
    return bool(await read_one(connection, _CHANGED, bool))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A line that waits for its place, with the transaction that wrote it."""

    number: int
    transaction: int
    line: AuditLine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits(AuditLine):
    number: int
    transaction: int


_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('splitplane audit log', 0))")
_PENDING = text(f"SELECT number, transaction, {COLUMNS} FROM audit_pending ORDER BY number LIMIT :limit")
_PENDING_OF = text(f"""
SELECT number, transaction, {COLUMNS} FROM audit_pending
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) ORDER BY number LIMIT :limit
""")
_FIRST_WAITING = text("""
SELECT number, at FROM audit_pending
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) ORDER BY number LIMIT 1
""")
_WAITING = text("SELECT organization_id FROM audit_pending GROUP BY 1 ORDER BY min(number) LIMIT :limit")
_OLDEST = text("SELECT min(at) FROM audit_pending")
_SEALED_AMONG = text("SELECT id FROM audit_events WHERE id = ANY(:ids)")
_DELETE_PENDING = text("DELETE FROM audit_pending WHERE number = ANY(:numbers)")


async def sealed_among(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Which of these lines have their places already."""
    return set(await read(connection, _SEALED_AMONG, UUID, ids=list(ids)))


async def lock(connection: Connection) -> bool:
    """Whether this transaction is the one that may change chains; at most one is, in all processes."""
    return bool(await read_one(connection, _LOCK, bool))


def line_of(row: AuditLine) -> AuditLine:
    """The line in a row that has more columns."""
    return AuditLine(**{name: getattr(row, name) for name in _COLUMNS})


async def pending(connection: Connection, *, limit: int) -> list[Pending]:
    """The lines that wait for their places, in the order in which they were written."""
    found = await read(connection, _PENDING, _Waits, limit=limit)
    return [Pending(number=row.number, transaction=row.transaction, line=line_of(row)) for row in found]


async def pending_of(
    connection: Connection, organization_id: OrganizationId | None, *, limit: int
) -> list[Pending]:
    """The lines of one chain that wait for their places, in the order in which they were written."""
    found = await read(connection, _PENDING_OF, _Waits, organization_id=organization_id, limit=limit)
    return [Pending(number=row.number, transaction=row.transaction, line=line_of(row)) for row in found]


async def waiting(connection: Connection, *, limit: int) -> list[OrganizationId | None]:
    """Whose chains have lines that wait, the longest first."""
    return [each.organization_id for each in await read(connection, _WAITING, _Owner, limit=limit)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Which line waits, and since when; nothing of what it says."""

    number: int
    at: datetime


async def first_waiting(connection: Connection, organization_id: OrganizationId | None) -> Waiting | None:
    """The first line of a chain that waits for its place."""
    return await read_one(connection, _FIRST_WAITING, Waiting, organization_id=organization_id)


async def oldest_pending(connection: Connection) -> datetime | None:
    """The time of the oldest line without a place; None when every line has its place."""
    found = await read(connection, _OLDEST, _Oldest)
    return found[0].min if found else None


@dataclass(frozen=True, slots=True)
class _Oldest:
    min: datetime | None


@dataclass(frozen=True, slots=True)
class Written:
    """A line of the journal that a transaction wrote about a lease."""

    lease: str
    transaction: int
    number: int


@dataclass(frozen=True, slots=True)
class _About:
    lease_id: UUID
    transaction: int


_ABOUT = Recordset(_About, "about")
_JOURNAL = text(f"""
SELECT 'le_' || replace(CAST(j.lease_id AS text), '-', '') AS lease, j.transaction, j.number
FROM (SELECT DISTINCT lease_id, transaction FROM {_ABOUT}) AS a
JOIN journal j ON j.lease_id = a.lease_id AND j.transaction = a.transaction ORDER BY j.number
""")
# A row's own transaction, whose number has 32 bits there.
_POSTED = text("""
SELECT id FROM transactions
WHERE organization_id = :organization_id AND recorded_at >= CAST(:at AS timestamptz) - interval '5 minutes'
  AND CAST(CAST(xmin AS text) AS bigint) = :transaction % 4294967296
ORDER BY id LIMIT 8
""")


async def journal_of(connection: Connection, about: Sequence[tuple[UUID, int]]) -> list[Written]:
    """The lines of the journal about leases, each with the transaction that wrote it."""
    if not about:
        return []
    return await read(connection, _JOURNAL, Written, about=_ABOUT.document([_About(*pair) for pair in about]))


async def ledger_of(
    connection: Connection, organization_id: OrganizationId, transaction: int, at: datetime
) -> list[UUID]:
    """The ledger's transactions that a transaction of the database wrote for an organization."""
    return await read(
        connection, _POSTED, UUID, organization_id=organization_id, transaction=transaction, at=at
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain: whose it is, and its last line."""

    organization_id: OrganizationId | None
    sequence: int
    hash: str
    checked_sequence: int
    exported_sequence: int
    pruned_sequence: int

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)


CHAIN = """
SELECT organization_id, sequence, encode(hash, 'hex') AS hash, checked_sequence, exported_sequence, pruned_sequence
FROM {source}
"""
_CHAINS = text(CHAIN.format(source="audit_chains ORDER BY organization_id NULLS FIRST"))
_ONE_CHAIN = text(
    CHAIN.format(
        source="audit_chains WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid)"
    )
)
_HEADS = text(CHAIN.format(source="audit_chains") + " FOR UPDATE")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRow(AuditLine):
    sequence: int
    previous: str
    hash: str


_SEALED = Recordset(SealedRow, "lines")
_INSERT_SEALED = text(f"""
INSERT INTO audit_events ({COLUMNS}, sequence, previous, hash)
SELECT {_GIVEN}, lines.sequence, decode(lines.previous, 'hex'), decode(lines.hash, 'hex') FROM {_SEALED}
""")
_MOVE_HEAD = text("""
INSERT INTO audit_chains (organization_id, sequence, hash, sealed_at)
VALUES (CAST(:organization_id AS uuid), :sequence, decode(:hash, 'hex'), :now)
ON CONFLICT (organization_id) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash,
                                            sealed_at = excluded.sealed_at
""")
_TAKE_HEADS = text("""
UPDATE audit_chains SET checked_sequence = sequence, checked_at = :now
WHERE sequence > checked_sequence AND (checked_at IS NULL OR checked_at <= :before)
RETURNING organization_id, sequence, encode(hash, 'hex') AS hash
""")


async def chains(connection: Connection) -> list[Chain]:
    """Every chain, the platform's first."""
    return await read(connection, _CHAINS, Chain)


async def heads(connection: Connection) -> dict[OrganizationId | None, Head]:
    """The heads of all chains, locked."""
    return {chain.organization_id: chain.head for chain in await read(connection, _HEADS, Chain)}


async def chain_of(connection: Connection, organization_id: OrganizationId | None) -> Chain | None:
    """One chain, an organization's or the platform's (None); None while it has no line."""
    return await read_one(connection, _ONE_CHAIN, Chain, organization_id=organization_id)


async def store(
    connection: Connection,
    sealed: Sequence[SealedLine],
    heads: dict[OrganizationId | None, Head],
    *,
    numbers: Sequence[int],
    now: datetime,
) -> None:
    """Store lines with their places, and the new heads; the pending ones with these numbers leave."""
    given = [
        SealedRow(
            **{name: getattr(each.line, name) for name in _COLUMNS},
            sequence=each.sequence,
            previous=each.previous,
            hash=each.hash,
        )
        for each in sealed
    ]
    await write(connection, _INSERT_SEALED, lines=_SEALED.document(given))
    for organization_id, head in heads.items():
        await write(
            connection,
            _MOVE_HEAD,
            organization_id=organization_id,
            sequence=head.sequence,
            hash=head.hash,
            now=now,
        )
    await write(connection, _DELETE_PENDING, numbers=list(numbers))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a chain as it was."""

    organization_id: OrganizationId | None
    sequence: int
    hash: str

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint as it is stored. Hash and signature are hexadecimal."""

    organization_id: OrganizationId | None
    sequence: int
    hash: str
    reason: str
    at: datetime
    key_id: str | None
    signature: str | None


_CHECKPOINT_ROWS = Recordset(NewCheckpoint, "checkpoints")
_INSERT_CHECKPOINTS = text(f"""
INSERT INTO audit_checkpoints (organization_id, sequence, hash, reason, at, key_id, signature)
SELECT organization_id, sequence, decode(hash, 'hex'), reason, at, key_id, decode(signature, 'hex')
FROM {_CHECKPOINT_ROWS}
""")
_SIGNED = text("""
SELECT c.sequence, encode(c.hash, 'hex') AS hash, c.at, c.key_id, encode(k.public, 'hex') AS public,
  encode(c.signature, 'hex') AS signature
FROM audit_checkpoints c JOIN audit_keys k ON k.id = c.key_id
WHERE c.organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid)
  AND c.sequence BETWEEN :first AND :last ORDER BY c.sequence, c.number
""")


async def take_heads(connection: Connection, *, before: datetime, now: datetime) -> list[Checkpoint]:
    """The heads of chains that moved, and whose last checkpoint is at least as old as `before`.

    In the same transaction, a checkpoint of each has to be stored.
    """
    return await read(connection, _TAKE_HEADS, Checkpoint, before=before, now=now)


async def insert_checkpoints(connection: Connection, checkpoints: Sequence[NewCheckpoint]) -> None:
    if checkpoints:
        await write(connection, _INSERT_CHECKPOINTS, checkpoints=_CHECKPOINT_ROWS.document(checkpoints))


async def signed(
    connection: Connection, organization_id: OrganizationId | None, *, first: int, last: int
) -> list[SignedHead]:
    """The checkpoints of a chain that are signed, from one place to another."""
    return await read(
        connection, _SIGNED, SignedHead, organization_id=organization_id, first=first, last=last
    )


_UNSIGNED_AFTER = text("""
SELECT min(c.sequence) FROM audit_checkpoints c
WHERE c.organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND c.key_id IS NULL AND c.number > (
  SELECT min(s.number) FROM audit_checkpoints s
  WHERE s.organization_id IS NOT DISTINCT FROM c.organization_id AND s.key_id IS NOT NULL)
""")


@dataclass(frozen=True, slots=True)
class _First:
    min: int | None


async def unsigned_after(connection: Connection, organization_id: OrganizationId | None) -> int | None:
    """The place of the first checkpoint that is not signed although an earlier one of its chain is; None: no such."""
    found = await read_one(connection, _UNSIGNED_AFTER, _First, organization_id=organization_id)
    return None if found is None else found.min


READ = f"SELECT {COLUMNS}, sequence, encode(previous, 'hex') AS previous, encode(hash, 'hex') AS hash FROM "
_AFTER = text(f"""
{READ} audit_events WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND sequence > :after
ORDER BY sequence LIMIT :limit
""")
_CHECKPOINTS = text("""
SELECT organization_id, sequence, encode(hash, 'hex') AS hash FROM audit_checkpoints
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) ORDER BY sequence
""")
_BEGINNING = text("""
SELECT organization_id, sequence, encode(hash, 'hex') AS hash FROM audit_checkpoints
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND reason = 'pruned'
ORDER BY sequence DESC LIMIT 1
""")


async def after(
    connection: Connection, organization_id: OrganizationId | None, *, after: int, limit: int
) -> list[SealedLine]:
    """The lines of a chain behind a sequence number, in order."""
    found = await read(
        connection, _AFTER, SealedRow, organization_id=organization_id, after=after, limit=limit
    )
    return [sealed_of(row) for row in found]


_HEAD_AT = text("""
SELECT sequence, encode(hash, 'hex') AS hash FROM audit_events
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND sequence = :sequence
UNION ALL
SELECT sequence, encode(hash, 'hex') AS hash FROM audit_checkpoints
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND sequence = :sequence LIMIT 1
""")


async def head_at(
    connection: Connection, organization_id: OrganizationId | None, sequence: int
) -> Head | None:
    """The head of a chain when this was its last line, which may be pruned; None when it never was."""
    if sequence == 0:
        return EMPTY
    return await read_one(connection, _HEAD_AT, Head, organization_id=organization_id, sequence=sequence)


async def checkpoints(connection: Connection, organization_id: OrganizationId | None) -> dict[int, str]:
    """The hashes of a chain's heads as they were, by sequence number."""
    found = await read(connection, _CHECKPOINTS, Checkpoint, organization_id=organization_id)
    return {checkpoint.sequence: checkpoint.hash for checkpoint in found}


async def beginning(connection: Connection, organization_id: OrganizationId | None) -> Head:
    """What stands before the first line that is kept of a chain."""
    found = await read_one(connection, _BEGINNING, Checkpoint, organization_id=organization_id)
    return EMPTY if found is None else Head(found.sequence, found.hash)


def sealed_of(row: SealedRow) -> SealedLine:
    return SealedLine(line=line_of(row), sequence=row.sequence, previous=row.previous, hash=row.hash)


_OWNERS = text("SELECT organization_id FROM audit_checkpoints UNION SELECT organization_id FROM audit_events")


@dataclass(frozen=True, slots=True)
class _Owner:
    organization_id: OrganizationId | None


async def owners(connection: Connection) -> set[OrganizationId | None]:
    """Whose chains have lines or checkpoints."""
    return {found.organization_id for found in await read(connection, _OWNERS, _Owner)}
