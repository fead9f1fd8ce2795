"""The bounds at the door: how many requests a caller may send, and how many of them may be in progress.

A caller is an address before its key is known (`guesses.py`), and then the key and its organization, whose rates hold
for all API processes together (`budgets.py`). A request is in progress until its answer is sent, but an event stream
counts only while it is opened; open streams have a bound of their own.

One process works on all requests in turn, so a large answer delays everybody. Therefore an answer costs as many
requests as it has parts of 64 KiB, and only a few requests of an organization run at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from litestar.types import Scope

from control_plane.api import observe
from control_plane.api.addresses import ClientAddresses
from control_plane.api.delivery import PART_BYTES
from control_plane.api.errors import ApiError
from control_plane.api.guesses import Guesses, Lane, TooManyWrong
from control_plane.api.limits import Grant, InProgress, Limiter, Turns
from control_plane.domain.access import Principal
from control_plane.domain.ids import OrganizationId
from control_plane.settings import Settings

REQUESTS_MAX = 1_024
"""Requests in progress in this process. They share a few connections to the database, so more would only time out."""
ADDRESS_REQUESTS_MAX = 256
ORGANIZATION_REQUESTS_MAX = 128
KEY_REQUESTS_MAX = 64
ORGANIZATION_RUNNING_MAX = 4
"""Requests of an organization that run at a time. The others wait, and leave the database's connections to others."""
TURN_SECONDS_MAX = 5.0
"""How long a request waits for its turn."""
ANONYMOUS_BURST_SECONDS = 5
RETRY_AFTER_SECONDS = 1
REFUSAL_STEP_SECONDS = 0.01
"""A credential is refused a whole number of these after its look-up began. The database reads more for one that was
valid once than for an unknown one, and how long that takes would tell them apart."""
TIMER_LATE_SECONDS = 0.0015
"""By how much, at most, a timer of the event loop rings late while it has little to do."""
CODES_PER_SECOND, CODES_BURST = 1 / 30, 5
"""Wrong codes of terminals that a person may type. There are 25 thousand million codes, each valid for ten minutes."""
_ONCE = frozenset({b"authorization", b"content-type", b"host", b"last-event-id"})
"""Headers of which a proxy could read another one than we do. A second Idempotency-Key has a code of its own."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound on requests in progress, and what a caller beyond it is told."""

    requests: InProgress
    code: str
    who: str


