"""Our side of the line to a prover: whose turn it is, how much time it has, and what its silence means.

A prover may lie, be slow, flood us or disappear. At every moment we know exactly what it may send next and how large
that may be, and every wait has a time limit. Whatever the prover does wrong ends in `Ended`, with a finding.

Silence can be evidence against a machine, or a fault of the network:

- The line itself detects that the machine cannot be reached (by the keepalive of SSH) and raises LineBroken.
  LineSilent therefore means that the machine can be reached and the prover sent nothing.
- If the question is not timed (Hello, the fill), silence, a broken line and a refusal mean nothing: UNANSWERED.
- After a nonce was sent, silence beyond the time limit is an answer that is too late: `too_slow`. A broken line or
  a refusal still means nothing. A cheat that escapes this way has proven nothing, and cannot repeat it for ever.
- After we have sent the sample, everything but the answer is `unopened`, even a broken line or the end of the
  conversation's time. Otherwise a cheat could look at the sample, break the line if the sample would expose it, and
  try again until it does not. This takes about a second; an honest machine that loses its network in that second is
  challenged again at once.
- For the same reason, opened digests are checked even if the conversation breaks later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from data_plane.access.line import Line, LineBroken, LineSilent
from data_plane.documents import strict
from data_plane.proof.challenger.port import Finding
from data_plane.proof.protocol.messages import (
    HEADER_BYTES_MAX,
    Answer,
    Evidence,
    GapsAnswer,
    Identity,
    Order,
    Refused,
)
from data_plane.proof.protocol.wire import decode, encode

CONVERSATION_SECONDS_MAX = 60.0
"""The time limit of a conversation. No order is sent that could not be answered within it."""
TRANSFER_SECONDS = 10.0
"""For committed data that only has to be sent: some megabytes from a large machine."""
ANSWERS: tuple[type[Any], ...] = get_args(Answer)
SMALL_HEADER_BYTES_MAX = 1024
"""The header of every answer but Identity and GapsAnswer, whose headers contain lists."""


class Ended(Exception):  # noqa: N818 - reads as a sentence
    """The conversation is over, for the reasons in its findings."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{one.code}: {one.why}" for one in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Stage:
    """The codes for the ways in which an answer can fail to come."""

    silent: str
    broken: str = "line_broken"
    refused: str = "refused"


UNTIMED = Stage(silent="silent")
TIMED = Stage(silent="too_slow")
SHOWING = Stage(silent="unopened")
"""While group hashes are sent that were committed to."""
OPENING = Stage(silent="unopened", broken="unopened", refused="unopened")


@dataclass(frozen=True, slots=True)
class Received:
    message: Any
    blob: bytes
    ended: float
    """When its last byte arrived, in seconds on the line's clock."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The next answer that one GPU has to send."""

    message: type[Any]
    stage: Stage
    gpu: int | None = None
    """None for an answer about the whole machine."""
    blob_bytes: int = 0
    """The exact size of the blob; for Evidence, whose header has the size, the largest one."""

    @property
    def bytes_max(self) -> int:
        long = self.message in (Identity, GapsAnswer)
        return 2 + (HEADER_BYTES_MAX if long else SMALL_HEADER_BYTES_MAX) + self.blob_bytes

    def takes(self, blob: bytes) -> bool:
        return self.message is Evidence or len(blob) == self.blob_bytes


