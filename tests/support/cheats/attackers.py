"""Hostile agents: manipulations of the messages themselves, whatever computes the answers.

An attacker is between an emulation and its line. It sees every order, and sends what it likes:

    line = AttackedLine(machine, timers, attacker=Altered((Committed, Groups), delayed(1.0)))
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from data_plane.proof.protocol.messages import (
    ANSWER_BYTES_MAX,
    ROOT_BYTES,
    Committed,
    Evidence,
    Filled,
    GapsAnswer,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    Opened,
    Order,
    Refused,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.simulation.line import Sent

_LENGTH_BYTES = 4
_ANSWERS: "tuple[type[Any], ...]" = (
    Identity,
    LatencyAnswer,
    Filled,
    Committed,
    Groups,
    Opened,
    GapsAnswer,
    Evidence,
    Refused,
)


@dataclass(frozen=True)
class HonestAnswer:
    """One honest answer, about to be sent."""

    sent: Sent
    message: Any
    blob: bytes
    asked_at: float
    """When the order arrived."""

    def saying(self, blob: "bytes | None" = None, **changes: Any) -> Sent:
        """The same frame with other content."""
        return self.with_body(_body(replace(self.message, **changes), self.blob if blob is None else blob))

    def with_body(self, body: "bytes | None") -> Sent:
        return replace(self.sent, body=body)


Alter = Callable[[HonestAnswer], Iterable[Sent]]


def _body(message: Any, blob: bytes = b"") -> bytes:
    return encode(message, blob)[_LENGTH_BYTES:]


@dataclass
class Altered:
    """Manipulates the answers of some kinds, and leaves the others as they are."""

    kinds: tuple[type[Any], ...]
    alter: Alter

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        for sent in honest:
            message, blob = decode(cast("bytes", sent.body), _ANSWERS)
            if isinstance(message, self.kinds):
                yield from self.alter(HonestAnswer(sent, message, blob, at))
            else:
                yield sent


def garbled(answer: HonestAnswer) -> Iterable[Sent]:
    """Bytes that are not a message."""
    return (answer.with_body(b"\xff\xff{\x00"),)


def oversized(answer: HonestAnswer) -> Iterable[Sent]:
    """More bytes than any answer may have."""
    return (answer.with_body(bytes(ANSWER_BYTES_MAX + 1)),)


def short(answer: HonestAnswer) -> Iterable[Sent]:
    """Without the end of the blob."""
    return (answer.saying(blob=answer.blob[:-8]),)


def twice(answer: HonestAnswer) -> Iterable[Sent]:
    return (answer.sent, answer.sent)


def swapped(answer: HonestAnswer) -> Iterable[Sent]:
    """As if it came from the other GPU, and the other GPU's as if it came from this one."""
    return (answer.saying(gpu=answer.message.gpu ^ 1),)


def of_the_first(answer: HonestAnswer) -> Iterable[Sent]:
    """As if it came from GPU 0."""
    return (answer.saying(gpu=0),)


def of_nobody(answer: HonestAnswer) -> Iterable[Sent]:
    """About a GPU that the machine does not have."""
    return (answer.saying(gpu=15),)


def with_another_digest(answer: HonestAnswer) -> Iterable[Sent]:
    """Not what was committed to."""
    return (answer.saying(blob=bytes([answer.blob[0] ^ 1]) + answer.blob[1:]),)


def mute(_: HonestAnswer) -> Iterable[Sent]:
    """Nothing, although the line is not broken."""
    return ()


def breaking(answer: HonestAnswer) -> Iterable[Sent]:
    """Breaks the line."""
    return (answer.with_body(None),)


def refusing(answer: HonestAnswer) -> Iterable[Sent]:
    return (answer.with_body(_body(Refused(answer.message.gpu, "cuda_error", "719"))),)


def delayed(seconds: float) -> Alter:
    """The right answer, but later."""
    return lambda answer: (replace(answer.sent, at=answer.sent.at + seconds),)


def begun(*, walk: float, tiles: float) -> Alter:
    """The first byte of a root, which is known, comes these seconds after the order; the rest comes as usual."""

    def alter(answer: HonestAnswer) -> Iterable[Sent]:
        after = walk if answer.message.phase == "walk" else tiles
        yield replace(answer.sent, began=min(answer.sent.at, answer.asked_at + after))

    return alter


def hasty(seconds: float, *, and_the_real_one: bool = False) -> Alter:
    """A meaningless root stops the clock after `seconds`, while the work goes on."""

    def alter(answer: HonestAnswer) -> Iterable[Sent]:
        yield replace(
            answer.saying(root=b"\x5a" * ROOT_BYTES), at=min(answer.sent.at, answer.asked_at + seconds)
        )
        if and_the_real_one:
            yield answer.sent

    return alter


@dataclass
class Recorder:
    """Honest, but records all answers for a replay."""

    tape: list[list[Sent]] = field(default_factory=list[list[Sent]])

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        self.tape.append([replace(one, at=one.at - at) for one in honest])
        return honest


@dataclass
class Replay:
    """Answers each order with the recorded answers of another conversation, after the same time."""

    tape: list[list[Sent]]

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        recorded = self.tape.pop(0) if self.tape else list[Sent]()
        # The machine's identity is the same, so a replayed answer to Hello would gain nothing.
        return honest if isinstance(order, Hello) else [replace(one, at=at + one.at) for one in recorded]


@dataclass
class Premonition:
    """Answers an order before it was sent: after the answers to `after`, it sends `early`."""

    after: type[Any]
    early: Any

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        yield from honest
        if isinstance(order, self.after):
            yield Sent(max((one.at for one in honest), default=at), _body(self.early))
