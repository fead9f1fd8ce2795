"""Liabilities on the wire."""

from datetime import datetime

from control_plane.api.views.money import money, money_or_none
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.liability import why_open
from control_plane.domain.machine import MachineState
from control_plane.domain.orphan import Choice
from control_plane.services.liabilities import (
    FleetMachine,
    Liabilities,
    Liability,
    ListedLeftover,
    ListedOrphan,
    id_of,
)
from control_plane.wire.liabilities import EndDecisionView, LiabilityView


def liability_views(liabilities: Liabilities, now: datetime) -> list[LiabilityView]:
    """Machines on record, newest first, then orphans, then what launches left."""
    return [
        *(liability_view(machine, now) for machine in liabilities.machines),
        *(liability_view(orphan, now) for orphan in liabilities.orphans),
        *(liability_view(leftover, now) for leftover in liabilities.leftovers),
    ]


def liability_view(liability: Liability, now: datetime) -> LiabilityView:
    match liability:
        case FleetMachine():
            return _of_machine(liability, now)
        case ListedOrphan():
            return _of_orphan(liability, now)
        case ListedLeftover():
            return _of_leftover(liability, now)


def _id(liability: Liability) -> str:
    return on_wire(Prefix.LIABILITY, id_of(liability))


def _decision(at: datetime | None, actor: str | None, why: str | None) -> EndDecisionView | None:
    return None if at is None else EndDecisionView(why=why or "", actor=actor or "", at=at)


def _of_machine(machine: FleetMachine, now: datetime) -> LiabilityView:
    terminating = machine.state is MachineState.TERMINATING
    return LiabilityView(
        kind="machine",
        account=machine.account,
        provider_ref=machine.provider_ref,
        machine_id=on_wire(Prefix.MACHINE, machine.id),
        since=machine.unused_since or machine.created_at,
        cost_per_hour=money(machine.cost_nano_per_hour),
        cost=money(machine.cost(now)),
        terminate_asked_at=machine.terminate_asked_at,
        next_try_at=machine.due_at if terminating and machine.provider_ref is not None else None,
        tries=machine.tries,
        why=why_open(
            machine.state,
            known=machine.provider_ref is not None,
            terminate_asked_at=machine.terminate_asked_at,
            tries=machine.tries,
        ),
        id=_id(machine),
    )


def _of_orphan(orphan: ListedOrphan, now: datetime) -> LiabilityView:
    return LiabilityView(
        kind="orphan",
        account=orphan.account,
        provider_ref=orphan.provider_ref,
        machine_id=None,
        since=orphan.first_seen_at,
        cost_per_hour=money_or_none(orphan.cost_nano_per_hour),
        cost=money_or_none(orphan.cost(now)),
        terminate_asked_at=orphan.terminate_asked_at,
        next_try_at=None,
        tries=0,
        why=orphan.held_why or orphan.note or "The next runs of collect_orphans terminate it.",
        id=_id(orphan),
        decision=_decision(orphan.decided_at, orphan.decided_by, orphan.decided_why)
        if orphan.choice is Choice.END
        else None,
    )


def _of_leftover(leftover: ListedLeftover, now: datetime) -> LiabilityView:
    failed = f" The last try failed: {leftover.failed_why}" if leftover.failed_why is not None else ""
    return LiabilityView(
        kind="child",
        account=leftover.account,
        provider_ref=leftover.ref,
        child_kind=leftover.kind,
        machine_id=None if leftover.machine_id is None else on_wire(Prefix.MACHINE, leftover.machine_id),
        since=leftover.since,
        cost_per_hour=money_or_none(leftover.cost_nano_per_hour),
        cost=money_or_none(leftover.cost(now)),
        terminate_asked_at=None,
        next_try_at=None,
        tries=leftover.failures,
        why=leftover.why + failed,
        id=_id(leftover),
        decision=_decision(leftover.decided_at, leftover.decided_by, leftover.decided_why),
    )
