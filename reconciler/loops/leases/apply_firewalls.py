"""Gives machines the firewall rules of their leases, and looks once an hour whether they still have them.

A machine has the rules of its lease before its customer is admitted (`admit_customers`). This loop brings every change
there: PostgreSQL's notification wakes it when the change is committed. A machine that cannot be reached, or does not
take its rules, keeps those that it has and is tried again, at first after seconds and later every five minutes, for as
long as its customer has it. What a customer with root has changed on the machine is shown, and left alone until the
rules change.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import firewalls
from control_plane.db.firewalls import CHANGES, Due
from control_plane.domain.firewall import LOOK_EVERY, FirewallProblem, next_try
from control_plane.domain.ids import AccountName
from data_plane.access.port import AccessError, NotCertified, Session, StepFailed, Target
from data_plane.mesh.firewall import apply_firewall, read_firewall
from reconciler import traced
from reconciler.firewalls import openings
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.leases import LeaseWorld
from tracing.tracer import Kind

NAME = "apply_firewalls"
MACHINES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Several, because a machine that hangs uses up the whole time limit of the step."""
HELD_FOR = timedelta(seconds=90)
"""Longer than a login and the step may take, so that no worker that was slow replaces newer rules."""


async def activate(world: LeaseWorld, account: AccountName) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await firewalls.take(
            connection,
            account,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
        steps = await traced.of_leases(world, connection, NAME, [machine.lease_id for machine in due])
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    await each(
        due, lambda machine: steps.around(machine.lease_id, _reach(world, machine, token, report)), report
    )
    return report


async def _reach(world: LeaseWorld, due: Due, token: UUID, report: Report) -> None:
    if due.address is None or due.host_key is None:
        raise ValueError(f"{due.launch_key} has a customer without an address or a host key")
    target = Target(due.address, due.ssh_port, due.host_key, due.launch_key)
    try:
        with world.tracer.span("machine session", Kind.CLIENT):
            async with world.access.connect(target) as session:
                act = _look if due.is_look else _apply
                await act(world, due, session, token, report)
    except AccessError as error:
        problem = (
            FirewallProblem.FAILED
            if isinstance(error, StepFailed | NotCertified)
            else FirewallProblem.UNREACHABLE
        )
        (report.errors if isinstance(error, NotCertified) else report.notes).append(
            f"{due.launch_key}: {type(error).__name__}: {error}"
        )
        async with world.db.statement() as connection:
            now = world.now()
            due_at = now + next_try(due.tries + 1)
            await firewalls.failed(connection, due, problem, token=token, now=now, due_at=due_at)


async def _apply(world: LeaseWorld, due: Due, session: Session, token: UUID, report: Report) -> None:
    async with world.db.reading() as connection:
        wanted = await firewalls.rules_of(connection, due.lease_id)
    digest = await apply_firewall(session, openings(wanted.rules), ssh_port=due.ssh_port)
    async with world.db.statement() as connection:
        now = world.now()
        stored = await firewalls.applied(
            connection, due, wanted.version, digest, token=token, now=now, look_at=now + LOOK_EVERY
        )
    report.count(int(stored))
    # A change that came meanwhile woke this loop while nobody could take the machine.
    async with world.db.reading() as connection:
        now_wanted = await firewalls.rules_of(connection, due.lease_id)
    report.more |= now_wanted.version != wanted.version


async def _look(world: LeaseWorld, due: Due, session: Session, token: UUID, report: Report) -> None:
    found = await read_firewall(session)
    problem = None if found == due.digest else FirewallProblem.CHANGED
    if problem is not None:
        report.notes.append(f"{due.launch_key}: the firewall was changed on the machine")
    async with world.db.statement() as connection:
        now = world.now()
        await firewalls.looked(connection, due, problem, token=token, now=now, look_at=now + LOOK_EVERY)


LOOP = AccountLoop(NAME, timedelta(seconds=5), activate, lasts=HELD_FOR, lanes=LANES, hears=(CHANGES,))
