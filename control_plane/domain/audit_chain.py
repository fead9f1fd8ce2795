"""The hash chain of the audit log: the bytes of a line, its hash, and the check of a whole chain.

Each line holds the hash of the line before it, so a line that is changed, removed, inserted or moved breaks the chain.
docs/audit.md describes the bytes, so that an auditor can write a check of their own.
`control_plane/cli/audit_chain.py` is one, and shares no code with this file.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from control_plane.domain.audit import PLATFORM_CHAIN, AuditLine
from control_plane.domain.ids import OrganizationId, Prefix, on_wire

VERSION = 1
NOTHING_BEFORE = "0" * 64
"""What the first line of a chain holds in the place of a hash."""


@dataclass(frozen=True, slots=True)
class Head:
    """The last line of a chain: its place and its hash."""

    sequence: int
    hash: str


EMPTY = Head(0, NOTHING_BEFORE)
"""The head of a chain without lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLine:
    """A line with its place in its chain."""

    line: AuditLine
    sequence: int
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.hash)


def chain_name(organization_id: OrganizationId | None) -> str:
    """The chain of an organization, or the platform's, as lines and exports name it."""
    return PLATFORM_CHAIN if organization_id is None else on_wire(Prefix.ORGANIZATION, organization_id)


def stamp(at: datetime) -> str:
    """A time as lines have it: UTC with microseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def fields(line: AuditLine, *, sequence: int, previous: str) -> dict[str, Any]:
    """Everything that is hashed."""
    return {
        "address": line.address,
        "at": stamp(line.at),
        "chain": chain_name(line.organization_id),
        "client": line.client,
        "code": line.code,
        "credential": line.credential,
        "details": dict(line.details),
        "event": line.event,
        "id": on_wire(Prefix.AUDIT_EVENT, line.id),
        "links": dict(line.links),
        "outcome": str(line.outcome),
        "previous": previous,
        "project": line.project,
        "region": line.region,
        "request_id": line.request_id,
        "rule": line.rule,
        "sequence": sequence,
        "subject": line.subject,
        "subject_kind": str(line.subject_kind),
        "subject_organization": line.subject_organization,
        "targets": list(line.targets),
        "version": VERSION,
    }


def canonical(value: dict[str, Any]) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8: RFC 8785 for values without fractions."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def seal(line: AuditLine, after: Head) -> SealedLine:
    """Put a line behind the head of its chain."""
    sequence = after.sequence + 1
    digest = hashlib.sha256(canonical(fields(line, sequence=sequence, previous=after.hash))).hexdigest()
    return SealedLine(line=line, sequence=sequence, previous=after.hash, hash=digest)


def seal_all(lines: Iterable[AuditLine], after: Head) -> tuple[Sequence[SealedLine], Head]:
    """Put lines of one chain behind its head, in their order. Returns them and the new head."""
    sealed = []
    for line in lines:
        sealed.append(seal(line, after))
        after = sealed[-1].head
    return sealed, after


def exported(sealed: SealedLine) -> bytes:
    """A line as exports have it: one line of JSON, with its hash."""
    found = fields(sealed.line, sequence=sealed.sequence, previous=sealed.previous)
    return canonical(found | {"hash": sealed.hash}) + b"\n"


@dataclass(frozen=True, slots=True)
class Broken:
    """The first line of a chain that is wrong."""

    sequence: int
    why: str


def check(sealed: SealedLine, after: Head) -> Broken | None:
    """Whether a line belongs behind this head, and is what was sealed."""
    expected = after.sequence + 1
    if sealed.sequence != expected:
        missing = "missing" if sealed.sequence > expected else "out of order"
        return Broken(expected, f"line {expected} is {missing}: line {sealed.sequence} follows")
    if sealed.previous != after.hash:
        return Broken(expected, f"line {expected} does not hold the hash of the line before it")
    if seal(sealed.line, after).hash != sealed.hash:
        return Broken(expected, f"line {expected} was changed: its hash is another one")
    return None


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A checkpoint: the head of a chain as it was at a moment, and who signed that. The texts are hexadecimal."""

    sequence: int
    hash: str
    at: datetime
    key_id: str
    public: str
    """The public key, 32 bytes."""
    signature: str


def checkpoint_text(
    organization_id: OrganizationId | None, head: Head, *, at: datetime, key_id: str
) -> bytes:
    """What the signature of a checkpoint is over."""
    return canonical(_checkpoint(organization_id, head, at, key_id))


def checkpoint(organization_id: OrganizationId | None, signed: SignedHead) -> bytes:
    """The line of an export, behind the line that it is about, that says who signed the chain up to there."""
    found = _checkpoint(organization_id, Head(signed.sequence, signed.hash), signed.at, signed.key_id)
    return canonical(found | {"public": signed.public, "signature": signed.signature}) + b"\n"


def _checkpoint(
    organization_id: OrganizationId | None, head: Head, at: datetime, key_id: str
) -> dict[str, Any]:
    return {
        "at": stamp(at),
        "chain": chain_name(organization_id),
        "hash": head.hash,
        "key": key_id,
        "kind": "checkpoint",
        "sequence": head.sequence,
        "version": VERSION,
    }


def with_checkpoints(
    organization_id: OrganizationId | None, lines: Iterable[SealedLine], signed: Iterable[SignedHead]
) -> bytes:
    """Lines as exports have them, each with its checkpoints behind it."""
    by_place: dict[int, list[bytes]] = {}
    for each in signed:
        by_place.setdefault(each.sequence, []).append(checkpoint(organization_id, each))
    return b"".join(exported(line) + b"".join(by_place.get(line.sequence, ())) for line in lines)


def beginning(organization_id: OrganizationId | None, before: Head) -> bytes:
    """The first line of an export: the chain, and what stands before its first line."""
    return _edge("beginning", organization_id, before)


def end(organization_id: OrganizationId | None, head: Head) -> bytes:
    """The last line of an export: the head that it reaches, so that an export that was cut off is found."""
    return _edge("end", organization_id, head)


def _edge(kind: str, organization_id: OrganizationId | None, head: Head) -> bytes:
    content = {
        "chain": chain_name(organization_id),
        "hash": head.hash,
        "kind": kind,
        "sequence": head.sequence,
    }
    return canonical(content) + b"\n"