class Door:
    def __init__(self, settings: Settings) -> None:
        rate, burst = settings.organization_requests_per_second, settings.organization_requests_burst
        self._addresses = ClientAddresses(settings.trusted_proxies)
        self._per_key = Limiter(rate=settings.requests_per_second, burst=settings.requests_burst)
        self._per_organization = Limiter(rate=rate, burst=burst, name="organization")
        anonymous = settings.anonymous_requests_per_second
        anonymous_burst = int(anonymous * ANONYMOUS_BURST_SECONDS)
        self._guesses = Guesses(rate=anonymous, burst=anonymous_burst)
        self._public = Limiter(rate=anonymous, burst=anonymous_burst, name="address")
        self._sign_ins = Lane()
        self._identity = Limiter(rate=settings.requests_per_second, burst=settings.requests_burst)
        self._codes = Limiter(rate=CODES_PER_SECOND, burst=CODES_BURST, name="person")
        self._all = _Bound(InProgress(REQUESTS_MAX), "overloaded", "This server")
        self._of_address = _Bound(InProgress(ADDRESS_REQUESTS_MAX), "too_many_in_progress", "Your address")
        self._of_organization = _Bound(
            InProgress(ORGANIZATION_REQUESTS_MAX), "too_many_in_progress", "Your organization"
        )
        self._of_key = _Bound(InProgress(KEY_REQUESTS_MAX), "too_many_in_progress", "This API key")
        self._turns = Turns(ORGANIZATION_RUNNING_MAX)
        self._policy = self._per_key.policy + b", " + self._per_organization.policy

    def address(self, scope: Scope) -> str:
        return self._addresses.of(scope)

    def arrive(self, scope: Scope, address: str) -> None:
        """Let a request in before its key is known. Raises ApiError."""
        _refuse_repeated_headers(scope)
        _enter(scope, self._all, None)
        _enter(scope, self._of_address, address)

    def arrive_without_key(self, address: str, now: float) -> None:
        """Count a request to an endpoint that needs no key. Raises ApiError."""
        grant = self._public.take(address, now)
        if not grant.allowed:
            raise _too_fast("Your address", self._public, grant)

    @property
    def shared(self) -> tuple[Limiter, ...]:
        """The limiters that hold for all API processes together."""
        return self._per_key, self._per_organization

    async def arrive_at_sign_in(self, address: str, now: float) -> None:
        """Count a request of somebody who has no credential yet.

        Beyond the rate of its address it waits, so that an attacker keeps nobody from signing in. Raises ApiError.
        """
        grant = self._public.take(address, now)
        if not grant.allowed and not await self._sign_ins.wait(address):
            raise _too_fast("Your address", self._public, grant)

    @asynccontextmanager
    async def trying_key(
        self, address: str, authorization: str | None, now: float, is_signed: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Wait until this key may be looked up, which the caller does inside.

        Raises ApiError when too many wrong keys were tried. What the caller raises inside passes at the end of a step.
        """
        try:
            async with self._guesses.trying(address, authorization, now, is_signed):
                began = asyncio.get_running_loop().time()
                try:
                    yield
                except Exception:
                    await _end_of_step(began)
                    raise
        except TooManyWrong as refused:
            why = "Too many requests without a valid API key came from your address."
            raise _limited(why, refused.grant) from None

    def may_try_codes(self, person: str, now: float) -> None:
        """Raises ApiError when somebody typed so many wrong codes of terminals that no further one is looked up."""
        grant = self._codes.look(person, now)
        if not grant.allowed:
            raise _limited("You typed too many wrong codes.", grant)

    def wrong_code(self, person: str, now: float) -> None:
        self._codes.take(person, now)

    def right_key(self, authorization: str | None) -> None:
        self._guesses.right(authorization)

    def wrong_key(self, address: str, authorization: str | None, now: float) -> None:
        self._guesses.wrong(address, authorization, now)

    def enter_apart(self, scope: Scope, principal: Principal, now: float) -> None:
        """Let a request in that asks only who the caller is. It has a rate of its own. Raises ApiError."""
        _enter(scope, self._of_organization, principal.organization_id)
        _enter(scope, self._of_key, principal.credential_id)
        grant = self._identity.take(principal.credential_id, now)
        observe.add_headers(
            scope,
            (b"ratelimit-policy", self._identity.policy),
            (b"ratelimit", self._identity.report(grant)),
        )
        if not grant.allowed:
            raise _too_fast("This API key", self._identity, grant)

    def enter(self, scope: Scope, principal: Principal, now: float, cost: int) -> None:
        """Let a request of this principal in, for so many tokens of its rates. Raises ApiError."""
        _enter(scope, self._of_organization, principal.organization_id)
        _enter(scope, self._of_key, principal.credential_id)
        key = self._per_key.take(_key(principal), now, cost)
        # A key without tokens must not spend those of the organization's other keys.
        organization = (self._per_organization.take if key.allowed else self._per_organization.look)(
            _organization(principal), now, cost
        )
        observe.add_headers(
            scope,
            (b"ratelimit-policy", self._policy),
            (b"ratelimit", self._per_key.report(key) + b", " + self._per_organization.report(organization)),
        )
        if not key.allowed:
            raise _too_fast("This API key", self._per_key, key, cost)
        if not organization.allowed:
            raise _too_fast("Your organization", self._per_organization, organization, cost)

    async def wait_for_turn(self, scope: Scope, principal: Principal, now: Callable[[], float]) -> None:
        """Wait until the request may run, and have it pay for the size of its answer. Raises ApiError."""
        organization = principal.organization_id
        try:
            async with asyncio.timeout(TURN_SECONDS_MAX):
                await self._turns.take(organization)
        except TimeoutError as error:
            raise _too_many(
                "too_many_in_progress",
                f"Your organization has {ORGANIZATION_RUNNING_MAX} requests running, which is the most.",
            ) from error
        observe.at_answer(scope, lambda: self._turns.give_back(organization))
        for who, limiter, payer in (
            ("This API key", self._per_key, _key(principal)),
            ("Your organization", self._per_organization, _organization(principal)),
        ):
            grant = limiter.owes(payer, now())
            if grant is not None:
                raise _limited(
                    f"{who} was sent more than its rate allows: large answers count several times.", grant
                )
        observe.at_part(scope, _Bill(self, principal).add)

    def charge(self, principal: Principal, requests: int) -> None:
        self._per_key.charge(_key(principal), requests)
        self._per_organization.charge(_organization(principal), requests)


class _Bill:
    """What an answer costs beside the request itself: one request more for each part of its size behind the first."""

    def __init__(self, door: Door, principal: Principal) -> None:
        self._door = door
        self._principal = principal
        self._bytes = 0

    def add(self, size: int) -> None:
        before, self._bytes = self._bytes // PART_BYTES, self._bytes + size
        if self._bytes // PART_BYTES > before:
            self._door.charge(self._principal, self._bytes // PART_BYTES - before)


async def _end_of_step(began: float) -> None:
    """Wait until a whole number of steps has passed since `began`, in seconds of the event loop's clock."""
    loop = asyncio.get_running_loop()
    steps = (loop.time() - began) // REFUSAL_STEP_SECONDS + 1
    ends = began + steps * REFUSAL_STEP_SECONDS
    # A timer rings up to a millisecond late, and how late tells when it was set.
    await asyncio.sleep(ends - loop.time() - TIMER_LATE_SECONDS)
    while loop.time() < ends:  # noqa: ASYNC110 - nothing happens that an event could tell; time passes
        await asyncio.sleep(0)


def _refuse_repeated_headers(scope: Scope) -> None:
    found = [name for name, _ in scope["headers"] if name in _ONCE]
    if len(found) != len(set(found)):
        name = next(name for name in found if found.count(name) > 1).decode().title()
        raise ApiError("bad_request", f"The header {name} is sent more than once.")


def _enter(scope: Scope, bound: _Bound, key: object) -> None:
    if not bound.requests.enter(key):
        raise _too_many(
            bound.code, f"{bound.who} has {bound.requests.most} requests in progress, which is the most."
        )
    observe.at_end(scope, lambda: bound.requests.leave(key))


def _too_many(code: str, why: str) -> ApiError:
    return ApiError(code, why, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


def _key(principal: Principal) -> tuple[OrganizationId, UUID]:
    """How the limiters name the key of a principal: by its organization, and itself."""
    return principal.organization_id, principal.credential_id


def _organization(principal: Principal) -> tuple[OrganizationId, UUID]:
    return principal.organization_id, principal.organization_id


def _too_fast(who: str, limiter: Limiter, grant: Grant, cost: int = 1) -> ApiError:
    weight = f", and this one counts as {cost}" if cost > 1 else ""
    return _limited(f"{who} sends more than {limiter.rate:g} requests per second{weight}.", grant)


def _limited(why: str, grant: Grant) -> ApiError:
    return ApiError("rate_limited", why, headers={"Retry-After": str(grant.reset_seconds)})
