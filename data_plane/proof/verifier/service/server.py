"""The gRPC server around the pool: decodes requests, admits them, and answers errors with these status codes:

    INVALID_ARGUMENT     the request is malformed, or a job is too large; do not repeat it
    RESOURCE_EXHAUSTED   the queue is full, or the request is too large; nothing was started
    DEADLINE_EXCEEDED    stopped at the caller's deadline, or at the time limit of a batch
    UNAVAILABLE          a worker died, or this process is ending; repeat the request
    INTERNAL             the check raised an exception, which is a bug of ours

If a caller disappears, its jobs are stopped: gRPC cancels the handler, which stops them in the pool.
"""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from data_plane.documents import strict
from data_plane.proof.verifier.jobs import (
    COST_MAX,
    Checked,
    Job,
    JobTooLarge,
    LaunchJob,
    TilesJob,
    WalkJob,
)
from data_plane.proof.verifier.service import codec, tls
from data_plane.proof.verifier.service.batches import batches
from data_plane.proof.verifier.service.metrics import Metrics
from data_plane.proof.verifier.service.pool import (
    WORKER,
    Batch,
    CheckFailed,
    OutOfTime,
    Pool,
    QueueFull,
    WorkerDied,
)
from data_plane.proof.verifier.service.settings import UNIX, ServerSettings, SettingsError

CONNECTION_SECONDS_MAX = 600
"""After this time a caller has to reconnect. So it finds new replicas, and its certificate is checked again."""
FLUSH_SECONDS = 1.0
"""The time to send the last answers, after the last call has ended."""

_T = TypeVar("_T")
Context = grpc.aio.ServicerContext[bytes, bytes]
log = structlog.get_logger("verifier")

