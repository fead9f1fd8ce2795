"""Customers reboot, stop and start the machines of their leases: requests that a loop passes on to the provider."""

from datetime import datetime

from control_plane.db import claims, journal, lease_overviews, organizations, powers
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.domain import auto_release
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.admission import not_spending
from control_plane.domain.claim import Claim
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease, LeaseKind, LeaseState
from control_plane.domain.organization import OrganizationState
from control_plane.domain.power import ALREADY, PowerEvent, PowerState, step, too_many
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Moved
from control_plane.outcomes.funding import fund_start
from control_plane.services import lease_reach
from control_plane.services.leases import follow, of_node_pool
from control_plane.world import World

_DONE_TO = {
    PowerAction.REBOOT: "rebooted",
    PowerAction.STOP: "stopped",
    PowerAction.START: "started",
}


async def change(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    action: PowerAction,
    *,
    actor: Actor,
    reach: Reach,
) -> Overview | Refused:
    """Have the machine of a lease rebooted, stopped or started. What is being done already is not asked for again."""
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        return of_node_pool(lease, _DONE_TO[action])
    refused = await _change(connection, world, lease, action, actor)
    if refused is not None:
        return refused
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


async def _change(
    connection: Connection, world: World, lease: Lease, action: PowerAction, actor: Actor
) -> Refused | None:
    found = await claims.lock_open(connection, lease_ids=[lease.id])
    if lease.state is not LeaseState.READY:
        why = f"The lease is {lease.state}; the machine of a ready lease can be {_DONE_TO[action]}."
        return Refused(RefusalCode.LEASE_NOT_READY, why)
    if not found:
        return Refused(RefusalCode.LEASE_NOT_READY, "The lease has no machine at this moment.")
    refused = await _not_allowed(connection, lease, found[0], action)
    if refused is not None:
        return refused
    now = world.now()
    power = await powers.ensure(connection, found[0].id, now=now)
    if (power.state, action) in ALREADY:
        return None
    moved = step(power.state, PowerEvent(action.value))
    if not isinstance(moved, Moved):
        return _conflict(power.state, action)
    refused = too_many(await powers.count_recent(connection, lease.id, now=now))
    if refused is None and power.state is PowerState.OFF:
        refused = _too_dear(lease, now) or await fund_start(connection, lease, now=now)
    if refused is not None:
        return refused
    await powers.move(connection, found[0].id, power.generation, moved, now=now)
    why = f"the customer asked to {action} the machine"
    await journal.note_lease(connection, lease.id, event=Note.POWER_REQUESTED, why=why, actor=actor, now=now)
    await follow(connection, world, lease.id)
    return None


async def _not_allowed(
    connection: Connection, lease: Lease, claim: Claim, action: PowerAction
) -> Refused | None:
    offered = await powers.offered(connection, claim.machine_id)
    if action not in offered:
        can = ", ".join(sorted(offered)) or "none of reboot, stop and start"
        why = f"The provider of this machine cannot {action} it; it offers {can}."
        return Refused(RefusalCode.POWER_NOT_OFFERED, why)
    standing = await organizations.standing(connection, lease.organization_id, lock=False)
    if (
        action is PowerAction.START
        and standing is not None
        and standing.state is not OrganizationState.ACTIVE
    ):
        return not_spending(standing.state)
    return None


def _too_dear(lease: Lease, now: datetime) -> Refused | None:
    if lease.ready_at is None:
        return None
    return auto_release.refuses_start(lease.auto_release, lease.tariff(lease.ready_at), now)


def _conflict(state: PowerState, action: PowerAction) -> Refused:
    if state is PowerState.OFF:
        why = "The machine is stopped; start it instead."
        return Refused(RefusalCode.POWER_CONFLICT, why)
    why = f"The machine is {state}; wait until that is done, and {action} it then."
    return Refused(RefusalCode.POWER_CONFLICT, why)
