"""Overwrites the GPU memory of proven machines whose customers let go, and keeps the proof that it was.

The fill of a proof writes 93 % and more of each card with data from a fresh seed, and the walk shows that it
is there: what the customer left is gone. For that a machine's end waits, two minutes at most. The bound is
the row's own: `end_machines` terminates the machine when it has passed, whatever this loop, its worker, the
machine or our verifier is doing then, and the claim on it ends at that moment too. The bill had stopped when
the customer let go.

The customer's keys and processes are ended first. A customer who took root may resist; then the proof is not
passed, which is recorded, and the machine ends all the same.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import leases, proofs
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine
from control_plane.domain.lease import Lease
from control_plane.domain.proof import ERASED_WITHIN, Occasion
from control_plane.services import challenges
from data_plane.access.port import AccessError, Target
from data_plane.proof.port import VerifierAway
from reconciler import proving
from reconciler.loop import AccountLoop, Report, World, each

NAME = "erase_machines"
MACHINES_PER_ACTIVATION_MAX = 32
LANES = 4
"""Beside each other: who is released while others are overwritten has no time to wait for them."""
AGAIN = timedelta(seconds=10)


async def activate(world: World, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        waiting = await proofs.claim_erasing(
            connection, account, token=token, now=now, limit=MACHINES_PER_ACTIVATION_MAX
        )
        of = await leases.read(connection, [one.lease_id for one in waiting]) if waiting else {}
    report = Report(looked_at=len(waiting), more=len(waiting) == MACHINES_PER_ACTIVATION_MAX)
    await each(waiting, lambda one: _erase(world, one, of[one.lease_id], token, report), report)
    return report


async def _erase(world: World, machine: Machine, lease: Lease, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None or machine.erasing_until is None:
        raise ValueError(f"{machine.id} was verified without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key)
    left = (machine.erasing_until - world.now()).total_seconds()
    try:
        async with world.access.connect(target) as session:
            await session.end_customer()
            shown = await proving.challenge(world, session, lease, Occasion.END, seconds=left)
    except (AccessError, VerifierAway) as error:
        again = min(world.now() + AGAIN, machine.erasing_until)
        async with world.db.statement() as connection:
            # No failed try: those put off the terminating that follows.
            await proofs.again(connection, machine.id, token=token, due_at=again)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    one = proving.challenged(machine, token, shown, proof_id=world.new_id(), now=world.now())
    async with world.db.transaction() as connection:
        if await challenges.after_its_lease(connection, one, actor=world.actor(NAME), now=world.now()):
            report.acted_on += 1


LOOP = AccountLoop(
    NAME, timedelta(seconds=1), activate, lasts=ERASED_WITHIN, wakes=("end_machines",), lanes=LANES
)