_OPTIONS = (
    ("grpc.max_receive_message_length", codec.REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", codec.RESPONSE_BYTES_MAX),
    ("grpc.max_connection_age_ms", CONNECTION_SECONDS_MAX * 1000),
    ("grpc.max_connection_age_grace_ms", CONNECTION_SECONDS_MAX * 1000),
    ("grpc.keepalive_time_ms", codec.PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", codec.PING_SECONDS * 1000 // 3),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", codec.PING_SECONDS * 1000 // 2),
    ("grpc.so_reuseport", 0),  # A second process on the same port is a mistake and must fail.
)


class VerifierServer:
    """One replica. Call `start` once, and then `drain` once."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, command: Sequence[str] = WORKER) -> None:
        self._settings = settings
        self._metrics = metrics
        self.pool = Pool(
            workers=settings.workers,
            queue_max=settings.queue_max,
            batch_seconds_max=settings.batch_seconds_max,
            metrics=metrics,
            command=command,
        )
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._calls = 0
        self._no_calls = asyncio.Event()
        self._no_calls.set()
        self.port = 0
        """The port on which it listens; 0 for a Unix socket."""

    async def start(self) -> None:
        """Start, and return when every worker is ready and callers are served.

        Raises SettingsError, tls.CertificatesError, and pool.WorkerDied if no worker can be started.
        """
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._check)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(codec.SERVICE, {"Check": handler}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._health.set(codec.SERVICE, health_pb2.HealthCheckResponse.SERVING)
        try:
            await self.pool.start()
            self.port = self._listen()
            await self._server.start()
        except BaseException:
            await self.pool.close()
            raise

    def _listen(self) -> int:
        address = self._settings.listen
        try:
            _check_free(address)
            if self._settings.tls is None:
                return self._server.add_insecure_port(address)
            credentials = tls.server_credentials(tls.CertificateFiles(self._settings.tls))
            return self._server.add_secure_port(address, credentials)
        except OSError as error:
            why = error.strerror
        except RuntimeError:
            why = "gRPC does not say why"
        raise SettingsError(f"SPLITPLANE_VERIFIER_LISTEN is {address!r}, where we cannot listen: {why}")

    async def drain(self) -> None:
        """Accept no new calls, let the current ones end within the time limit, and end every worker."""
        await self._health.enter_graceful_shutdown()
        seconds = self._settings.drain_seconds
        ending = asyncio.create_task(self._server.stop(seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._no_calls.wait()
        # A call that watches our health never ends by itself, and would use up the time limit.
        await self._server.stop(FLUSH_SECONDS)
        await ending
        await self.pool.close()

    async def _check(self, content: bytes, context: Context) -> bytes:
        began = time.monotonic()
        status, response = grpc.StatusCode.CANCELLED, b""
        with self._under_way():
            try:
                response = await self._answer(content)
                status = grpc.StatusCode.OK
            except tuple(_STATUS) as error:
                status = _STATUS[type(error)]
                reason = ((codec.REASON, codec.TOO_LARGE),) if isinstance(error, JobTooLarge) else ()
                await context.abort(status, strict.printable(str(error)), reason)
            finally:
                self._record(status, time.monotonic() - began, _caller(context))
        return response

    async def _answer(self, content: bytes) -> bytes:
        # In a thread, because decoding a large request takes a while, and health checks and deadlines must go on.
        jobs, cut = await asyncio.to_thread(_read, content)
        with self.pool.admitted(len(jobs), len(content)):
            answers = await _together([self.pool.check(batch) for _, batch in cut])
        found = {
            at: checked
            for (places, _), results in zip(cut, answers, strict=True)
            for at, checked in zip(places, results, strict=True)
        }
        for at, checked in found.items():
            self._count(jobs[at], checked)
        return codec.write_response(found[at] for at in range(len(jobs)))

    def _count(self, job: Job, checked: Checked) -> None:
        kind = _kind(job)
        self._metrics.jobs.labels(kind, checked.fault or "right").inc()
        self._metrics.cpu_seconds.labels(kind).inc(checked.cpu_seconds)

    def _record(self, status: grpc.StatusCode, seconds: float, caller: str) -> None:
        self._metrics.calls.labels(status.name.lower()).inc()
        self._metrics.call_seconds.observe(seconds)
        log.info("call", status=status.name.lower(), ms=round(seconds * 1000, 1), caller=caller)

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        self._calls += 1
        self._no_calls.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._no_calls.set()


_STATUS: dict[type[Exception], grpc.StatusCode] = {
    strict.Malformed: grpc.StatusCode.INVALID_ARGUMENT,
    JobTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    QueueFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OutOfTime: grpc.StatusCode.DEADLINE_EXCEEDED,
    WorkerDied: grpc.StatusCode.UNAVAILABLE,
    CheckFailed: grpc.StatusCode.INTERNAL,
}


def _read(content: bytes) -> tuple[list[Job], list[tuple[list[int], Batch]]]:
    """The jobs and their batches. Raises strict.Malformed and JobTooLarge."""
    jobs = codec.read_request(content)
    for number, job in enumerate(jobs):
        if job.cost > COST_MAX:
            raise JobTooLarge(
                f"jobs[{number}] costs {job.cost} us of CPU time, at most {COST_MAX} are allowed"
            )
    return jobs, [
        (places, Batch(codec.write_request(jobs[at] for at in places), len(places)))
        for places in batches(jobs)
    ]


async def _together(checks: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All results in the order of the jobs. After the first failure, or a cancellation, the other batches are
    stopped.
    """
    tasks = [asyncio.ensure_future(check) for check in checks]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _kind(job: Job) -> str:
    match job:
        case LaunchJob():
            return "launch"
        case WalkJob():
            return "walk"
        case TilesJob():
            return job.kind


def _caller(context: Context) -> str:
    """The name in the caller's certificate; empty without TLS."""
    names = context.auth_context().get("x509_common_name", ())
    return strict.printable(next(iter(names), b"").decode(errors="replace"), 64)


def _check_free(address: str) -> None:
    """Raise OSError where gRPC could not listen. It would write lines of its own, and give no reason."""
    if address.startswith(UNIX):
        folder = Path(address.removeprefix(UNIX)).parent
        if not os.access(folder, os.W_OK):
            raise OSError(errno.ENOENT if not folder.exists() else errno.EACCES, f"cannot write to {folder}")
        return
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]"), int(port)))
