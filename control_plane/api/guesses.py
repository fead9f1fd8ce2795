"""Slows down whoever tries credentials, without locking out honest callers behind the same address.

Credentials are API keys, access tokens, refresh tokens and codes of terminals; "key" stands for all of them here.
A key that was right here before is familiar, and none of this concerns it. Nor does it concern an access token that we
signed: nobody guesses one. Other keys are looked up freely until an address has sent too many wrong ones. From then on
they wait in a slow lane, where some of them per second are looked up. A key that was refused there before goes first:
an honest caller comes again with the same key, and whoever guesses comes with another one each time. Among equals,
chance decides. A wrong key that comes again and again, from whatever addresses, is refused without a look.
"""

import asyncio
import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from control_plane.api.limits import Grant, Limiter
from control_plane.services.api_keys import KEY_PREFIX
from control_plane.services.devices import DEVICE_PREFIX
from control_plane.services.sessions import REFRESH_PREFIX

FAMILIAR_MAX = 100_000
"""Digests of right keys that are kept; about 20 MB."""
REFUSED_MAX = 100_000
"""Digests of keys that are kept because they were refused without a look; about 20 MB."""
REPEATS = 10
"""One wrong key may be tried so many times less often, from all addresses together, than an address may try keys."""
LANE_PER_SECOND = 50.0
"""Keys that an address may try beyond its rate, on average."""
LANE_SECONDS_MAX = 4.0
"""How long a request waits in the slow lane."""
LANE_WAITING_MAX = 64
"""Requests of an address that wait. One more takes the place of one of those that were refused least often."""
TOKEN_PREFIX = "eyJ"  # noqa: S105 - the first letters of every JWT, and no secret
_PREFIXES = (KEY_PREFIX, TOKEN_PREFIX, REFRESH_PREFIX, DEVICE_PREFIX)
LANES_WAITING_MAX = 256
"""Requests that wait in all lanes together, a quarter of those that may be in progress. One more takes the place of one
in the longest lane."""


class _Waiting(NamedTuple):
    refused: int
    """How often its key was refused here before."""
    chance: float
    """Decides among those that were refused equally often."""
    passes: asyncio.Future[bool]


class Lane:
    """Lets some of those who wait pass per second and address: first those whose keys were refused most often."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiting]] = {}
        self._draw = random.Random()  # noqa: S311 - nobody gains by predicting it

    async def wait(self, address: str, refused: int = 0) -> bool:
        """Wait for one's turn. False when it did not come in time, or another one took the place."""
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = []
            self._open(address)
        mine = _Waiting(refused, self._draw.random(), asyncio.get_running_loop().create_future())
        waiting.append(mine)
        self._make_room(waiting)
        try:
            async with asyncio.timeout(LANE_SECONDS_MAX):
                passed: bool = await mine.passes
        except TimeoutError:
            passed = False
        finally:
            if mine in waiting:
                waiting.remove(mine)
        return passed

    def _make_room(self, waiting: list[_Waiting]) -> None:
        if len(waiting) <= LANE_WAITING_MAX:
            if sum(map(len, self._waiting.values())) <= LANES_WAITING_MAX:
                return
            waiting = max(self._waiting.values(), key=len)
        _answer(waiting, min(waiting, key=_order), passes=False)

    def _open(self, address: str) -> None:
        asyncio.get_running_loop().call_later(1 / LANE_PER_SECOND, self._let_one_pass, address)

    def _let_one_pass(self, address: str) -> None:
        waiting = self._waiting[address]
        if not waiting:
            del self._waiting[address]
            return
        _answer(waiting, max(waiting, key=_order), passes=True)
        self._open(address)


def _order(one: _Waiting) -> tuple[int, float]:
    return one.refused, one.chance


def _answer(waiting: list[_Waiting], one: _Waiting, *, passes: bool) -> None:
    waiting.remove(one)
    if not one.passes.done():  # It is when its time was over a moment ago.
        one.passes.set_result(passes)


class _Wrong:
    """Who has presented too many wrong keys. A key that is being looked up counts as wrong until it is right."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._looked_up = Counter[Hashable]()

    def look(self, who: Hashable, now: float) -> Grant:
        grant = self._limiter.look(who, now)
        return replace(grant, allowed=grant.remaining > self._looked_up[who])

    def begin(self, who: Hashable) -> None:
        self._looked_up[who] += 1

    def end(self, who: Hashable) -> None:
        self._looked_up[who] -= 1
        if not self._looked_up[who]:
            del self._looked_up[who]

    def count(self, who: Hashable, now: float) -> None:
        self._limiter.take(who, now)


class TooManyWrong(Exception):  # noqa: N818 - an answer that callers expect, and no fault
    """The key must not be looked up now."""

    def __init__(self, grant: Grant) -> None:
        super().__init__("too many wrong keys")
        self.grant = grant


class Guesses:
    def __init__(self, *, rate: float, burst: int) -> None:
        """`rate` and `burst`: wrong keys of one address that are looked up without waiting."""
        self._of_address = _Wrong(Limiter(rate=rate, burst=burst, name="address"))
        self._of_key = _Wrong(Limiter(rate=rate / REPEATS, burst=max(1, burst // REPEATS), name="key"))
        self._familiar: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, int] = OrderedDict()
        self._lane = Lane()

    @asynccontextmanager
    async def trying(
        self, address: str, authorization: str | None, now: float, is_signed: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Wait until the key may be looked up, which the caller does inside. Raises TooManyWrong when it may not be.

        `is_signed` tells whether it is an access token that we signed; it is asked only when the address is slowed.
        """
        digest = _digest(authorization)
        if digest in self._familiar:
            yield
            return
        refusal = await self._refusal(address, authorization, now, is_signed)
        if refusal is not None:
            raise TooManyWrong(refusal)
        self._of_address.begin(address)
        self._of_key.begin(digest)
        try:
            yield
        finally:
            self._of_address.end(address)
            self._of_key.end(digest)

    async def _refusal(
        self, address: str, authorization: str | None, now: float, is_signed: Callable[[], Awaitable[bool]]
    ) -> Grant | None:
        grant = self._of_address.look(address, now)
        if not _is_key(authorization):
            return None if grant.allowed else grant
        digest = _digest(authorization)
        repeated = self._of_key.look(digest, now)
        if not repeated.allowed:
            return repeated
        refused = self._refused.pop(digest, 0)
        if grant.allowed or await is_signed() or await self._lane.wait(address, refused):
            return None
        self._refused[digest] = refused + 1
        if len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)
        return grant

    def right(self, authorization: str | None) -> None:
        """The key was right."""
        digest = _digest(authorization)
        self._familiar[digest] = None
        self._familiar.move_to_end(digest)
        if len(self._familiar) > FAMILIAR_MAX:
            self._familiar.popitem(last=False)

    def wrong(self, address: str, authorization: str | None, now: float) -> None:
        """The key was wrong, whether it is unknown, revoked or expired."""
        digest = _digest(authorization)
        self._familiar.pop(digest, None)
        self._of_address.count(address, now)
        if _is_key(authorization):
            self._of_key.count(digest, now)


def _is_key(authorization: str | None) -> bool:
    """Whether a header is worth a look into the database."""
    return authorization is not None and any(prefix in authorization for prefix in _PREFIXES)


def _digest(authorization: str | None) -> bytes:
    return hashlib.sha256((authorization or "").encode()).digest()
