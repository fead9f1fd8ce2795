"""Knows for a few seconds whose a credential is. Many questions to the database are asked in one statement."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from control_plane.db.samples import Sender

KNOWN_SECONDS = 3.0
"""After that a credential is looked up again, so that one that was revoked counts no longer."""
KNOWN_MAX = 50_000
"""Credentials that are remembered, those that nobody has included."""
ASKED_MAX = 500
"""In one statement."""
WAITING_MAX = 5_000
"""Credentials that wait for an answer. Beyond that, whoever comes is told to come again."""

Ask = Callable[[Sequence[str]], Awaitable[Sequence[Sender]]]


class TooManyWaitingError(Exception):
    """Too many credentials wait to be looked up."""


@dataclass(frozen=True, slots=True)
class _Answer:
    sender: Sender | None
    until: float


class Senders:
    def __init__(self, ask: Ask, *, stopwatch: Callable[[], float]) -> None:
        self._ask = ask
        self._stopwatch = stopwatch
        self._known: OrderedDict[str, _Answer] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[Sender | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def whose(self, digest: str) -> Sender | None:
        """Whose credential has this digest; None if nobody's.

        Raises TooManyWaitingError, and what the database raises.
        """
        known = self._known.get(digest)
        if known is not None and known.until > self._stopwatch():
            return known.sender
        waiting = self._waiting.get(digest)
        if waiting is None:
            if len(self._waiting) >= WAITING_MAX:
                raise TooManyWaitingError
            waiting = self._waiting[digest] = asyncio.get_running_loop().create_future()
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._answer_all())
        return await asyncio.shield(waiting)

    async def _answer_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # Whoever came at the same time is asked about in the same statement.
            digests = list(self._waiting)[:ASKED_MAX]
            try:
                found = {sender.digest: sender for sender in await self._ask(digests)}
            except Exception as error:  # noqa: BLE001 - passed on to every request that waits
                for digest in digests:
                    waiting = self._waiting.pop(digest)
                    waiting.set_exception(error)
                    waiting.exception()  # Whoever waited may be gone, and nobody has to ask for it.
                continue
            until = self._stopwatch() + KNOWN_SECONDS
            for digest in digests:
                self._remember(digest, _Answer(found.get(digest), until))
                self._waiting.pop(digest).set_result(found.get(digest))

    def _remember(self, digest: str, answer: _Answer) -> None:
        self._known[digest] = answer
        self._known.move_to_end(digest)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
