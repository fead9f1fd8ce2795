"""Orphans: machines with launch keys of ours that no open record matches. Reads them, and decides to terminate some."""

from collections.abc import Sequence

from control_plane.db import orphan_terminations, orphans
from control_plane.db.connection import Connection
from control_plane.db.orphan_terminations import OrphanTermination
from control_plane.db.orphans import ListedOrphan, Place
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName, OrganizationId, ProviderRef
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = [
    "ListedOrphan",
    "OrphanTermination",
    "Place",
]  # For controllers, which must not import the layer below.


async def page(
    world: World, platform: OrganizationId, *, gone: bool, after: Place | None, limit: int
) -> Sequence[ListedOrphan]:
    """The orphans of all accounts, as the last lists showed them; with `gone`, also those of the last 30 days.

    `platform`: the operators' organization, whose decisions on orphans they are listed with.
    """
    async with world.db.reading(platform) as connection:
        return await orphans.page(connection, gone=gone, after=after, limit=limit)


async def terminate(
    connection: Connection,
    world: World,
    account: AccountName,
    refs: Sequence[ProviderRef],
    *,
    why: str,
    actor: Actor,
) -> list[OrphanTermination] | Refused:
    """Decide that these orphans are terminated, whatever holds them back. If one is not listed, nothing is decided."""
    listed = await orphans.launch_keys(connection, account, refs)
    for ref in refs:
        if ref not in listed:
            return Refused(RefusalCode.ORPHAN_UNKNOWN, f"{account} lists no orphan {ref!r} now.")
    decisions = [
        OrphanTermination(
            id=world.new_id(),
            account=account,
            provider_ref=ref,
            launch_key=listed[ref],
            why=why,
            actor_kind=actor.kind,
            actor=actor.name,
            request_id=actor.request_id,
            at=world.now(),
        )
        for ref in dict.fromkeys(refs)
    ]
    await orphan_terminations.insert(connection, decisions)
    return decisions
