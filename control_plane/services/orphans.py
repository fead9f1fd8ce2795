"""Orphans: machines with launch keys of ours that no open record matches. Reads them, and decides to terminate some."""

from collections.abc import Sequence

from control_plane.db import accounts, orphan_terminations
from control_plane.db.accounts import ListedOrphan
from control_plane.db.connection import Connection
from control_plane.db.orphan_terminations import OrphanTermination
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["ListedOrphan", "OrphanTermination"]  # For controllers, which must not import the layer below.


async def every(world: World, *, gone: bool) -> Sequence[ListedOrphan]:
    """The orphans of all accounts, as the last lists showed them; with `gone`, also those of the last 30 days."""
    async with world.db.reading() as connection:
        return await accounts.orphans_shown(connection, gone=gone)


async def terminate(
    connection: Connection,
    world: World,
    account: AccountName,
    refs: Sequence[ProviderRef],
    *,
    why: str,
    actor: str,
) -> list[OrphanTermination] | Refused:
    """Decide that these orphans are terminated, whatever holds them back. If one is not listed, nothing is decided."""
    listed = {
        orphan.provider_ref: orphan
        for orphan in await accounts.orphans_shown(connection, gone=False)
        if orphan.account == account
    }
    for ref in refs:
        if ref not in listed:
            return Refused(RefusalCode.ORPHAN_UNKNOWN, f"{account} lists no orphan {ref!r} now.")
    decisions = [
        OrphanTermination(world.new_id(), account, ref, listed[ref].launch_key, why, actor, world.now())
        for ref in dict.fromkeys(refs)
    ]
    await orphan_terminations.insert(connection, decisions)
    return decisions
