"""Our side of the line to a prover: whose turn it is, how long it has, and what its silence means.

A prover may lie, dawdle, flood or vanish. What it may send next, and how large, is known exactly; every wait
has an end. Whatever it does leaves here as `Ended`, with a finding.

Which silence is evidence, and which is the network:

- The line finds out by itself when the machine cannot be reached (the carrier's keepalive) and says LineBroken.
  So LineSilent means that the machine was there and the prover said nothing.
- To an untimed question (Hello, the fill) silence, a broken line and a refusal tell nothing: UNANSWERED.
- After a nonce has left, silence beyond the bound is an answer that came too late: `too_slow`. A broken line or a
  refusal still tells nothing; who escapes that way has proven nothing either, and cannot do so again and again.
- After we have said what we want to see opened, everything but the answer counts as `unopened`, a broken line and
  the end of the conversation's time included. Otherwise a cheat who left something out would look at the sample,
  break the line when it is caught, and try until it is not. The window is a second; an honest machine that loses
  its network in just that second is challenged again at once.
- For the same reason what was opened is checked even when the conversation breaks later.
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
"""Nothing is asked that could not be answered before."""
TRANSFER_SECONDS = 10.0
"""For what was committed to and only has to be sent: some megabytes from a large machine."""
ANSWERS: tuple[type[Any], ...] = get_args(Answer)
SMALL_HEADER_BYTES_MAX = 1024
"""Of every answer but Identity and GapsAnswer, whose headers hold lists."""


class Ended(Exception):  # noqa: N818 - reads as a sentence
    """The conversation is over, for these reasons."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{one.code}: {one.why}" for one in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Stage:
    """What it means when no answer comes: a code for each way."""

    silent: str
    broken: str = "line_broken"
    refused: str = "refused"


UNTIMED = Stage(silent="silent")
TIMED = Stage(silent="too_slow")
SHOWING = Stage(silent="unopened")
"""Group hashes that were committed to."""
OPENING = Stage(silent="unopened", broken="unopened", refused="unopened")


@dataclass(frozen=True, slots=True)
class Heard:
    message: Any
    blob: bytes
    ended: float
    """When its last byte arrived, on the line's clock."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one GPU has to answer next."""

    message: type[Any]
    stage: Stage
    gpu: int | None = None
    """None for the machine as a whole."""
    blob_bytes: int = 0
    """Exactly; but at most of Evidence, whose header says how much it is."""

    @property
    def bytes_max(self) -> int:
        long = self.message in (Identity, GapsAnswer)
        return 2 + (HEADER_BYTES_MAX if long else SMALL_HEADER_BYTES_MAX) + self.blob_bytes

    def takes(self, blob: bytes) -> bool:
        return self.message is Evidence or len(blob) == self.blob_bytes


class Conversation:
    """One prover. Times in seconds on the line's clock, which moves with what is sent and heard."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._began: float | None = None
        self._now = 0.0

    @property
    def seconds(self) -> float:
        """From the first order to the last thing that was heard."""
        return 0.0 if self._began is None else self._now - self._began

    async def order(self, message: Order, seconds: float, stage: Stage = UNTIMED) -> float:
        """Send, if an answer in `seconds` is still within what a conversation may take. Answers when it left."""
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
        """Send, if the line still stands."""
        try:
            await self._line.send(encode(message))
        except LineBroken:
            return

    async def one(self, turn: Turn, sent: float, seconds: float) -> Heard:
        """The one answer that is not about a single GPU."""
        return await self._hear((turn,), sent, sent + seconds)

    async def each(
        self, turns: Sequence[Sequence[Turn]], sent: float, seconds: float, is_mine: Callable[[Any], bool]
    ) -> list[list[Heard]]:
        """All answers of all GPUs: `turns[gpu]` in this order, the GPUs' mixed as they come.

        The first of each GPU has to come within `seconds` of `sent`; the rest have TRANSFER_SECONDS from
        the last of those. `is_mine` says whether an answer belongs to what was asked.
        """
        heard: list[list[Heard]] = [[] for _ in turns]
        until = sent + seconds
        while owed := _owed(turns, heard):
            one = await self._hear(owed, sent, until)
            had_all_first = all(heard)
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
            heard[gpu].append(one)
            if all(heard) and not had_all_first:
                until = self._now + TRANSFER_SECONDS
        return heard

    async def _hear(self, turns: Sequence[Turn], sent: float, until: float) -> Heard:
        """The next answer, of a kind that somebody's turn allows."""
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
            # The line waits from when it is asked, which is later: an order may be held back at the other side.
            raise self._silence(turns, sent, until)
        if frame.began < sent:
            raise Ended(Finding("protocol", gpu, f"{type(message).__name__} came before it was asked for."))
        if isinstance(message, Refused):
            raise Ended(Finding(stage.refused, message.gpu, f"{message.code}: {message.detail}"))
        if not isinstance(message, tuple(turn.message for turn in turns)):
            why = f"{type(message).__name__} came instead of {turns[0].message.__name__}."
            raise Ended(Finding("protocol", gpu, why))
        return Heard(message, blob, frame.ended)

    @property
    def _end(self) -> float:
        return (self._began or 0.0) + CONVERSATION_SECONDS_MAX

    def _silence(self, turns: Sequence[Turn], sent: float, until: float) -> Ended:
        """What it means that nothing came before `until`, or before the end of the conversation.

        Who knows the sample must not have its silence excused by a conversation that it made long itself.
        """
        if self._end < until and turns[0].stage is not OPENING:
            return Ended(Finding("too_long", None, f"{self.seconds:.1f} s have passed."))
        gpu = turns[0].gpu if len(turns) == 1 else None
        why = f"No {turns[0].message.__name__} within {min(until, self._end) - sent:.1f} s."
        return Ended(Finding(turns[0].stage.silent, gpu, why))


def _owed(turns: Sequence[Sequence[Turn]], heard: Sequence[Sequence[Heard]]) -> list[Turn]:
    """The next turn of each GPU that has one left; who is furthest behind comes first."""
    rest = [(len(had), due[len(had)]) for had, due in zip(heard, turns, strict=True) if len(had) < len(due)]
    return [turn for _, turn in sorted(rest, key=lambda one: one[0])]


def _kind(heard: Heard) -> str:
    return type(heard.message).__name__


def _why(what: str, error: Exception) -> str:
    said = strict.printable(str(error))
    return f"{what}: {said}." if said else f"{what}."