class Conversation:
    """A conversation with one prover. Times are in seconds on the line's clock."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._began: float | None = None
        self._now = 0.0

    @property
    def seconds(self) -> float:
        """The time from the first order to the last frame that was sent or received."""
        return 0.0 if self._began is None else self._now - self._began

    async def order(self, message: Order, seconds: float, stage: Stage = UNTIMED) -> float:
        """Send an order and return when it was sent. Raises Ended if `seconds` for its answer exceed the time limit."""
        if self.seconds + seconds > CONVERSATION_SECONDS_MAX:
            raise Ended(
                Finding("too_long", None, f"{self.seconds:.1f} s have passed, {seconds:.1f} are needed.")
            )
        try:
            self._now = await self._line.send(encode(message))
        except LineBroken as error:
            raise Ended(Finding(stage.broken, None, _why("The line broke", error))) from None
        if self._began is None:
            self._began = self._now
        return self._now

    async def farewell(self, message: Order) -> None:
        """Send a last order, unless the line is broken."""
        try:
            await self._line.send(encode(message))
        except LineBroken:
            return

    async def one(self, turn: Turn, sent: float, seconds: float) -> Received:
        """The only answer to an order about the whole machine."""
        return await self._receive((turn,), sent, sent + seconds)

    async def each(
        self, turns: Sequence[Sequence[Turn]], sent: float, seconds: float, is_mine: Callable[[Any], bool]
    ) -> list[list[Received]]:
        """All answers of all GPUs. Each GPU answers `turns[gpu]` in this order, and the GPUs' answers may be mixed.

        The first answer of each GPU must arrive within `seconds` after `sent`. The others have TRANSFER_SECONDS after
        the last of the first ones. `is_mine` tells whether an answer belongs to the order.
        """
        received: list[list[Received]] = [[] for _ in turns]
        until = sent + seconds
        while owed := _owed(turns, received):
            one = await self._receive(owed, sent, until)
            had_all_first = all(received)
            gpu = one.message.gpu
            turn = next((turn for turn in owed if turn.gpu == gpu), None)
            if turn is None or not isinstance(one.message, turn.message) or not is_mine(one.message):
                why = (
                    f"{_kind(one)} came twice, before its turn, or about another phase or GPU than was asked."
                )
                raise Ended(Finding("protocol", gpu, why))
            if not turn.takes(one.blob):
                why = f"{_kind(one)} has {len(one.blob)} bytes, not {turn.blob_bytes}."
                raise Ended(Finding("malformed", gpu, why))
            received[gpu].append(one)
            if all(received) and not had_all_first:
                until = self._now + TRANSFER_SECONDS
        return received

    async def _receive(self, turns: Sequence[Turn], sent: float, until: float) -> Received:
        """The next answer, which must be of a kind that is some GPU's turn."""
        stage, gpu = turns[0].stage, turns[0].gpu if len(turns) == 1 else None
        end = min(until, self._end)
        try:
            frame = await self._line.receive(max(turn.bytes_max for turn in turns), max(0.0, end - self._now))
            message, blob = decode(frame.body, ANSWERS)
        except LineSilent:
            self._now = max(self._now, end)
            raise self._silence(turns, sent, until) from None
        except LineBroken as error:
            why = _why(f"The line broke before {turns[0].message.__name__}", error)
            raise Ended(Finding(stage.broken, None, why)) from None
        except strict.Malformed as error:
            raise Ended(Finding("malformed", None, _why("Not a message", error))) from None
        self._now = max(self._now, frame.ended)
        if frame.ended > end:
            # The line's own time limit starts later than this, because the other side can delay our sending.
            raise self._silence(turns, sent, until)
        if frame.began < sent:
            raise Ended(Finding("protocol", gpu, f"{type(message).__name__} came before it was asked for."))
        if isinstance(message, Refused):
            raise Ended(Finding(stage.refused, message.gpu, f"{message.code}: {message.detail}"))
        if not isinstance(message, tuple(turn.message for turn in turns)):
            why = f"{type(message).__name__} came instead of {turns[0].message.__name__}."
            raise Ended(Finding("protocol", gpu, why))
        return Received(message, blob, frame.ended)

    @property
    def _end(self) -> float:
        return (self._began or 0.0) + CONVERSATION_SECONDS_MAX

    def _silence(self, turns: Sequence[Turn], sent: float, until: float) -> Ended:
        """The end of a conversation in which no answer came before `until`, or before the time limit of it all.

        A prover that knows the sample must not be excused because the conversation, which it can prolong, took too
        long.
        """
        if self._end < until and turns[0].stage is not OPENING:
            return Ended(Finding("too_long", None, f"{self.seconds:.1f} s have passed."))
        gpu = turns[0].gpu if len(turns) == 1 else None
        why = f"No {turns[0].message.__name__} within {min(until, self._end) - sent:.1f} s."
        return Ended(Finding(turns[0].stage.silent, gpu, why))


def _owed(turns: Sequence[Sequence[Turn]], received: Sequence[Sequence[Received]]) -> list[Turn]:
    """The next turn of each GPU that still has one, beginning with the GPU that is furthest behind."""
    rest = [
        (len(had), due[len(had)]) for had, due in zip(received, turns, strict=True) if len(had) < len(due)
    ]
    return [turn for _, turn in sorted(rest, key=lambda one: one[0])]


def _kind(received: Received) -> str:
    return type(received.message).__name__


def _why(what: str, error: Exception) -> str:
    text = strict.printable(str(error))
    return f"{what}: {text}." if text else f"{what}."
