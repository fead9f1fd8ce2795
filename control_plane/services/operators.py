"""What an operator asks: what the loops did, which machines belong to nobody, how the accounts are."""

from collections.abc import Sequence
from datetime import timedelta

from control_plane.db import accounts, loops, permits
from control_plane.db import organizations as organization_rows
from control_plane.db.accounts import Account, ListedOrphan
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.loops import LoopReport
from control_plane.db.permits import Permit
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import billing
from control_plane.services.organizations import Organization
from control_plane.world import World

__all__ = ["Account", "Permit"]


async def loop_reports(world: World) -> Sequence[LoopReport]:
    async with world.db.reading() as connection:
        return await loops.reports(connection)


async def orphans(world: World) -> Sequence[ListedOrphan]:
    """Machines with our launch keys that no open record claims, as the last lists showed them."""
    async with world.db.reading() as connection:
        return await accounts.orphans_shown(connection)


async def provider_accounts(world: World) -> Sequence[tuple[Account, Permit | None]]:
    """Every account, and the ending permit that it has now."""
    async with world.db.reading() as connection:
        standing = {one.account: one for one in await permits.valid(connection, now=world.now())}
        return [(one, standing.get(one.name)) for one in await accounts.every(connection)]


async def permit_endings(
    connection: Connection, world: World, account: AccountName, *, minutes: int, why: str, actor: str
) -> Permit | Refused:
    """Let machines of this account that fail their proof be ended for so long, however many fail."""
    if all(one.name != account for one in await accounts.every(connection)):
        return Refused(RefusalCode.ACCOUNT_UNKNOWN, f"There is no provider account {account!r}.")
    now = world.now()
    permit = Permit(account, why, actor, now, now + timedelta(minutes=minutes))
    await permits.insert(connection, world.new_id(), permit)
    return permit


async def credit_organization(
    connection: Connection,
    world: World,
    operator: OrganizationId,
    organization_id: OrganizationId,
    amount: Nano,
    *,
    key: str,
) -> Organization | Refused:
    """Post a top-up to another organization, once per key. Answers the organization afterwards."""
    async with acting_for(connection, organization_id, back_to=operator):
        before = await organization_rows.get(connection, organization_id)
        if before is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        await billing.credit(connection, world, organization_id, amount, key=key)
        after = await organization_rows.get(connection, organization_id)
    if after is None:
        raise LookupError(f"organization {organization_id} vanished")
    return after
