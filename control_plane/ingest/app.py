"""Takes deliveries of samples: `POST /v1/samples`, in the format of `data_plane/documents/sample_delivery.py`.

An ASGI application without a framework, as it has one route (docs/decisions/0092-the-ingest-process.md). What costs
least is checked first: the head, the credential, what its machine may still send, the size, and then the content. A
delivery is answered with 200 when its samples are committed.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from control_plane.db.samples import NewSample, Sender
from control_plane.domain.telemetry import taken
from control_plane.ingest.batches import Batches, QueueFullError
from control_plane.ingest.limits import Allowance, Allowances
from control_plane.ingest.metrics import OVERLOADED, Metrics
from control_plane.ingest.reading import Opened, open_delivery
from control_plane.ingest.senders import Senders, TooManyWaitingError
from control_plane.ingest.signals import Signals
from data_plane.documents.sample_delivery import (
    BODY_BYTES_MAX,
    PATH,
    STATUSES,
    Answer,
    TooLarge,
    Verdict,
    VersionNotKnown,
    encode_answer,
)
from data_plane.documents.strict import Malformed

BODY_SECONDS_MAX = 10.0
"""How long the body of a delivery may take."""
IN_PROGRESS_MAX = 2_000
"""Deliveries of all machines, until they are answered."""
AGAIN_SECONDS = 5
"""After how many seconds a machine tries again when we cannot take its delivery; by chance up to four times that."""
_CREDENTIAL = re.compile(rb"Bearer ([0-9a-f]{64})")
_JSON = (b"content-type", b"application/json")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class _RefusedError(Exception):
    verdict: Verdict
    again_seconds: float = 0.0


class Ingest:
    """The application."""

    def __init__(
        self,
        *,
        senders: Senders,
        signals: Signals,
        batches: Batches,
        metrics: Metrics,
        now: Callable[[], datetime],
        stopwatch: Callable[[], float],
        why_not_ready: Callable[[], str | None],
        is_trouble: Callable[[BaseException], bool],
        is_bad: Callable[[BaseException], bool],
    ) -> None:
        """`is_trouble` and `is_bad` tell whether an error of the database passes, and whether values are at fault."""
        self._senders = senders
        self._signals = signals
        self._batches = batches
        self._metrics = metrics
        self._now = now
        self._stopwatch = stopwatch
        self._why_not_ready = why_not_ready
        self._is_trouble = is_trouble
        self._is_bad = is_bad
        self._allowances = Allowances()
        self._in_progress = 0
        metrics.queued.set_function(lambda: batches.queued)
        metrics.machines.set_function(lambda: len(self._allowances))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"], scope["path"]:
            case "POST", path if path == PATH:
                await self._take(scope, receive, partial(_respond, send))
            case "GET", "/healthz":
                await _respond(send, 200, b'{"status":"up"}')
            case "GET", "/readyz":
                why = self._why_not_ready()
                body = {"status": "ready"} if why is None else {"status": "not_ready", "reasons": [why]}
                await _respond(send, 200 if why is None else 503, json.dumps(body).encode())
            case _:
                await _respond(send, 404, b'{"status":"not_found"}')

    async def _take(self, scope: Scope, receive: Receive, respond: Callable[..., Awaitable[None]]) -> None:
        began = self._stopwatch()
        if self._in_progress >= IN_PROGRESS_MAX or self._why_not_ready() is not None:
            self._metrics.deliveries.labels(OVERLOADED).inc()
            await respond(503, b"", self._again(scope))
            return
        self._in_progress += 1
        try:
            accepted = await self._accepted(scope["headers"], receive)
            answer, more = accepted, _retry_after(0)
        except _RefusedError as refused:
            answer, more = Answer(refused.verdict), _retry_after(refused.again_seconds)
        except (QueueFullError, TooManyWaitingError):
            self._metrics.deliveries.labels(OVERLOADED).inc()
            await respond(503, b"", self._again(scope))
            return
        except Exception as error:
            if not self._is_trouble(error):
                raise
            self._metrics.deliveries.labels(OVERLOADED).inc()
            await respond(503, b"", self._again(scope))
            return
        finally:
            self._in_progress -= 1
        self._metrics.deliveries.labels(answer.verdict).inc()
        self._metrics.seconds.observe(self._stopwatch() - began)
        await respond(STATUSES[answer.verdict], encode_answer(answer), more)

    async def _accepted(self, headers: Headers, receive: Receive) -> Answer:
        """Store a delivery. Returns its last sequence, and what the machine's workload is asked for.

        Raises _RefusedError, QueueFullError, TooManyWaitingError, and what the database raises.
        """
        given = dict(headers)
        credential = _CREDENTIAL.fullmatch(given.get(b"authorization", b""))
        if credential is None:
            raise _RefusedError("not_known")
        sender = await self._senders.whose(hashlib.sha256(credential[1]).hexdigest())
        if sender is None:
            raise _RefusedError("not_known")
        if sender.ended:
            raise _RefusedError("ended")
        now = self._stopwatch()
        allowance = self._allowances.of(sender.claim_id, now)
        wait = allowance.begin(now)
        if wait:
            raise _RefusedError("too_fast", wait)
        try:
            through = await self._stored(sender, allowance, given, receive)
            return Answer("accepted", through, self._signals.of(sender.claim_id, self._now()))
        finally:
            allowance.end()

    async def _stored(
        self, sender: Sender, allowance: Allowance, headers: MutableMapping[bytes, bytes], receive: Receive
    ) -> int:
        body = await _body(headers, receive)
        received_at = self._now()
        try:
            opened = open_delivery(body)
        except VersionNotKnown:
            raise _RefusedError("version_not_known") from None
        except TooLarge:
            allowance.took(samples=0, content_bytes=BODY_BYTES_MAX)
            raise _RefusedError("too_large") from None
        except Malformed:
            allowance.took(samples=0, content_bytes=BODY_BYTES_MAX)
            raise _RefusedError("malformed") from None
        allowance.took(samples=len(opened.samples), content_bytes=opened.bytes)
        self._metrics.bytes.labels("compressed").inc(len(body))
        self._metrics.bytes.labels("content").inc(opened.bytes)
        samples = list(_new(sender, opened, received_at))
        self._metrics.samples.labels("too_old").inc(len(opened.samples) - len(samples))
        try:
            await self._batches.store(samples)
        except Exception as error:
            if self._is_bad(error):
                raise _RefusedError("malformed") from error
            raise
        return opened.samples[-1].sequence

    def _again(self, scope: Scope) -> Headers:
        """When to come again: not all machines at once."""
        credential = dict(scope["headers"]).get(b"authorization", b"")
        chance = hashlib.sha256(credential + str(self._stopwatch()).encode()).digest()[0] / 255
        return _retry_after(AGAIN_SECONDS * (1 + 3 * chance))


def _new(sender: Sender, opened: Opened, received_at: datetime) -> Iterable[NewSample]:
    """The samples that are stored: those that are not too old."""
    for sample in opened.samples:
        time = taken(sample.at_ms, opened.sent_at_ms, received_at)
        if time is not None:
            yield NewSample(
                organization_id=sender.organization_id,
                project_id=sender.project_id,
                claim_id=sender.claim_id,
                lease_id=sender.lease_id,
                machine_id=sender.machine_id,
                sequence=sample.sequence,
                at=time.at,
                received_at=received_at,
                skew_ms=time.skew_ms,
                notable=sample.notable,
                document=sample.document,
            )


async def _body(headers: MutableMapping[bytes, bytes], receive: Receive) -> bytes:
    """The body, of which no more is kept than a delivery may have. Raises _RefusedError."""
    if headers.get(b"content-encoding", b"").lower() != b"gzip":
        raise _RefusedError("malformed")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > BODY_BYTES_MAX:
        raise _RefusedError("too_large")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise _RefusedError("malformed")  # The client is gone.
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > BODY_BYTES_MAX:
                    raise _RefusedError("too_large")
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise _RefusedError("malformed") from None


def _retry_after(seconds: float) -> Headers:
    return [(b"retry-after", str(int(seconds) + 1).encode())] if seconds else []


async def _respond(send: Send, status: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
