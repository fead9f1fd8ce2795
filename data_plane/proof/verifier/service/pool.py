"""Worker processes behind a bounded queue. Whatever a batch of jobs does, the next batch gets a working worker.

Batches wait for an idle worker in the order in which they came. If the caller of a batch disappears or its time is
up, the batch is stopped: if it waits, it is never started; if it runs, its worker is killed and replaced. A worker
that dies by itself is replaced too.
"""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog

from data_plane.documents import strict
from data_plane.proof.verifier.jobs import Checked, JobTooLarge
from data_plane.proof.verifier.service.codec import RESPONSE_BYTES_MAX, read_response
from data_plane.proof.verifier.service.metrics import Metrics, counted
from data_plane.proof.verifier.service.worker import LENGTH_BYTES, Ended

WORKER = (sys.executable, "-m", "data_plane.proof.verifier.service.worker")
QUEUE_BYTES_MAX = 512 << 20
"""The total size of all admitted requests."""
START_SECONDS_MAX = 60.0
RESTART_SECONDS = 1.0
"""The pause between attempts to start a worker after an attempt has failed."""

log = structlog.get_logger("verifier")


class QueueFull(Exception):  # noqa: N818 - reads as a sentence
    """The queue of this process is full. Nothing was started: try later, or another replica."""


class WorkerDied(Exception):  # noqa: N818
    """The process that checked a batch ended before its answer. A check is pure, so it can be repeated."""


class OutOfTime(Exception):  # noqa: N818
    """A batch exceeded its time limit and was stopped."""


class CheckFailed(Exception):  # noqa: N818
    """The check itself raised an exception, which is a bug of ours."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The jobs that one worker checks at a time."""

    content: bytes
    """An encoded `CheckRequest`, which was validated before."""
    jobs: int


class Pool:
    """`workers` processes, and a queue for `queue_max` jobs. Times are in seconds."""

    def __init__(
        self,
        *,
        workers: int,
        queue_max: int,
        batch_seconds_max: float,
        metrics: Metrics,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._workers = workers
        self._queue_max = queue_max
        self._batch_seconds_max = batch_seconds_max
        self._metrics = metrics
        self._command = command
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._alive: set[_Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False
        self._admitted = 0
        self._bytes = 0

    async def start(self) -> None:
        """Start all workers, and return when they are ready. Raises WorkerDied if one cannot be started."""
        for worker in await asyncio.gather(*(self._started() for _ in range(self._workers))):
            self._idle.put_nowait(worker)

    async def close(self) -> None:
        """End every worker, whatever it is doing."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for worker in tuple(self._alive):
            await worker.end()
            self._alive.discard(worker)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the current workers."""
        return tuple(worker.pid for worker in self._alive)

    @contextlib.contextmanager
    def admitted(self, jobs: int, size: int) -> Iterator[None]:
        """Reserve room for `jobs` jobs with `size` bytes in total. Raises QueueFull at once if there is too little."""
        if self._admitted + jobs > self._workers + self._queue_max or self._bytes + size > QUEUE_BYTES_MAX:
            raise QueueFull(f"{self._admitted} jobs are in progress")
        self._took(jobs, size)
        try:
            yield
        finally:
            self._took(-jobs, -size)

    def _took(self, jobs: int, size: int) -> None:
        self._admitted += jobs
        self._bytes += size

    async def check(self, batch: Batch) -> list[Checked]:
        """Check one admitted batch.

        Raises WorkerDied, OutOfTime, CheckFailed, and JobTooLarge if a worker has too little memory for the batch.
        """
        asked = time.monotonic()
        with counted(self._metrics.queued, batch.jobs):
            worker = await self._sound()
        self._metrics.queue_seconds.observe(time.monotonic() - asked)
        with counted(self._metrics.running, batch.jobs):
            return await self._checked(worker, batch)

    async def _sound(self) -> "_Worker":
        while (worker := await self._idle.get()).is_gone:
            self._replace(worker, "crashed")
        return worker

    async def _checked(self, worker: "_Worker", batch: Batch) -> list[Checked]:
        try:
            async with asyncio.timeout(self._batch_seconds_max):
                answer = await worker.ask(batch)
        except TimeoutError:
            self._replace(worker, "out_of_time")
            raise OutOfTime(f"stopped after {self._batch_seconds_max:g} s") from None
        except asyncio.CancelledError:
            self._replace(worker, "caller_gone")
            raise
        except WorkerDied:
            self._replace(worker, "crashed")
            raise
        self._idle.put_nowait(worker)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _replace(self, worker: "_Worker", why: str) -> None:
        """Kill `worker`, and start another one in the background."""
        worker.kill()
        self._metrics.restarts.labels(why).inc()
        log.warning("worker_replaced", why=why, pid=worker.pid)
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._take_over(worker))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _take_over(self, gone: "_Worker") -> None:
        await gone.end()
        self._alive.discard(gone)
        while True:
            try:
                self._idle.put_nowait(await self._started())
            except (OSError, WorkerDied) as error:
                log.error("worker_not_started", error=type(error).__name__)  # noqa: TRY400 - no value of a job
                await asyncio.sleep(RESTART_SECONDS)
            else:
                return

    async def _started(self) -> "_Worker":
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            # The worker finds the same code, and inherits nothing else from our environment.
            env={
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
            },
            start_new_session=True,  # So that Ctrl-C reaches only this process, which drains.
        )
        worker = _Worker(process)
        self._alive.add(worker)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await worker.ready()
        except BaseException as error:
            await worker.end()
            self._alive.discard(worker)
            if isinstance(error, TimeoutError):
                raise WorkerDied(f"no worker was ready after {START_SECONDS_MAX:g} s") from None
            raise
        return worker


class _Worker:
    """One worker process and its two pipes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def is_gone(self) -> bool:
        return self._process.returncode is not None

    async def ready(self) -> None:
        """Wait until the worker is ready. Raises WorkerDied."""
        await self._receive()

    async def ask(self, batch: Batch) -> list[Checked] | JobTooLarge | CheckFailed:
        """The worker's results, or the error with which the batch ended.

        Raises WorkerDied. After any other exception, such as a cancellation, the worker must be killed.
        """
        _, into = self._pipes()
        try:
            into.write(len(batch.content).to_bytes(LENGTH_BYTES, "big"))
            into.write(batch.content)
            await into.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerDied("a worker ended") from None
        return _read(await self._receive(), batch.jobs)

    async def _receive(self) -> bytes:
        out, _ = self._pipes()
        try:
            size = int.from_bytes(await out.readexactly(LENGTH_BYTES), "big")
            if size > RESPONSE_BYTES_MAX:
                raise WorkerDied("a worker answered nonsense")
            return await out.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            raise WorkerDied("a worker ended") from None

    def _pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._process.stdout is None or self._process.stdin is None:
            raise WorkerDied("a worker has no pipes")
        return self._process.stdout, self._process.stdin

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Kill the process and wait for its end, so that no zombie is left."""
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


def _read(answer: bytes, jobs: int) -> list[Checked] | JobTooLarge | CheckFailed:
    try:
        ended, content = Ended(answer[0]), answer[1:]
        if ended is Ended.CHECKED:
            return read_response(content, jobs)
    except (IndexError, ValueError, strict.Malformed):
        raise WorkerDied("a worker answered nonsense") from None
    return (JobTooLarge if ended is Ended.TOO_LARGE else CheckFailed)(content.decode(errors="replace"))
