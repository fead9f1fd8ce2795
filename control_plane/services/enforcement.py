"""Enforcement: what customers read and wish, and what operators arm and undo."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import claims, conditions, enforcement, journal, powers
from control_plane.db.connection import Connection
from control_plane.db.enforcement import Arm, ShownAction
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.enforcement import Detector
from control_plane.domain.ids import EnforcementActionId, LeaseId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.lease import LIVE, LeaseKind
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import lease_reach
from control_plane.services.leases import of_node_pool
from control_plane.world import World

__all__ = ["ShownAction"]  # For controllers and views.

NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such action.")


@dataclass(frozen=True, slots=True)
class LeaseEnforcement:
    """What was done about a lease, the latest first, and what its customer wants."""

    idle_stop_seconds: int | None
    actions: Sequence[ShownAction]


async def of_lease(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    reach: Reach,
) -> LeaseEnforcement | Refused:
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        return LeaseEnforcement(
            await conditions.idle_stop(connection, organization_id, lease_id),
            await enforcement.of_lease(connection, organization_id, lease_id, before=before, limit=limit),
        )


async def set_idle_stop(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    after_seconds: int | None,
    *,
    actor: Actor,
    reach: Reach,
) -> Refused | None:
    """Have the machine of a lease stopped after it was idle for so long; None: never."""
    async with world.db.transaction(organization_id) as connection:
        lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        if lease.kind is LeaseKind.NODE:
            return of_node_pool(lease, "stopped")
        if lease.state not in LIVE:
            return Refused(
                RefusalCode.LEASE_ENDING, f"The lease is {lease.state}, so nothing of it can change."
            )
        found = await claims.lock_open(connection, lease_ids=[lease.id])
        offered = await powers.offered(connection, found[0].machine_id) if found else None
        if after_seconds is not None and offered is not None and PowerAction.STOP not in offered:
            why = "The provider of this machine cannot stop it."
            return Refused(RefusalCode.POWER_NOT_OFFERED, why)
        now = world.now()
        await conditions.set_idle_stop(
            connection, organization_id, lease_id, after_seconds, by=actor.name, now=now
        )
        wish = "never" if after_seconds is None else f"after {after_seconds:,} s"
        await journal.note_lease(
            connection,
            lease_id,
            event=Note.CHANGED,
            why=f"an idle machine is to be stopped: {wish}",
            actor=actor,
            now=now,
        )
    return None


async def page(
    world: World,
    platform: OrganizationId,
    *,
    only_running: bool,
    lease_id: LeaseId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[ShownAction]:
    """The actions about all leases, taken or only decided, for operators."""
    async with world.db.reading(platform) as connection:
        return await enforcement.page(
            connection, only_running=only_running, lease_id=lease_id, before=before, limit=limit
        )


async def show(
    world: World, platform: OrganizationId, action_id: EnforcementActionId
) -> ShownAction | Refused:
    async with world.db.reading(platform) as connection:
        return await enforcement.show(connection, action_id) or NOT_FOUND


async def undo(
    connection: Connection, world: World, action_id: EnforcementActionId, *, why: str, actor: Actor
) -> ShownAction | Refused:
    """Ask for an action to be undone; a loop does it within seconds."""
    action = await enforcement.show(connection, action_id)
    if action is None:
        return NOT_FOUND
    if action.ended is not None:
        return Refused(RefusalCode.ENFORCEMENT_ENDED, f"The action ended before: {action.ended_why}.")
    await enforcement.ask_undo(connection, action_id, by=actor.name, why=why, now=world.now())
    return action


@dataclass(frozen=True, slots=True)
class DetectorState:
    """Whether a detector acts, by whose word, and for how many leases its condition holds."""

    detector: Detector
    arm: Arm | None
    leases: int


async def detectors(world: World, platform: OrganizationId) -> Sequence[DetectorState]:
    async with world.db.reading(platform) as connection:
        arms, counts = await enforcement.arms(connection), await enforcement.open_counts(connection)
    return [DetectorState(detector, arms.get(detector), counts.get(detector, 0)) for detector in Detector]


async def set_arm(
    connection: Connection, world: World, detector: Detector, *, armed: bool, why: str, actor: Actor
) -> DetectorState:
    """Let a detector act from now on, or only decide."""
    arm = Arm(detector, armed, world.now(), actor.name, why)
    await enforcement.arm(connection, world.new_id(), arm)
    return DetectorState(detector, arm, (await enforcement.open_counts(connection)).get(detector, 0))
