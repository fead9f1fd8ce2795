"""A line to a prover in this process, in virtual time: nothing waits, and every frame has its time of arrival.

The prover carries out each order at once. The timers of its GPUs tell when its answers would have left the machine,
and the network tells when they would have arrived.
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
    """A frame's body as it leaves the machine. If there is no body, the line breaks at that moment."""

    at: float
    """When its last byte leaves."""
    body: bytes | None
    gpu: int | None = None
    began: float | None = None
    """When its first byte leaves; None if all of it leaves at once."""


@dataclass
class VirtualLine:
    """`access.line.Line` to one machine. Its clock is `now`, which advances by waiting."""

    machine: Machine
    timers: Sequence[CardTimer]
    """One per GPU; a machine without GPUs has none."""
    network: Network = field(default_factory=Network)
    now: float = 0.0
    run: Run = one_after_another
    """How the GPUs' work is started. The order matters if several of them are one device."""

    def __post_init__(self) -> None:
        self._prover = Prover(self.machine, self.run)
        self._ended = False
        self._serial = 0
        self._last = 0.0
        self._inbox: list[tuple[float, int, float, bytes | None]] = []
        """For each frame: when its last byte arrives, a serial number, when its first byte arrives, the body."""

    def leaving(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:  # noqa: ARG002 - a hostile machine needs both
        """What leaves the machine after an order that arrived at `at`: here, exactly what its prover answered."""
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
            # There is one connection, so no frame overtakes an earlier one.
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
            raise LineSilent(f"no frame within {seconds:g} s")
        ended, _, began, body = heapq.heappop(self._inbox)
        self.now = max(self.now, ended)
        if body is None:
            self._ended = True
            self._inbox.clear()
            raise LineBroken("the connection broke")
        if len(body) > bytes_max:
            raise Malformed(f"a frame of {len(body)} bytes, where {bytes_max} are allowed")
        return Frame(body, began, ended)
