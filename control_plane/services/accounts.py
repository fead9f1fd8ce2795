"""Provider accounts, and permits to terminate their machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from control_plane.db import accounts, call_budgets, offer_blocks, permits
from control_plane.db.accounts import Account
from control_plane.db.call_budgets import BucketRow
from control_plane.db.connection import Connection
from control_plane.db.offer_blocks import StoredBlock
from control_plane.db.permits import Permit
from control_plane.domain.actor import Actor
from control_plane.domain.block import BlockScope
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.world import World

__all__ = [
    "Account",
    "BucketRow",
    "Permit",
    "StoredBlock",
]  # For controllers, which must not import the layer below.

BUCKETS_MAX = 10_000
"""Far more than there are: accounts times the limits of a provider."""


@dataclass(frozen=True, slots=True)
class AccountOverview:
    """An account, and what holds for it now."""

    account: Account
    permit: Permit | None
    """The termination permit in force."""
    blocks: Sequence[StoredBlock]
    """What is not ordered there because orders were refused, the longest first."""
    limits: Sequence[BucketRow]
    """Its provider's rate limits, and how much of them we use."""


async def every(world: World, platform: OrganizationId) -> Sequence[AccountOverview]:
    """Every account. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        now = world.now()
        in_force = {permit.account: permit for permit in await permits.valid(connection, now=now)}
        blocks = await offer_blocks.in_force(connection, now=now)
        buckets = await call_budgets.listed(connection, limit=BUCKETS_MAX)
        return [
            AccountOverview(
                account,
                in_force.get(account.name),
                [block for block in blocks if _concerns(block, account)],
                [bucket for bucket in buckets if bucket.account == account.name],
            )
            for account in await accounts.every(connection)
        ]


def _concerns(block: StoredBlock, account: Account) -> bool:
    whole_provider = block.scope is BlockScope.PROVIDER and block.provider == account.provider
    return whole_provider or block.account == account.name


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
