"""What operators ask for concerning provider accounts. The reconciler does it, because the API touches no provider."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import account_requests, secrets
from control_plane.db.account_requests import RecordedRequest
from control_plane.db.connection import Connection
from control_plane.domain.account_request import AccountRequest, AccountVerb
from control_plane.domain.actor import Actor
from control_plane.domain.ids import (
    AccountName,
    AccountRequestId,
    MalformedIdError,
    OrganizationId,
    Prefix,
    off_wire,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.secret import Plain, Purpose, Sealed
from control_plane.services.sealing import seal
from control_plane.world import World

__all__ = ["RecordedRequest"]  # For controllers, which must not import the layer below.


async def seal_settings(
    world: World, organization_id: OrganizationId, settings: Mapping[str, str]
) -> Sealed | Refused:
    """Encrypt the settings of an account. Call it with no transaction open; `ask` stores the result."""
    plain = Plain(json.dumps(dict(settings)).encode())
    return await seal(world, organization_id, Purpose.PROVIDER_CREDENTIALS, plain)


async def ask(
    connection: Connection,
    world: World,
    account: AccountName,
    verb: AccountVerb,
    *,
    sealed: Sealed | None = None,
    why: str | None = None,
    actor: Actor,
) -> RecordedRequest:
    """Store what is asked for, with the sealed credentials of an addition or a rotation."""
    now = world.now()
    request = AccountRequest(
        AccountRequestId(world.new_id()), account, verb, sealed.id if sealed is not None else None, why
    )
    if sealed is not None:
        await secrets.insert(connection, sealed, now=now)
    await account_requests.insert(connection, request, actor=actor, now=now)
    return RecordedRequest(request.id, account, verb, why, actor.name, now, None, None, None, None)


async def get(world: World, platform: OrganizationId, request_id: str) -> RecordedRequest | Refused:
    """One request, by its id on the wire. `platform`: the operators' organization."""
    try:
        known = AccountRequestId(off_wire(Prefix.ACCOUNT_REQUEST, request_id))
    except MalformedIdError:
        return _unknown()
    async with world.db.reading(platform) as connection:
        return await account_requests.get(connection, known) or _unknown()


async def page(
    world: World,
    platform: OrganizationId,
    *,
    account: AccountName | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[RecordedRequest]:
    """Requests, newest first. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        return await account_requests.page(connection, account=account, before=before, limit=limit)


def _unknown() -> Refused:
    return Refused(RefusalCode.NOT_FOUND, "There is no request with this id.")
