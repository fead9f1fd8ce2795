"""Runs an effect at most once per Idempotency-Key. The answer is stored in the transaction of the effect."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from control_plane.db import organizations
from control_plane.db.connection import Connection
from control_plane.db.idempotency import StoredAnswer
from control_plane.db.idempotency import get as get_answer
from control_plane.db.idempotency import insert as insert_answer
from control_plane.domain.ids import OrganizationId
from control_plane.world import World

__all__ = [
    "Answer",
    "Connection",
    "OtherBody",
    "Produced",
    "RequestKey",
    "Shut",
    "once",
]  # Connection: for controllers, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Digests of an Idempotency-Key and, keyed with it, of the request that it belongs to."""

    key: str
    request_hmac: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that is sent to the client."""

    status: int
    body: bytes
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class OtherBody:
    """The key was used with another request body."""


@dataclass(frozen=True, slots=True)
class Shut:
    """The organization was closed since the request was let in."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What an effect returns: the body to send now, and the body to store, which contains no secrets."""

    status: int
    body: bytes
    stored_body: bytes


async def once(
    world: World,
    tenant: OrganizationId,
    *,
    key: RequestKey | None,
    effect: Callable[[Connection], Awaitable[Produced]],
) -> Answer | OtherBody | Shut:
    """Run `effect` in a transaction of `tenant`, at most once per key, unless the tenant is closing or closed.

    Only effects that took place are stored. When an effect raises (a refusal), it is rolled back and the key stays
    free, so that the customer can correct the request and use the key again.
    """
    if key is None:
        async with world.db.transaction(tenant) as connection:
            if not await organizations.hold_open(connection, tenant):
                return Shut()
            produced = await effect(connection)
        return Answer(produced.status, produced.body)

    stored = await _stored(world, tenant, key.key)
    if stored is None:
        try:
            async with world.db.transaction(tenant) as connection:
                if not await organizations.hold_open(connection, tenant):
                    return Shut()
                produced = await effect(connection)
                answer = StoredAnswer(key.request_hmac, produced.status, produced.stored_body)
                await insert_answer(connection, tenant, key.key, answer, now=world.now())
        except Exception:
            # The same request may have run beside this one and committed first. Then its key is taken, or the effect
            # was refused because of what that one did: the name is taken, the quota used up, the state another one.
            stored = await _stored(world, tenant, key.key)
            if stored is None:
                raise
        else:
            return Answer(produced.status, produced.body)
    if stored.request_hmac != key.request_hmac:
        return OtherBody()
    return Answer(stored.status, stored.answer, replayed=True)


async def _stored(world: World, tenant: OrganizationId, key: str) -> StoredAnswer | None:
    async with world.db.reading(tenant) as connection:
        return await get_answer(connection, tenant, key)
