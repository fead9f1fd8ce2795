"""Makes a machine that runs a verified one: connect, read its GPUs, judge the reading, have the GPUs proven, record.

The machine's identity is known before first contact, so whoever answers with another host key is
refused. A booting machine may show its image's own key or no user for a while, so early refusals
are tried again; later they are final. Every step can be repeated, and the whole is: a worker that dies
anywhere leaves a hold on the machine that runs out, and the next one begins again.

A machine whose GPUs are not what was ordered is given up at once, with the reading as evidence, and whoever
waited for it gets another. That reading is the machine's own word. Where more was ordered, the GPUs are
challenged on the same session (`reconciler/proving.py`), and only a passed proof makes the machine verified; a
second failure in a row gives it up. When our own verifier is away no machine can be blamed: it waits, and its
deadline with it.

No customer is on the machine meanwhile: a proof has the GPUs to itself, and what it leads to is decided in the
transaction that stores it. Customers are let in by admit_customers, on verified machines only.
"""

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from control_plane.db import machines
from control_plane.domain import verification
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.progress import Step
from control_plane.domain.proof import Occasion, challenged
from control_plane.domain.verification import Mismatch, Reading, Verified
from control_plane.outcomes import challenges
from control_plane.outcomes import machines as outcomes
from control_plane.outcomes.challenges import Challenged
from control_plane.outcomes.machines import Verification
from data_plane.access.port import AccessError, Session, Target
from data_plane.inspection.gpus import GpuReport, read_gpus
from data_plane.proof.verifier.jobs import VerifierAway
from reconciler import patience, proving
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "bootstrap_machines"
MACHINES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Beside each other, because a proof takes a minute and a hung one five."""
HELD_FOR = timedelta(seconds=90)
"""Longer than any one step may take; every step renews it, and a proof holds the machine longer
(`proving.HELD_FOR`). How long a machine waits when its worker dies."""
VERIFIER_PATIENCE = timedelta(hours=1)
"""How long after its order a machine waits for our own verifier. Then its deadline counts again."""
VERIFIER_AGAIN = timedelta(seconds=20)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        reachable = await machines.take(
            connection,
            account,
            MachineState.BOOTSTRAPPING,
            token=token,
            until=now + HELD_FOR,
            now=now,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(reachable), more=len(reachable) == MACHINES_PER_ACTIVATION_MAX)
    await each(reachable, lambda machine: _bootstrap(world, machine, token, report), report)
    return report


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a machine showed of its GPUs."""

    gpus: GpuReport
    verdict: Verified | Mismatch
    proof: Challenged | None
    """None when the reading settles the matter."""


async def _bootstrap(world: MachineWorld, machine: Machine, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.id} is reachable without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key)
    try:
        async with world.access.connect(target) as session:
            shown = await _look(world, machine, session, token)
    except AccessError as error:
        await _try_again_or_fail(world, machine, error, token)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    except VerifierAway as error:
        await _wait_for_our_verifier(world, machine, token)
        report.errors.append(f"{machine.launch_key}: our verifier is away: {error}")
        return
    if shown is not None:
        await _record(world, machine, shown)
        report.acted_on += 1


async def _look(world: MachineWorld, machine: Machine, session: Session, token: UUID) -> _Shown | None:
    """Read, judge and prove the GPUs; None when another worker took the machine over meanwhile."""
    if not await _step(world, machine, Step.CONNECTED, token, HELD_FOR):
        return None
    gpus = await read_gpus(session, world.agent)
    verdict = _verdict(world, machine, gpus)
    if isinstance(verdict, Mismatch) or not challenged(machine.proof):
        return _Shown(gpus, verdict, None)
    if not await _step(world, machine, Step.GPUS_VERIFIED, token, proving.HELD_FOR):
        return None
    answer = await proving.challenge(world, session, machine, Occasion.START)
    proof = proving.challenged(machine, token, answer, proof_id=world.new_id())
    return _Shown(gpus, verdict, proof)


async def _step(world: MachineWorld, machine: Machine, step: Step, token: UUID, held_for: timedelta) -> bool:
    """Note a step and hold the machine on; False when another worker has it."""
    now = world.now()
    async with world.db.statement() as connection:
        return await machines.record_step(
            connection, machine.id, step, token=token, now=now, until=now + held_for
        )


def _verdict(world: MachineWorld, machine: Machine, gpus: GpuReport) -> Verified | Mismatch:
    """The reading held against what was ordered."""
    return verification.verify(
        machine.gpu_model,
        machine.gpu_count,
        [Reading(gpu.name, gpu.uuid, gpu.memory_mib, gpu.sharing) for gpu in gpus.gpus],
        emulated=gpus.source == "emulated",
        accept_emulated=world.accept_emulated,
    )


async def _record(world: MachineWorld, machine: Machine, shown: _Shown) -> None:
    gpus = json.dumps(asdict(shown.gpus), sort_keys=True)
    reading = Verification(world.new_id(), shown.gpus.source, gpus)
    actor, now = world.actor(NAME), world.now()
    async with world.db.transaction() as connection:
        if isinstance(shown.verdict, Mismatch):
            why = f"{shown.verdict.code}: {shown.verdict.why}"
            await outcomes.mismatched(connection, machine, reading, why=why, actor=actor, now=now)
        elif shown.proof is None:
            await outcomes.verified(connection, machine, reading, actor=actor, now=now)
        else:
            await challenges.while_being_set_up(
                connection, shown.proof, reading, chance=world.chance(), actor=actor, now=now
            )


async def _wait_for_our_verifier(world: MachineWorld, machine: Machine, token: UUID) -> None:
    """No strike and no failed try; the time that we cost the machine is given back, up to a bound."""
    now = world.now()
    patient = machine.asked_at is not None and now - machine.asked_at < VERIFIER_PATIENCE
    async with world.db.statement() as connection:
        await machines.postpone(
            connection,
            machine.id,
            token=token,
            due_at=now + VERIFIER_AGAIN,
            deadline_at=now + HELD_FOR if patient else None,
        )


async def _try_again_or_fail(world: MachineWorld, machine: Machine, error: AccessError, token: UUID) -> None:
    now = world.now()
    failure = patience.failure(error, machine.tries)
    async with world.db.transaction() as connection:
        if failure is not None:
            await outcomes.fail(connection, machine.id, failure, actor=world.actor(NAME), now=now)
            return
        due_at = patience.next_try(machine.tries, now)
        await machines.retry(connection, machine.id, token=token, due_at=due_at)


LOOP = AccountLoop(
    NAME,
    timedelta(seconds=1),
    activate,
    lasts=proving.HELD_FOR,
    wakes=("admit_customers", "place_leases", "terminate_machines"),
    lanes=LANES,
)
