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
from control_plane.domain.freeze import MissingPermit
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.world import World

__all__ = [
    "Account",
    "BucketRow",
    "MissingPermit",
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
    """The termination permit in force for machines that fail their proof."""
    missing_permit: Permit | None
    """The one for machines that its lists miss."""
    blocks: Sequence[StoredBlock]
    """What is not ordered there because orders were refused, the longest first."""
    limits: Sequence[BucketRow]
    """Its provider's rate limits, and how much of them we use."""


async def every(world: World, platform: OrganizationId) -> Sequence[AccountOverview]:
    """Every account. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        now = world.now()
        in_force = {permit.account: permit for permit in await permits.valid(connection, now=now)}
        for_missing = {
            permit.account: permit for permit in await permits.valid_for_missing(connection, now=now)
        }
        blocks = await offer_blocks.in_force(connection, now=now)
        buckets = await call_budgets.listed(connection, limit=BUCKETS_MAX)
        return [
            AccountOverview(
                account,
                in_force.get(account.name),
                for_missing.get(account.name),
                [block for block in blocks if _concerns(block, account)],
                [bucket for bucket in buckets if bucket.account == account.name],
            )
            for account in await accounts.every(connection)
        ]


def _concerns(block: StoredBlock, account: Account) -> bool:
    whole_provider = block.scope is BlockScope.PROVIDER and block.provider == account.provider
    return whole_provider or block.account == account.name


async def permit_terminations(
    connection: Connection,
    world: World,
    account: AccountName,
    *,
    minutes: int,
    why: str,
    actor: Actor,
    missing: MissingPermit | None = None,
) -> Permit | Refused:
    """Permit for `minutes` that machines of the account are terminated when they fail their proof, however many do.

    With `missing`, those are given up that its lists miss, if the account is frozen as the operator saw it.
    """
    known = {account.name: account for account in await accounts.every(connection)}
    if account not in known:
        why = f"There is no provider account {account!r}; {choose(account, known)}."
        return Refused(RefusalCode.ACCOUNT_UNKNOWN, why)
    now = world.now()
    if missing is not None and (changed := _changed(known[account], missing)):
        return Refused(RefusalCode.LISTING_CHANGED, changed)
    permit = Permit(
        account=account,
        why=why,
        actor_kind=actor.kind,
        actor=actor.name,
        request_id=actor.request_id,
        at=now,
        until=now + timedelta(minutes=minutes),
        frozen_since=None if missing is None else missing.frozen_since,
        missing=None if missing is None else missing.machines,
    )
    await permits.insert(connection, world.new_id(), permit)
    return permit


def _changed(account: Account, seen: MissingPermit) -> str | None:
    """Why a permit for missing machines no longer fits the account's lists, as a sentence; None when it does."""
    freeze = account.freeze
    if freeze is None:
        return f"{account.name} is not frozen: its lists show what they should, so that no permit is needed."
    if freeze.since != seen.frozen_since or freeze.missing > seen.machines:
        return (
            f"{account.name} is frozen since {freeze.since.isoformat()} and its list misses {freeze.missing} machines:"
            " look again at GET /v1/operator/provider-accounts."
        )
    return None
