"""Tells running machines which SSH authorities to trust, whenever those have changed: in each step of a rotation.

A machine learns its first authorities from its user data, and is told again at its bootstrap. What it was told last is
stored with it; a machine that was told something else is taken here. One that cannot be reached is tried again, and
holds up the rotation for a day at most (`domain/ssh_authority.py`).
"""

from datetime import timedelta

from control_plane.db import ssh_authorities
from control_plane.db.ssh_authorities import Behind
from control_plane.domain.ids import AccountName
from control_plane.domain.ssh_authority import fingerprint
from data_plane.access.port import AccessError, Target
from reconciler import ssh_trust
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "trust_ssh_authorities"
MACHINES_PER_ACTIVATION_MAX = 16
AGAIN = timedelta(seconds=60)
"""When a machine is tried again that could not be told, or whose worker died. Longer than the step may take."""


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    trust = fingerprint(await world.ssh_authorities.trusted())
    async with world.db.transaction() as connection:
        behind = await ssh_authorities.take_behind(
            connection, account, trust, now=now, again=now + AGAIN, limit=MACHINES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(behind), more=len(behind) == MACHINES_PER_ACTIVATION_MAX)
    await each(behind, lambda machine: _tell(world, machine, report), report)
    return report


async def _tell(world: MachineWorld, machine: Behind, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.id} was told whom to trust without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
    try:
        async with world.access.connect(target) as session:
            await ssh_trust.tell(world, session, machine.id)
    except AccessError as error:
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    report.acted_on += 1


LOOP = AccountLoop(NAME, timedelta(seconds=2), activate, wakes=("rotate_ssh_authorities",))
