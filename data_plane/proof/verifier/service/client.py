"""A verifier that is somewhere else: `jobs.Verifier` over gRPC, on any number of replicas.

Calls go around the replicas in turn; one that ends says so to its connections (GOAWAY) and gets no new call.
A call that fails because a replica or a worker is gone is made again on the next one, within its deadline.
That is safe because a check is pure: the same jobs have the same answer, and nothing anywhere is changed by
asking. Nothing else is asked again.
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
"""What a call ends with when its replica or worker is gone. CANCELLED, which we never say ourselves, comes from a
server that begins to end before it has looked at a call: https://github.com/grpc/grpc/issues/41785 (2026-11-21)."""
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
    ("grpc.service_config_disable_resolution", 1),  # What a DNS record says about retries is not asked for.
    ("grpc.max_send_message_length", codec.REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", codec.RESPONSE_BYTES_MAX),
    # A request is kept until its answer comes, or it could not be sent again.
    ("grpc.per_rpc_retry_buffer_size", 2 * codec.REQUEST_BYTES_MAX),
    ("grpc.keepalive_time_ms", codec.PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", codec.PING_SECONDS * 1000 // 3),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
)
_TAG_BYTES_MAX = 8
"""Of one entry of a repeated field: a tag and a length below 2**28."""


def connect(settings: ClientSettings) -> "RemoteVerifier":
    """Opens nothing yet: a verifier that is away is found out by the first check. Needs a running loop.

    Raises tls.CertificatesError.
    """
    return RemoteVerifier(settings)


class RemoteVerifier:
    """`jobs.Verifier` over gRPC. Close it in the end."""

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
                raise JobTooLarge(f"it costs {job.cost} us of CPU time, of at most {COST_MAX}")
        if self._files is not None and self._files.changed():
            self._open_anew()
        until = time.monotonic() + self._settings.seconds
        results: list[Checked] = []
        for request in _requests(jobs):
            # Another check may have opened a new channel meanwhile; the old one takes no new call.
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
        """With the certificates of now; calls under way on the old channel end there."""
        old, self._channel = self._channel, self._open()
        task = asyncio.get_running_loop().create_task(old.close(grace=self._settings.seconds))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _target(addresses: Sequence[str]) -> str:
    """As gRPC names it: one name that is looked up, or a list of addresses."""
    if len(addresses) == 1:
        return addresses[0] if addresses[0].startswith(UNIX) else f"dns:///{addresses[0]}"
    family = "ipv6" if addresses[0].startswith("[") else "ipv4"
    return f"{family}:{','.join(addresses)}"


def _requests(jobs: Sequence[Job]) -> Iterator[pb.CheckRequest]:
    """The jobs, in order, as requests that a server takes."""
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
