"""Samples the machine every 15 s, and delivers: the newest sample first, and then a few of those that waited.

Samples that cannot be delivered wait on disk. After a long absence of the ingest process, they are delivered at a
bounded rate, so that all agents together do not overwhelm it when it is back.
"""

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from data_plane.agent.gpu_watch import GpuWatch
from data_plane.agent.host_usage import HostUsage
from data_plane.agent.inference import Inference
from data_plane.agent.new_xids import NewXids
from data_plane.agent.rates import Rates
from data_plane.agent.sample_line import Send
from data_plane.agent.signal_file import SignalFile
from data_plane.agent.spool import Spool
from data_plane.documents.protocol import Failure
from data_plane.documents.sample import SECONDS, Sample, sample_gpus
from data_plane.documents.sample_delivery import Answer, Delivery

REPLAYED_MAX = 16
"""Samples that waited, with each new one: an hour of them takes four minutes."""
LATE_SECONDS = 5
"""How much later than expected a document about the GPUs may come."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 15, 300
"""After no answer: the first pause, and the longest."""
REFUSED_SECONDS = 300
"""After an answer that this agent cannot change: its credential is not known, or its version is not."""

_TOO_LARGE, _TOO_FAST, _UNAVAILABLE, _MALFORMED, _UNAUTHORIZED = 413, 429, 503, 400, 401


class Reader:
    """Reads one sample after the other."""

    def __init__(
        self,
        gpus: GpuWatch,
        host: HostUsage,
        inference: Inference,
        xids: NewXids,
        *,
        boot: str = "",
        unix: "Callable[[], float]" = time.time,
        uptime: "Callable[[], float]" = time.monotonic,
    ) -> None:
        self._gpus, self._host, self._inference, self._xids = gpus, host, inference, xids
        self._boot, self._unix, self._uptime = boot, unix, uptime
        self._rates = Rates()

    def next(self, spool: "Spool[Sample]") -> Sample:
        """The sample of now. Waits for the next document about the GPUs, and so gives the time between two samples."""
        gpus = self._gpus.next(SECONDS + LATE_SECONDS)
        sample = Sample(
            sequence=spool.next_sequence,
            at_ms=int(self._unix() * 1000),
            boot=self._boot,
            uptime_seconds=int(self._uptime()),
            spooled=len(spool),
            dropped=spool.dropped,
            source=None,
            failure=None,
            gpus=(),
            xids=(),
            xids_more=0,
            events=False,
            kernel_log=None,
            host=self._host.read(),
            servers=self._inference.read(),
        )
        if isinstance(gpus, Failure):
            return replace(sample, failure=gpus.code)
        xids, more = self._xids.take(gpus)
        return replace(
            sample,
            source=gpus.source,
            gpus=sample_gpus(gpus, self._rates.of(gpus)),
            xids=xids,
            xids_more=more,
            events=gpus.events,
            kernel_log=gpus.kernel_log,
        )


@dataclass
class Sampling:
    read: "Callable[[Spool[Sample]], Sample]"
    spool: "Spool[Sample]"
    send: Send
    unix: "Callable[[], float]" = time.time
    monotonic: "Callable[[], float]" = time.monotonic
    sleep: "Callable[[float], object]" = time.sleep
    signals: "SignalFile | None" = None
    """Where the workload reads what it is asked for; None if the service has no place for it."""
    _batch: int = REPLAYED_MAX
    _pause: float = PAUSE_SECONDS
    _silent_until: float = 0.0

    def run(self) -> NoReturn:
        """Sample for ever. Runs in a thread of its own."""
        while True:
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - heartbeats go on, whatever a machine has us read
                sys.stderr.write(f"no sample: {type(error).__name__}: {error}\n")
                self.sleep(PAUSE_SECONDS)

    def step(self) -> None:
        """Read a sample, and deliver what may be delivered now."""
        self._expire()
        sample = self.read(self.spool)
        self.spool.count(sample)
        if self._deliver([sample]) < sample.sequence:
            self._keep(sample)
            return
        try:
            self._replay()
        except OSError:  # The disk fails: what waits there may still be delivered later.
            return

    def _keep(self, sample: Sample) -> None:
        try:
            self.spool.add(sample)
        except OSError:
            self.spool.dropped += 1  # The disk is full or gone.

    def _replay(self) -> None:
        waiting = self.spool.oldest(self._batch)
        if not waiting:
            return
        through = self._deliver(waiting)
        if through:
            self._batch = min(REPLAYED_MAX, 2 * self._batch)
        self.spool.remove(each for each in waiting if each.sequence <= through)

    def _deliver(self, samples: "Sequence[Sample]") -> int:
        """Returns up to which sequence these samples need not be delivered again; 0 if all must be."""
        if self.monotonic() < self._silent_until:
            return 0
        try:
            response = self.send(Delivery(int(self.unix() * 1000), tuple(samples)))
        except OSError:
            return self._no_answer()
        answer = response.answer
        if response.status == 200 and answer is not None and answer.verdict == "accepted":
            self._pause = PAUSE_SECONDS
            self._show(answer)
            return answer.accepted_through
        if response.status == _UNAUTHORIZED or (answer is not None and answer.verdict == "version_not_known"):
            return self._be_silent(REFUSED_SECONDS)
        if response.status == _TOO_LARGE or (response.status == _MALFORMED and answer is not None):
            return self._refused(samples)
        if response.retry_seconds is not None and response.status in (_TOO_FAST, _UNAVAILABLE):
            return self._be_silent(response.retry_seconds)
        return self._no_answer()

    def _show(self, answer: Answer) -> None:
        try:
            if self.signals is not None:
                self.signals.show(answer.signal)
        except OSError as error:
            sys.stderr.write(f"no signal: {type(error).__name__}: {error}\n")

    def _expire(self) -> None:
        try:
            if self.signals is not None:
                self.signals.expire()
        except OSError as error:
            sys.stderr.write(f"a signal stays: {type(error).__name__}: {error}\n")

    def _refused(self, samples: "Sequence[Sample]") -> int:
        """One of these samples is the reason. With fewer in the next delivery, the others get through."""
        if len(samples) > 1:
            self._batch = max(1, len(samples) // 2)
            return 0
        self.spool.dropped += 1
        return samples[0].sequence

    def _no_answer(self) -> int:
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_SECONDS_MAX)
        return self._be_silent(pause)

    def _be_silent(self, seconds: float) -> int:
        # Agents that were refused together, or lost the same ingest process, spread out.
        self._silent_until = self.monotonic() + seconds * random.uniform(1.0, 1.4)  # noqa: S311 - no secret
        return 0
