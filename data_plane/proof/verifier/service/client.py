"""`jobs.Verifier` over gRPC, on any number of replicas of the service.

Calls go to the replicas in turn. A replica that is ending tells its connections (GOAWAY) and gets no new calls. A call
that fails because a replica or a worker has ended is repeated on the next replica, within the call's deadline. This is
safe because a check is pure: the same jobs have the same result, and a check changes nothing. Other failures are not
repeated.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence

import grpc
import grpc.aio

from data_plane.documents import strict
from data_plane.proof.verifier.jobs import COST_MAX, Checked, Job, JobTooLarge, VerifierAway
from data_plane.proof.verifier.service import codec, tls
from data_plane.proof.verifier.service import verifier_pb2 as pb
from data_plane.proof.verifier.service.settings import UNIX, ClientSettings

_GONE = ["UNAVAILABLE", "CANCELLED"]
"""The status of a call whose replica or worker has ended. Our code never answers CANCELLED, but gRPC does if a server
begins to end before it has handled a call: https://github.com/grpc/grpc/issues/41785 (2026-11-21)."""
_SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {
                "name": [{"service": codec.SERVICE}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.2s",
                    "maxBackoff": "3s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": _GONE,
                },
            }
        ],
    }
)
_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.service_config_disable_resolution", 1),  # DNS records must not change our retries.
    ("grpc.max_send_message_length", codec.REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", codec.RESPONSE_BYTES_MAX),
    # A request is kept until its answer arrives, because it may have to be sent again.
    ("grpc.per_rpc_retry_buffer_size", 2 * codec.REQUEST_BYTES_MAX),
    ("grpc.keepalive_time_ms", codec.PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", codec.PING_SECONDS * 1000 // 3),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
)
_TAG_BYTES_MAX = 8
"""The overhead of one entry of a repeated field: its tag, and its length, which is below 2**28."""


def connect(settings: ClientSettings) -> "RemoteVerifier":
    """A client of the service. It does not connect yet, so the first check notices a verifier that is away.

    Needs a running event loop. Raises tls.CertificatesError.
    """
    return RemoteVerifier(settings)


class RemoteVerifier:
    """`jobs.Verifier` over gRPC. It must be closed."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._files = tls.CertificateFiles(settings.tls) if settings.tls else None
        self._channel = self._open()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await self._channel.close()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def check(self, jobs: Sequence[Job]) -> list[Checked]:
        """Check each job, in order. Raises JobTooLarge, or VerifierAway."""
        for job in jobs:
            if job.cost > COST_MAX:
                raise JobTooLarge(f"it costs {job.cost} us of CPU time, at most {COST_MAX} are allowed")
        if self._files is not None and self._files.changed():
            self._open_anew()
        until = time.monotonic() + self._settings.seconds
        results: list[Checked] = []
        for request in _requests(jobs):
            # Another check may have opened a new channel meanwhile. The old one accepts no new calls.
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(codec.CHECK)
            try:
                response = await call(request.SerializeToString(), timeout=until - time.monotonic())
                results += codec.read_response(response, len(request.jobs))
            except grpc.aio.AioRpcError as error:
                raise _failure(error) from None
            except grpc.aio.UsageError:
                raise VerifierAway("the client of the verifier was closed") from None
            except strict.Malformed as error:
                raise VerifierAway(f"the verifier's answer cannot be read: {error}") from None
        return results

    def _open(self) -> grpc.aio.Channel:
        target = _target(self._settings.addresses)
        if self._files is None:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)
        named = (("grpc.ssl_target_name_override", self._settings.name),) if self._settings.name else ()
        credentials = tls.channel_credentials(self._files.current)
        return grpc.aio.secure_channel(target, credentials, options=(*_OPTIONS, *named))

    def _open_anew(self) -> None:
        """Open a new channel with the current certificates. Calls on the old channel go on there."""
        old, self._channel = self._channel, self._open()
        task = asyncio.get_running_loop().create_task(old.close(grace=self._settings.seconds))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _target(addresses: Sequence[str]) -> str:
    """The target in gRPC's syntax: a name to look up, or a list of addresses."""
    if len(addresses) == 1:
        return addresses[0] if addresses[0].startswith(UNIX) else f"dns:///{addresses[0]}"
    family = "ipv6" if addresses[0].startswith("[") else "ipv4"
    return f"{family}:{','.join(addresses)}"


def _requests(jobs: Sequence[Job]) -> Iterator[pb.CheckRequest]:
    """The jobs in their order, divided into requests that a server accepts."""
    request, size = pb.CheckRequest(), 0
    for job in jobs:
        message = codec.write_job(job)
        bytes_more = message.ByteSize() + _TAG_BYTES_MAX
        if request.jobs and (
            len(request.jobs) == codec.JOBS_MAX or size + bytes_more > codec.REQUEST_BYTES_MAX
        ):
            yield request
            request, size = pb.CheckRequest(), 0
        request.jobs.append(message)
        size += bytes_more
    if request.jobs:
        yield request


def _failure(error: grpc.aio.AioRpcError) -> Exception:
    why = strict.printable(error.details() or "no details")
    if error.trailing_metadata().get(codec.REASON) == codec.TOO_LARGE:
        return JobTooLarge(why)
    return VerifierAway(f"the verifier answered {error.code().name}: {why}")
