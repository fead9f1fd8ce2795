"""Provider accounts, and permits to terminate their machines."""

from collections.abc import Sequence
from datetime import timedelta

from control_plane.db import accounts, permits
from control_plane.db.accounts import Account
from control_plane.db.connection import Connection
from control_plane.db.permits import Permit
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.world import World

__all__ = ["Account", "Permit"]  # For controllers, which must not import the layer below.


async def every(world: World, platform: OrganizationId) -> Sequence[tuple[Account, Permit | None]]:
    """Every account, with the termination permit that is in force, if any. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        in_force = {permit.account: permit for permit in await permits.valid(connection, now=world.now())}
        return [(account, in_force.get(account.name)) for account in await accounts.every(connection)]


async def permit_terminations(
    connection: Connection, world: World, account: AccountName, *, minutes: int, why: str, actor: Actor
) -> Permit | Refused:
    """Permit for `minutes` that machines of the account are terminated when they fail their proof, however many do."""
    names = [known.name for known in await accounts.every(connection)]
    if account not in names:
        why = f"There is no provider account {account!r}; {choose(account, names)}."
        return Refused(RefusalCode.ACCOUNT_UNKNOWN, why)
    now = world.now()
    permit = Permit(
        account=account,
        why=why,
        actor_kind=actor.kind,
        actor=actor.name,
        request_id=actor.request_id,
        at=now,
        until=now + timedelta(minutes=minutes),
    )
    await permits.insert(connection, world.new_id(), permit)
    return permit
