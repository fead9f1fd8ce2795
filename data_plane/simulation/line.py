"""A line to a prover in this process, in virtual time: nothing waits, and every frame knows when it came.

The prover does each order at once. When its answers would have left the machine follows from the timers of
its GPUs; when they arrive, from the network.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from data_plane.access.line import Frame, LineBroken, LineSilent
from data_plane.documents.strict import Malformed
from data_plane.proof.protocol.messages import Order
from data_plane.proof.protocol.wire import decode
from data_plane.proof.prover.device import Machine
from data_plane.proof.prover.prover import ORDERS, Prover, Run, one_after_another
from data_plane.simulation.timing import CardTimer, Network

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame's body as it leaves the machine. Without one, the line breaks at that moment."""

    at: float
    """When its last byte leaves."""
    body: bytes | None
    gpu: int | None = None
    began: float | None = None
    """When its first byte leaves; None for all of it at once."""


@dataclass
class VirtualLine:
    """`access.line.Line` to one machine. Its clock is `now`, which waiting moves on."""

    machine: Machine
    timers: Sequence[CardTimer]
    """One per GPU; a machine without GPUs has none."""
    network: Network = field(default_factory=Network)
    now: float = 0.0
    run: Run = one_after_another
    """Which GPU begins matters where several are one."""

    def __post_init__(self) -> None:
        self._prover = Prover(self.machine, self.run)
        self._ended = False
        self._serial = 0
        self._last = 0.0
        self._inbox: list[tuple[float, int, float, bytes | None]] = []
        """(when the last byte comes, a number, when the first came, body)"""

    def leaving(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:  # noqa: ARG002 - for others
        """What leaves the machine after an order that arrived at `at`: what its prover answered."""
        return honest

    async def send(self, frame: bytes) -> float:
        if self._ended:
            raise LineBroken("the prover has ended")
        message, _ = decode(frame[_LENGTH_BYTES:], ORDERS)
        order = cast("Order", message)
        at = self.now + self.network.one_way()
        for timer in self.timers:
            timer.time = max(timer.time, at)
        honest: list[Sent] = []

        def emit(gpu: int | None, answer: bytes) -> None:
            when = (
                max((timer.time for timer in self.timers), default=at)
                if gpu is None
                else self.timers[gpu].time
            )
            honest.append(Sent(when, answer[_LENGTH_BYTES:], gpu))

        self._ended = not self._prover.handle(order, emit)
        for sent in sorted(self.leaving(order, at, honest), key=lambda one: one.at):
            # One connection: nothing overtakes what left before it.
            before, self._last = self._last, max(self._last, sent.at + self.network.one_way())
            began = self._last
            if sent.began is not None:
                began = min(self._last, max(before, sent.began + self.network.one_way()))
            self._serial += 1
            heapq.heappush(self._inbox, (self._last, self._serial, began, sent.body))
        return self.now

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        if not self._inbox and self._ended:
            raise LineBroken("the prover has ended")
        if not self._inbox or self._inbox[0][0] > self.now + seconds:
            self.now += seconds
            raise LineSilent(f"nothing within {seconds:g} s")
        ended, _, began, body = heapq.heappop(self._inbox)
        self.now = max(self.now, ended)
        if body is None:
            self._ended = True
            self._inbox.clear()
            raise LineBroken("the connection broke")
        if len(body) > bytes_max:
            raise Malformed(f"a frame of {len(body)} bytes, {bytes_max} allowed")
        return Frame(body, began, ended)
