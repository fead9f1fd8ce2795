"""Orphans: machines with launch keys of ours that no open record matches.

Reads them, and stores what operators decide about them.
"""

from collections.abc import Sequence

from control_plane.db import orphan_decisions, orphans
from control_plane.db.connection import Connection
from control_plane.db.orphan_decisions import OrphanDecision
from control_plane.db.orphans import ListedOrphan, Place
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName, OrganizationId, ProviderRef
from control_plane.domain.orphan import Choice
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = [
    "ListedOrphan",
    "OrphanDecision",
    "Place",
]  # For controllers, which must not import the layer below.


async def page(
    world: World,
    platform: OrganizationId,
    *,
    gone: bool,
    after: Place | None,
    limit: int,
    account: AccountName | None = None,
    ref: ProviderRef | None = None,
) -> Sequence[ListedOrphan]:
    """Orphans of all accounts or of one, as the last lists showed them; with `gone`, also those of the last 30 days.

    `platform`: the operators' organization, whose decisions on orphans they are listed with.
    """
    async with world.db.reading(platform) as connection:
        return await orphans.page(connection, gone=gone, after=after, limit=limit, account=account, ref=ref)


async def decide(
    connection: Connection,
    world: World,
    account: AccountName,
    refs: Sequence[ProviderRef],
    choice: Choice,
    *,
    why: str,
    actor: Actor,
) -> list[OrphanDecision] | Refused:
    """Store what an operator decided about these orphans. If one is not listed, or its record cannot adopt it though it
    should, nothing is decided.
    """
    listed = await orphans.listed(connection, account, refs)
    for ref in refs:
        if ref not in listed:
            return Refused(RefusalCode.ORPHAN_UNKNOWN, f"{account} lists no orphan {ref!r} now.")
        against = listed[ref].not_adopted_why
        if choice is Choice.ADOPT and against is not None:
            return Refused(
                RefusalCode.ORPHAN_NOT_ADOPTABLE, f"No record can adopt the orphan {ref!r}. {against}"
            )
    decisions = [
        OrphanDecision(
            id=world.new_id(),
            account=account,
            provider_ref=ref,
            launch_key=listed[ref].launch_key,
            choice=choice,
            why=why,
            actor_kind=actor.kind,
            actor=actor.name,
            request_id=actor.request_id,
            at=world.now(),
        )
        for ref in dict.fromkeys(refs)
    ]
    await orphan_decisions.insert(connection, decisions)
    return decisions
