"""What costs money at providers and serves nobody: machines on record that no lease holds, orphans, and
what launches left beside their machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from control_plane.db import children, fleet, leftover_decisions, orphans
from control_plane.db.children import ListedLeftover
from control_plane.db.connection import Connection
from control_plane.db.fleet import FleetFilter, FleetMachine
from control_plane.db.leftover_decisions import LeftoverDecision
from control_plane.db.orphans import ListedOrphan
from control_plane.domain.actor import Actor
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.liability import LiabilityKind, liability_id, why_open
from control_plane.domain.orphan import Choice
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services.orphans import decide
from control_plane.world import World

__all__ = [
    "FleetMachine",
    "ListedLeftover",
    "ListedOrphan",
]  # For views, which must not import the layer below.

LISTED_MAX = 10_000
"""As many machines, orphans and leftovers each are listed and summed."""

Liability = FleetMachine | ListedOrphan | ListedLeftover


@dataclass(frozen=True, slots=True)
class Liabilities:
    machines: Sequence[FleetMachine]
    """Newest first."""
    orphans: Sequence[ListedOrphan]
    leftovers: Sequence[ListedLeftover]


def id_of(liability: Liability) -> UUID:
    match liability:
        case FleetMachine():
            return liability_id(LiabilityKind.MACHINE, liability.id.hex)
        case ListedOrphan():
            return liability_id(LiabilityKind.ORPHAN, liability.account, liability.provider_ref)
        case ListedLeftover():
            return liability_id(LiabilityKind.CHILD, liability.account, liability.kind, liability.ref)


async def every(world: World, platform: OrganizationId) -> Liabilities:
    """All of them, at this moment. `platform` is the operators' organization."""
    async with world.db.reading(platform) as connection:
        return await _every(connection, world)


async def get(world: World, platform: OrganizationId, liability: UUID) -> Liability | Refused:
    """One of them, as it is at this moment."""
    async with world.db.reading(platform) as connection:
        return await _get(connection, world, liability)


async def end(
    connection: Connection, world: World, liability: UUID, *, why: str, actor: Actor
) -> Liability | Refused:
    """Store an operator's decision that an orphan is terminated, or what a launch left deleted, whatever holds it back.

    A machine on record needs none: its provider is asked until it is gone.
    """
    found = await _get(connection, world, liability)
    match found:
        case FleetMachine():
            waits = why_open(
                found.state,
                known=found.provider_ref is not None,
                terminate_asked_at=found.terminate_asked_at,
                tries=found.tries,
            )
            return Refused(RefusalCode.LIABILITY_TERMINATING, f"It is terminated without a decision. {waits}")
        case ListedOrphan():
            decided = await decide(
                connection, world, found.account, [found.provider_ref], Choice.END, why=why, actor=actor
            )
            if isinstance(decided, Refused):
                return decided
        case ListedLeftover():
            decision = LeftoverDecision(
                id=world.new_id(),
                account=found.account,
                kind=found.kind,
                ref=found.ref,
                launch_key=found.launch_key,
                why=why,
                actor_kind=actor.kind,
                actor=actor.name,
                request_id=actor.request_id,
                at=world.now(),
            )
            await leftover_decisions.insert(connection, decision)
        case Refused():
            return found
    return await _get(connection, world, liability)


async def _every(connection: Connection, world: World) -> Liabilities:
    return Liabilities(
        await fleet.page(
            connection, FleetFilter(), after=None, limit=LISTED_MAX, now=world.now(), unused=True
        ),
        await orphans.page(connection, gone=False, after=None, limit=LISTED_MAX),
        await children.leftovers(connection, limit=LISTED_MAX),
    )


async def _get(connection: Connection, world: World, liability: UUID) -> Liability | Refused:
    found = await _every(connection, world)
    known: list[Liability] = [*found.machines, *found.orphans, *found.leftovers]
    for each in known:
        if id_of(each) == liability:
            return each
    why = f"There is no liability {on_wire(Prefix.LIABILITY, liability)}, or no longer."
    return Refused(RefusalCode.NOT_FOUND, why)
