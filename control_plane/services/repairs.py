"""Repairs: customers hand back machines that do not work, and operators take machines out for maintenance."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import claims, health, lease_overviews, maintenances, repairs
from control_plane.db.connection import Connection
from control_plane.db.health import Change, Notice
from control_plane.db.lease_overviews import Overview
from control_plane.db.maintenances import Maintenance
from control_plane.db.repairs import ShownRepair
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.health import UNFIT
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, Prefix, on_wire
from control_plane.domain.lease import LeaseKind, LeaseState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.repair_ticket import Known, Ticket, faults_of
from control_plane.services import lease_reach
from control_plane.services.leases import of_node_pool
from control_plane.world import World

__all__ = ["Change", "Maintenance", "Notice", "ShownRepair"]  # For controllers and views.

HAND_BACKS_WITHIN = timedelta(days=1)
HAND_BACKS_MAX = 3
"""Machines of a lease that may be handed back within a day: each costs a machine that may be healthy."""
CHANGES_SHOWN_MAX = 200


async def hand_back(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    why: str,
    reach: Reach,
) -> Overview | Refused:
    """Have the machine of a lease replaced by another one. Asked twice, it is replaced once."""
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        return of_node_pool(lease, "replaced")
    found = await claims.lock_open(connection, lease_ids=[lease.id])
    if lease.state is not LeaseState.READY or not found:
        why_not = f"The lease is {lease.state}; the machine of a ready lease can be replaced."
        return Refused(RefusalCode.LEASE_NOT_READY, why_not)
    if lease.committed_days is not None:
        refused = await _is_fit(connection, found[0].machine_id)
        if refused is not None:
            return refused
    now = world.now()
    recent = await repairs.count_hand_backs(connection, lease.id, since=now - HAND_BACKS_WITHIN)
    if recent >= HAND_BACKS_MAX and not await repairs.is_handed_back(connection, found[0].id):
        why_not = f"{recent} machines of this lease were handed back within a day. Ask us to look at it."
        return Refused(RefusalCode.HAND_BACKS_TOO_MANY, why_not)
    await repairs.hand_back(connection, found[0].id, why=why, now=now)
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


async def _is_fit(connection: Connection, machine_id: MachineId) -> Refused | None:
    """The refusal to hand a fit machine back in a term: while its lease waits for another one, leaving it is free."""
    known = (await health.of_machines(connection, [machine_id])).get(machine_id)
    if known is not None and known.verdict in UNFIT:
        return None
    why = (
        "Nothing that we know of is wrong with the machine, and the lease is committed to for a term. Ask us to look at"
        " the machine: we replace it if it does not do what was sold."
    )
    return Refused(RefusalCode.MACHINE_FIT, why)


async def notices(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    before: int | None,
    limit: int,
    reach: Reach,
) -> Sequence[Notice] | Refused:
    """What the customer of a lease was told about its machines, the latest first."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        return await health.notices_of_lease(connection, lease_id, before=before, limit=limit)


async def page(
    world: World,
    platform: OrganizationId,
    *,
    only_open: bool,
    machine_id: MachineId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[ShownRepair]:
    """Repairs of a machine or, with None, of all, the latest first, for operators."""
    async with world.db.reading(platform) as connection:
        return await repairs.page(
            connection, only_open=only_open, machine_id=machine_id, before=before, limit=limit
        )


@dataclass(frozen=True, slots=True)
class RepairDetail:
    """A repair with its evidence."""

    repair: ShownRepair
    changes: Sequence[Change]
    """How the verdict about the machine changed meanwhile, the oldest first."""
    ticket: Ticket
    """What the machine's provider is told."""


async def show(world: World, platform: OrganizationId, repair_id: UUID) -> RepairDetail | Refused:
    """A repair with its evidence, for operators."""
    async with world.db.reading(platform) as connection:
        repair = await repairs.get(connection, repair_id)
        if repair is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such repair.")
        machine_id, since, until = repair.machine_id, repair.opened_at, repair.closed_at
        machine = await repairs.at_provider(connection, machine_id, since=since, until=until)
        if machine is None:
            raise LookupError(f"the machine {machine_id} of a repair is not there")
        changes = await health.changes(
            connection, machine_id, since=since, until=until, limit=CHANGES_SHOWN_MAX
        )
        now = (await health.of_machines(connection, [machine_id])).get(machine_id) if until is None else None
    known = [Known(change.at, change.faults) for change in changes]
    if now is not None:
        known.append(Known(now.judged_at, now.faults))
    ticket = Ticket(
        repair=on_wire(Prefix.REPAIR, repair.id),
        provider=machine.provider,
        account=machine.account,
        region=machine.native_region,
        native_type=machine.native_type,
        reference=machine.provider_ref,
        gpu_count=machine.gpu_count,
        gpu_uuids=machine.gpu_uuids,
        opened_at=repair.opened_at,
        closed_at=repair.closed_at,
        verdict=repair.opened_verdict,
        why=repair.opened_why,
        faults=faults_of(known),
        done=machine.done,
    )
    return RepairDetail(repair, changes, ticket)


async def take_out(
    connection: Connection,
    world: World,
    machine_id: MachineId,
    *,
    why: str,
    planned_at: datetime | None,
    actor: Actor,
) -> Maintenance | Refused:
    """Take a machine out for maintenance: its customer is notified, and no lease gets it from a pool.

    Repeated in the same words, it changes nothing.
    """
    now = world.now()
    if not await maintenances.may_be_taken(connection, machine_id, now=now):
        return Refused(RefusalCode.NOT_FOUND, "There is no verified machine with this id.")
    taken = Maintenance(
        id=world.new_id(),
        machine_id=machine_id,
        since=now,
        taken_by=actor.name,
        why=why,
        planned_at=planned_at,
        ended_at=None,
        ended_by=None,
    )
    stored = await maintenances.insert(connection, taken)
    if (stored.why, stored.planned_at) != (why, planned_at):
        when = "" if stored.planned_at is None else f" for work at {stored.planned_at:%Y-%m-%d %H:%M} UTC"
        why_not = f"It is out already{when} ({stored.why}). Return it first, and then take it out again."
        return Refused(RefusalCode.STATE_CONFLICT, why_not)
    return stored


async def give_back(
    connection: Connection, world: World, machine_id: MachineId, *, actor: Actor
) -> Maintenance | Refused:
    """End the maintenance of a machine."""
    ended = await maintenances.end(connection, machine_id, by=actor.name, now=world.now())
    if ended is None:
        return Refused(RefusalCode.NOT_FOUND, "This machine is not under maintenance.")
    return ended
