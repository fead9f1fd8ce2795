"""Has machines refuse revoked SSH certificates, and ends the sessions that were opened with them.

Whatever takes the right to log in away revokes the certificates in its own transaction, also those that have ended,
whose sessions may still run. PostgreSQL's notification wakes this loop at once. A machine that cannot be reached is
tried again for as long as it lives.
"""

from datetime import timedelta

from control_plane.db import ssh_revocations
from control_plane.db.ssh_certificates import REVOCATIONS
from control_plane.db.ssh_revocations import Revoked, Untold
from control_plane.domain.ids import AccountName
from data_plane.access.port import AccessError, Target
from data_plane.access.revocation import SERIALS_MAX, revoke
from reconciler import traced
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.leases import LeaseWorld
from tracing.tracer import Kind

NAME = "revoke_ssh_certificates"
MACHINES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Several, because a machine that hangs uses up the whole time limit of the step."""
AGAIN = timedelta(seconds=60)
"""When a machine is tried again that could not be told, or whose worker died. Longer than the step may take."""


async def activate(world: LeaseWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        untold = await ssh_revocations.take(
            connection, account, now=now, again=now + AGAIN, limit=MACHINES_PER_ACTIVATION_MAX
        )
        steps = await traced.of_leases(world, connection, NAME, [each.lease_id for each in untold])
    report = Report(looked_at=len(untold), more=len(untold) == MACHINES_PER_ACTIVATION_MAX)
    await each(untold, lambda machine: steps.around(machine.lease_id, _tell(world, machine, report)), report)
    return report


async def _tell(world: LeaseWorld, machine: Untold, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.launch_key} has a customer without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
    try:
        with world.tracer.span("machine session", Kind.CLIENT):
            async with world.access.connect(target) as session:
                revoked = await _revoked(world, machine)
                if revoked is None:
                    return
                # Which of its sessions a revoked certificate has opened cannot be told without its serial.
                every_session = revoked.count > len(revoked.serials)
                await revoke(session, revoked.serials, every_session=every_session)
    except AccessError as error:
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    async with world.db.statement() as connection:
        await ssh_revocations.told(connection, machine.claim_id, revoked, now=world.now())
    report.acted_on += 1


async def _revoked(world: LeaseWorld, machine: Untold) -> Revoked | None:
    """Read when we are logged in.

    Logins and steps have time limits that are shorter than the hold on a machine, so that nobody who was slow replaces
    the list that somebody else has written since.
    """
    async with world.db.reading() as connection:
        return await ssh_revocations.revoked_of(connection, machine.claim_id, serials_max=SERIALS_MAX)


LOOP = AccountLoop(NAME, timedelta(seconds=5), activate, lanes=LANES, hears=(REVOCATIONS,))
