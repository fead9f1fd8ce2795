"""The agent as a service: reports to the hub through the tunnel, does the tasks that the hub's answers name, and ends
itself when its lease has ended.

It has one credential, which is good for reports of this lease. It opens no listening socket, takes no argument from the
network, and runs nothing but itself. systemd keeps it within limits (`inspection/agent_service.py`).
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from data_plane.agent.spool import Spool
from data_plane.documents import strict
from data_plane.documents.agent_config import ENDED, Config
from data_plane.documents.heartbeat import HEARTBEATS_MAX, Answer, Delivery, Heartbeat, Result, Task

Send = Callable[[Delivery], Answer]
"""Delivers to the hub. Raises OSError when there is no answer, strict.Malformed when it is none."""


@dataclass
class Service:
    config: Config
    spool: "Spool[Heartbeat]"
    send: Send
    perform: "Callable[[Task], Result]"
    unix: "Callable[[], float]" = time.time
    uptime: "Callable[[], float]" = time.monotonic
    boot: str = ""
    _result: "Result | None" = None

    def run(self, sleep: "Callable[[float], object]" = time.sleep) -> int:
        """Report for ever; returns ENDED once the lease has ended."""
        while self.beat():
            # Machines that were set up together, or waited for the same hub, spread out.
            sleep(self.config.seconds * random.uniform(0.9, 1.1))  # noqa: S311 - no secret depends on it
        return ENDED

    def beat(self) -> bool:
        """Make a heartbeat, and deliver what waits. False when the lease has ended."""
        try:
            self.spool.add(self._heartbeat())
            self._result = None
        except OSError:
            self.spool.dropped += 1  # The disk is full or gone: what waits there may still be delivered.
        try:
            return self._deliver()
        except (OSError, strict.Malformed):
            return True

    def _deliver(self) -> bool:
        while waiting := self.spool.oldest(HEARTBEATS_MAX):
            answer = self.send(Delivery(self.config.credential, tuple(waiting)))
            if answer.verdict == "ended":
                return False
            if answer.verdict == "malformed":
                self.spool.drop(waiting)
            elif answer.verdict != "accepted" or answer.accepted_through < waiting[0].sequence:
                return True
            self.spool.delivered(answer.accepted_through)
            if answer.task is not None:
                self._result = self.perform(answer.task)
        return True

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            sequence=self.spool.next_sequence,
            at=int(self.unix()),
            uptime_seconds=int(self.uptime()),
            boot=self.boot,
            spooled=len(self.spool),
            dropped=self.spool.dropped,
            result=self._result,
        )
