"""What becomes of the lines of the audit log: their places in chains, checkpoints, and an end after their retention."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from control_plane.db import audit, audit_retention
from control_plane.db.audit import Checkpoint, NewCheckpoint, Pending
from control_plane.db.connection import Connection
from control_plane.domain.audit import AuditLine, AuditOutcome, Detail, Happening, SubjectKind
from control_plane.domain.audit_chain import EMPTY, Head, SealedLine, chain_name, checkpoint_text, seal_all
from control_plane.domain.ids import OrganizationId, Prefix, off_wire
from control_plane.domain.permission import Permission
from control_plane.vault.audit_keys import AuditSigner

_LEASE = f"{Prefix.LEASE}_"


async def seal(connection: Connection, *, limit: int, now: datetime) -> int:
    """Give pending lines their places, in the order in which they were written. Returns how many.

    None, when another process does it at this moment. Lines of one transaction stay together only if they are of one
    chain; a line that was written earlier and committed later comes later.
    """
    if not await audit.lock(connection):
        return 0
    waiting = await audit.pending(connection, limit=limit)
    if waiting:
        await _place(connection, waiting, await audit.heads(connection), now)
    return len(waiting)


async def seal_chain(
    connection: Connection, organization_id: OrganizationId | None, *, limit: int, now: datetime
) -> int:
    """As `seal`, for the lines of one chain."""
    if not await audit.lock(connection):
        return 0
    waiting = await audit.pending_of(connection, organization_id, limit=limit)
    if waiting:
        chain = await audit.chain_of(connection, organization_id)
        await _place(connection, waiting, {organization_id: EMPTY if chain is None else chain.head}, now)
    return len(waiting)


async def _place(
    connection: Connection,
    waiting: Sequence[Pending],
    heads: Mapping[OrganizationId | None, Head],
    now: datetime,
) -> None:
    """Put lines behind the heads of their chains."""
    chains: dict[OrganizationId | None, list[AuditLine]] = defaultdict(list)
    for line in await _linked(connection, await _once(connection, waiting)):
        chains[line.organization_id].append(line)
    sealed: list[SealedLine] = []
    moved: dict[OrganizationId | None, Head] = {}
    for organization_id, lines in chains.items():
        placed, moved[organization_id] = seal_all(lines, heads.get(organization_id, EMPTY))
        sealed += placed
    await audit.store(connection, sealed, moved, numbers=[each.number for each in waiting], now=now)


async def _once(connection: Connection, waiting: Sequence[Pending]) -> list[Pending]:
    """The lines that have no place yet, each once.

    Whoever stores lines beside their requests stores them again when the answer of the database was lost.
    """
    seen = await audit.sealed_among(connection, [each.line.id for each in waiting])
    found: list[Pending] = []
    for each in waiting:
        if each.line.id not in seen:
            seen.add(each.line.id)
            found.append(each)
    return found


async def _linked(connection: Connection, waiting: Sequence[Pending]) -> list[AuditLine]:
    """The lines, with links to what their transactions wrote into the journal and into the ledger."""
    written = await audit.journal_of(
        connection, [(lease, each.transaction) for each in waiting for lease in _leases(each.line)]
    )
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for entry in written:
        numbers[entry.lease, entry.transaction].append(entry.number)
    return [await _with_links(connection, each, numbers) for each in waiting]


def _leases(line: AuditLine) -> list[UUID]:
    """The leases that a request was about. The lines of loops have their links already."""
    if line.request_id is None:
        return []
    return [off_wire(Prefix.LEASE, target) for target in line.targets if target.startswith(_LEASE)]


async def _with_links(
    connection: Connection, waiting: Pending, numbers: Mapping[tuple[str, int], Sequence[int]]
) -> AuditLine:
    line, links = waiting.line, dict[str, list[Detail]](waiting.line.links)
    journal = sorted(
        number for target in line.targets for number in numbers.get((target, waiting.transaction), ())
    )
    if journal:
        links["journal"] = list(journal)
    if line.event == Permission.LEDGER_POST and line.organization_id is not None:
        posted = await audit.ledger_of(connection, line.organization_id, waiting.transaction, line.at)
        if posted:
            links["transactions"] = [str(transaction) for transaction in posted]
    return replace(line, links=links)


async def note_heads(
    connection: Connection, signer: AuditSigner | None, *, before: datetime, now: datetime
) -> list[Checkpoint]:
    """Store checkpoints of chains that moved since `before`, signed if there is a signer. Returns them."""
    heads = await audit.take_heads(connection, before=before, now=now)
    await audit.insert_checkpoints(
        connection, [_checkpoint(each.organization_id, each.head, "head", signer, now) for each in heads]
    )
    return heads


def _checkpoint(
    organization_id: OrganizationId | None,
    head: Head,
    reason: str,
    signer: AuditSigner | None,
    now: datetime,
) -> NewCheckpoint:
    signature = None
    if signer is not None:
        text = checkpoint_text(organization_id, head, at=now, key_id=signer.key_id)
        signature = signer.sign(text).hex()
    return NewCheckpoint(
        organization_id,
        head.sequence,
        head.hash,
        reason,
        now,
        None if signer is None else signer.key_id,
        signature,
    )


async def prune(
    connection: Connection,
    organization_id: OrganizationId | None,
    *,
    before: datetime,
    limit: int,
    signer: AuditSigner | None,
    line_id: UUID,
    now: datetime,
) -> int:
    """Delete the oldest lines of a chain, up to the first that is younger than `before`. Returns how many.

    While the log is exported to a bucket, only lines that were exported are deleted. A checkpoint stays in their place,
    and a line of the chain says what was deleted.
    """
    if not await audit.lock(connection):
        return 0
    chain = await audit.chain_of(connection, organization_id)
    if chain is None:
        return 0
    last = await audit_retention.last_to_prune(
        connection, organization_id, after=chain.pruned_sequence, before=before, limit=limit
    )
    if await audit_retention.bucket(connection) is not None:
        last = min(last, chain.exported_sequence)
    count = last - chain.pruned_sequence
    if count <= 0:
        return 0
    head = await audit.head_at(connection, organization_id, last)
    if head is None:
        raise LookupError(f"line {last} of {chain_name(organization_id)} is missing")
    await audit.insert_checkpoints(connection, [_checkpoint(organization_id, head, "pruned", signer, now)])
    await audit_retention.prune(connection, organization_id, last=last)
    line = AuditLine(
        id=line_id,
        organization_id=organization_id,
        at=now,
        event=Happening.AUDIT_PRUNE,
        outcome=AuditOutcome.ALLOWED,
        subject="prune_audit",
        subject_kind=SubjectKind.LOOP,
        rule="retention",
        details={"first_sequence": chain.pruned_sequence + 1, "last_sequence": last, "count": count},
    )
    await audit.insert(connection, [line])
    return count
