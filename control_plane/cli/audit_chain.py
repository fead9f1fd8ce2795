"""Checks an export of the audit log, line by line, without keeping it in memory.

It is written from docs/audit.md and shares no code with the server, so each of the two would find a fault of the other.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

NOTHING_BEFORE = "0" * 64
_LINE_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Whole:
    """An export in which nothing is wrong."""

    chain: str
    first: int
    """The place of its first line."""
    lines: int
    sequence: int
    """The head: the place and the hash of its last line."""
    hash: str
    signed: int
    """The place of the last line that a signed checkpoint covers; 0: none does."""
    key: str | None
    """The name of the key that signed it, which is the SHA-256 of its public half."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong."""

    line: int
    """The number of the line in the file, from 1."""
    sequence: int | None
    """The place in the chain that is wrong; None for what is around the lines."""
    why: str


class _Wrong(Exception):  # noqa: N818 - it says what is the case
    def __init__(self, why: str, sequence: int | None = None) -> None:
        self.why, self.sequence = why, sequence


class Verifier:
    """Takes the lines of an export one by one, and says in the end whether all of it is right."""

    def __init__(self, head: tuple[int, str] | None = None, key: str | None = None) -> None:
        """What is known from elsewhere, and has to be in the export.

        `head`: place and hash of a line. `key`: the name of a key that signed a checkpoint.
        """
        self._head = head
        self._wanted_key = key
        self._signed, self._key = 0, key
        self._head_seen = head is None
        self._number = 0
        self._chain: str | None = None
        self._sequence = self._first = 0
        self._hash = NOTHING_BEFORE
        self._ended = False

    def take(self, line: bytes) -> Fault | None:
        """Check the next line, which ends with a newline."""
        self._number += 1
        try:
            self._check(_read(line))
        except _Wrong as wrong:
            return Fault(self._number, wrong.sequence, wrong.why)
        return None

    def end(self) -> Whole | Fault:
        """What was found, once all lines were taken."""
        if self._chain is None:
            return Fault(1, None, "the export is empty")
        if not self._ended:
            why = f"the export ends behind line {self._sequence} of the chain, without its last line: it was cut off"
            return Fault(self._number + 1, self._sequence + 1, why)
        if not self._head_seen and self._head is not None:
            why = f"line {self._head[0]}, which is known from elsewhere, is missing: the chain was cut off"
            return Fault(self._number, self._sequence + 1, why)
        if self._wanted_key is not None and not self._signed:
            return Fault(self._number, None, f"no checkpoint is signed by the key {self._wanted_key}")
        lines = self._sequence - self._first
        key = self._key if self._signed else None
        return Whole(self._chain, self._first + 1, lines, self._sequence, self._hash, self._signed, key)

    def _check(self, content: dict[str, Any]) -> None:
        if self._ended:
            raise _Wrong("something follows the end of the export")
        kind = content.get("kind")
        if self._chain is None:
            self._begin(content)
        elif kind == "end":
            self._finish(content)
        elif kind == "checkpoint":
            self._checkpoint(content)
        else:
            self._line(content)

    def _begin(self, content: dict[str, Any]) -> None:
        if content.keys() != {"chain", "hash", "kind", "sequence"} or content["kind"] != "beginning":
            raise _Wrong("the export does not begin with its first line, which names its chain")
        self._chain, self._sequence, self._hash = (
            str(content["chain"]),
            content["sequence"],
            content["hash"],
        )
        if not isinstance(self._sequence, int) or (self._sequence == 0) != (self._hash == NOTHING_BEFORE):
            raise _Wrong("the export does not begin where a chain begins")
        self._first = self._sequence
        self._note_head()

    def _finish(self, content: dict[str, Any]) -> None:
        wanted = {"chain": self._chain, "hash": self._hash, "kind": "end", "sequence": self._sequence}
        if content != wanted:
            raise _Wrong(
                "the last line of the export names another head than the line before it: a line is missing",
                self._sequence + 1,
            )
        self._ended = True

    def _line(self, content: dict[str, Any]) -> None:
        expected = self._sequence + 1
        given = content.pop("hash", None)
        if content.get("chain") != self._chain:
            raise _Wrong(f"line {expected} belongs to another chain", expected)
        if content.get("sequence") != expected:
            raise _Wrong(
                f"line {expected} is missing, or lines are out of order: {content.get('sequence')!r} stands there",
                expected,
            )
        if content.get("previous") != self._hash:
            raise _Wrong(f"line {expected} does not hold the hash of the line before it", expected)
        if hashlib.sha256(_canonical(content)).hexdigest() != given:
            raise _Wrong(f"line {expected} was changed: its hash is another one", expected)
        self._sequence, self._hash = expected, given
        self._note_head()

    def _checkpoint(self, content: dict[str, Any]) -> None:
        place = f"the checkpoint behind line {self._sequence}"
        if (content.get("chain"), content.get("sequence"), content.get("hash")) != (
            self._chain,
            self._sequence,
            self._hash,
        ):
            raise _Wrong(f"{place} is about another line: one is missing, or out of order", self._sequence)
        key = content.get("key")
        if not _is_signed(content):
            raise _Wrong(f"the signature of {place} is not that of its key", self._sequence)
        if self._wanted_key in (None, key):
            self._signed, self._key = self._sequence, str(key)

    def _note_head(self) -> None:
        if self._head is not None and self._sequence == self._head[0]:
            if self._hash != self._head[1]:
                why = f"line {self._sequence} has another hash than is known from elsewhere"
                raise _Wrong(why, self._sequence)
            self._head_seen = True


def verify(
    lines: Iterable[bytes], head: tuple[int, str] | None = None, key: str | None = None
) -> Whole | Fault:
    """Check a whole export."""
    verifier = Verifier(head, key)
    for line in lines:
        fault = verifier.take(line)
        if fault is not None:
            return fault
    return verifier.end()


def _is_signed(content: dict[str, Any]) -> bool:
    """Whether the key that a checkpoint names signed it (Ed25519)."""
    # Loaded here, because no other command needs it.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - other commands start sooner without it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - loaded only to check a signature

    signed = {name: value for name, value in content.items() if name not in ("public", "signature")}
    try:
        public, signature = bytes.fromhex(content["public"]), bytes.fromhex(content["signature"])
        if hashlib.sha256(public).hexdigest() != content["key"]:
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _canonical(signed))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _read(line: bytes) -> dict[str, Any]:
    """A line as JSON. Its bytes have to be the canonical ones, so that no change to them goes unnoticed."""
    if len(line) > _LINE_BYTES_MAX:
        raise _Wrong("the line is too long")
    try:
        content = json.loads(line)
        exact = isinstance(content, dict) and _canonical(content) + b"\n" == line
    except (ValueError, RecursionError):
        raise _Wrong("the line is not JSON") from None
    if not exact:
        raise _Wrong("the line is not written as exports are: sorted, without spaces, one to a line")
    return dict(content)
