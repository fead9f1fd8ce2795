"""Overwrites the GPU memory of proven machines after their claim, and stores the proof that it was overwritten.

A proof fills at least 93 % of each card with data from a fresh seed, and its walk proves that the data is there,
so the customer's data is gone. The machine's termination waits for this, two minutes at most. The limit is stored on
the row: once it has passed, `terminate_machines` terminates the machine whatever the state of this loop, its worker,
the machine or our verifier, and a worker's hold on the machine expires at that moment too. Billing stopped when the
customer released the lease.

The customer's keys and processes are removed first. A customer with root may prevent that; then the proof fails,
which is recorded, and the machine is still terminated.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import challenges, machines
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import ERASED_WITHIN, Machine
from control_plane.domain.proof import Occasion
from control_plane.outcomes import challenges as outcomes
from data_plane.access.customer import end_customer
from data_plane.access.port import AccessError, Target
from data_plane.proof.verifier.jobs import VerifierAway
from reconciler import proving
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.proof import ProofWorld

NAME = "erase_machines"
MACHINES_PER_ACTIVATION_MAX = 32
LANES = 4
"""Concurrent activations, because a machine that is released while others are overwritten cannot wait for them."""
AGAIN = timedelta(seconds=10)


async def activate(world: ProofWorld, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        waiting = await challenges.take_erasing(
            connection, account, token=token, now=now, limit=MACHINES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(waiting), more=len(waiting) == MACHINES_PER_ACTIVATION_MAX)
    await each(waiting, lambda machine: _erase(world, machine, token, report), report)
    return report


async def _erase(world: ProofWorld, machine: Machine, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None or machine.erasing_until is None:
        raise ValueError(f"{machine.id} was verified without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
    left = (machine.erasing_until - world.now()).total_seconds()
    try:
        async with world.access.connect(target) as session:
            await end_customer(session)
            answer = await proving.challenge(world, session, machine, Occasion.END, seconds=left)
    except (AccessError, VerifierAway) as error:
        due_at = min(world.now() + AGAIN, machine.erasing_until)
        async with world.db.statement() as connection:
            # Not counted as a failed try, because failed tries delay the termination that follows.
            await machines.postpone(connection, machine.id, token=token, due_at=due_at)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    challenged = proving.challenged(machine, token, answer, proof_id=world.new_id())
    async with world.db.transaction() as connection:
        if await outcomes.after_its_claim(connection, challenged, actor=world.actor(NAME), now=world.now()):
            report.acted_on += 1


LOOP = AccountLoop(
    NAME, timedelta(seconds=1), activate, lasts=ERASED_WITHIN, wakes=("terminate_machines",), lanes=LANES
)
