"""Verifies machines that have booted: connects, reads the GPUs, checks the reading, has the GPUs proven, records.

The machine's SSH host key is known before first contact, so a host with another key is refused. A booting machine
may present its image's own key or lack our user for a while, so early refusals are tried again; later ones are
final. All steps can be repeated: when a worker dies, its hold on the machine expires, and the next worker starts
again from the first step.

A machine whose GPUs are not what was ordered is given up at once, with the reading as evidence, and its lease tries
another one. But a reading is only what the machine reports about itself. Where the SKU demands proof, the GPUs are
challenged in the same session (`reconciler/proving.py`), and only a passed proof makes the machine verified; after a
second failure in a row it is given up. When our own verifier is unavailable, no machine is to blame: the machine
waits, and its deadline moves on. The same goes for our SSH authority.

First of all, every key that the provider or the image installed is deleted, and sshd is asked whether it accepts our
certificates and nothing else.

A machine that was bought without GPUs has nothing to read and nothing to prove, which its journal says
(`proof_skipped`). What a node claims of them is compared in its cluster.

No customer has access yet, so a proof has the GPUs to itself, and its consequences are decided in the transaction
that stores it. admit_customers then admits customers, to verified machines only.
"""

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from control_plane.db import machines, mesh
from control_plane.domain import verification
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine, MachineState, Purpose
from control_plane.domain.progress import Step
from control_plane.domain.proof import Occasion, challenged
from control_plane.domain.verification import Mismatch, Reading, Verified
from control_plane.outcomes import challenges
from control_plane.outcomes import machines as outcomes
from control_plane.outcomes.challenges import Challenged
from control_plane.outcomes.machines import Verification
from data_plane.access.login import close_other_logins
from data_plane.access.port import AccessError, NotCertified, Session, Target
from data_plane.inspection.gpus import GpuReport, read_gpus
from data_plane.mesh.firewall import apply_firewall
from data_plane.mesh.machine import warm_mesh
from data_plane.proof.verifier.jobs import VerifierAway
from reconciler import patience, proving, ssh_trust, traced
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld
from tracing.tracer import Kind

NAME = "bootstrap_machines"
MACHINES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Several, because a proof takes a minute, and one that hangs takes five."""
HELD_FOR = timedelta(seconds=90)
"""Longer than any single step may take; every step renews it, and a proof holds the machine for longer
(`proving.HELD_FOR`). A machine waits this long when its worker dies."""
OURS_AGAIN = timedelta(seconds=20)


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
        steps = await traced.of_machines(world, connection, NAME, [machine.id for machine in reachable])
    report = Report(looked_at=len(reachable), more=len(reachable) == MACHINES_PER_ACTIVATION_MAX)
    await each(
        reachable,
        lambda machine: steps.around(machine.id, _bootstrap(world, machine, token, report)),
        report,
    )
    return report


@dataclass(frozen=True, slots=True)
class _Examination:
    """What a machine reported and proved about its GPUs."""

    gpus: GpuReport
    verdict: Verified | Mismatch
    proof: Challenged | None
    """None when the reading alone decides."""


@dataclass(frozen=True, slots=True)
class _NoGpus:
    """The machine was bought without GPUs, and is what was ordered as soon as it is ours alone."""


async def _bootstrap(world: MachineWorld, machine: Machine, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.id} is reachable without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
    try:
        with world.tracer.span("machine session", Kind.CLIENT):
            async with world.access.connect(target) as session:
                examination = await _examine(world, machine, session, token)
    except NotCertified as error:
        await _wait_for_us(world, machine, token)
        report.errors.append(f"{machine.launch_key}: {error}")
        return
    except AccessError as error:
        await _try_again_or_fail(world, machine, error, token)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    except VerifierAway as error:
        await _wait_for_us(world, machine, token)
        report.errors.append(f"{machine.launch_key}: our verifier is away: {error}")
        return
    if examination is not None:
        await _record(world, machine, examination)
        report.acted_on += 1


async def _examine(
    world: MachineWorld, machine: Machine, session: Session, token: UUID
) -> _Examination | _NoGpus | None:
    """Read, judge and prove the GPUs, where there are any; None when another worker took the machine over meanwhile."""
    if not await _step(world, machine, Step.CONNECTED, token, HELD_FOR):
        return None
    await close_other_logins(session)
    await ssh_trust.tell(world, session, machine.id)
    await _warm_up(world, machine, session)
    if machine.gpu_model is None:
        return _NoGpus()
    with world.tracer.span("read GPUs"):
        gpus = await read_gpus(session, world.agent)
    verdict = _verdict(world, machine.gpu_model, machine.gpu_count, gpus)
    if isinstance(verdict, Mismatch) or not challenged(machine.proof):
        return _Examination(gpus, verdict, None)
    if not await _step(world, machine, Step.GPUS_VERIFIED, token, proving.HELD_FOR):
        return None
    with world.tracer.span("prove GPUs"):
        answer = await proving.challenge(world, session, machine, Occasion.START)
    proof = proving.challenged(machine, token, answer, proof_id=world.new_id())
    return _Examination(gpus, verdict, proof)


async def _warm_up(world: MachineWorld, machine: Machine, session: Session) -> None:
    """Do on a machine of a pool what does not depend on whose it will be, because that customer will wait for the rest.

    Its ports are closed, it has the packages, and its key and an empty interface for a private network. The ports are
    closed again when a customer is admitted. Its public key is kept, so that the hub learns it while we log in then.
    """
    if machine.purpose is not Purpose.POOL:
        return
    await apply_firewall(session, (), ssh_port=machine.ssh_port)
    public_key = await warm_mesh(session)
    async with world.db.statement() as connection:
        await mesh.keep_key(connection, machine.id, public_key)


async def _step(world: MachineWorld, machine: Machine, step: Step, token: UUID, held_for: timedelta) -> bool:
    """Store a step and extend the hold on the machine; False when another worker holds it."""
    now = world.now()
    async with world.db.statement() as connection:
        return await machines.record_step(
            connection, machine.id, step, token=token, now=now, until=now + held_for
        )


def _verdict(world: MachineWorld, model: GpuModel, count: int, gpus: GpuReport) -> Verified | Mismatch:
    """Compare the reading with the GPUs that were ordered."""
    return verification.verify(
        model,
        count,
        [Reading(gpu.name, gpu.uuid, gpu.memory_mib, gpu.sharing) for gpu in gpus.gpus],
        emulated=gpus.source == "emulated",
        accept_emulated=world.accept_emulated,
    )


async def _record(world: MachineWorld, machine: Machine, examination: _Examination | _NoGpus) -> None:
    if isinstance(examination, _NoGpus):
        async with world.db.transaction() as connection:
            await outcomes.verified(connection, machine, None, actor=world.actor(NAME), now=world.now())
        return
    gpus = json.dumps(asdict(examination.gpus), sort_keys=True)
    reading = Verification(world.new_id(), examination.gpus.source, gpus)
    actor, now = world.actor(NAME), world.now()
    async with world.db.transaction() as connection:
        if isinstance(examination.verdict, Mismatch):
            why = f"{examination.verdict.code}: {examination.verdict.why}"
            await outcomes.mismatched(connection, machine, reading, why=why, actor=actor, now=now)
        elif examination.proof is None:
            await outcomes.verified(connection, machine, reading, actor=actor, now=now)
        else:
            await challenges.while_being_set_up(
                connection, examination.proof, reading, chance=world.chance(), actor=actor, now=now
            )


async def _wait_for_us(world: MachineWorld, machine: Machine, token: UUID) -> None:
    """Our verifier or our SSH authority is away. Neither a strike nor a failed try, so its deadline moves on meanwhile
    (`domain/deadline.py`).
    """
    async with world.db.statement() as connection:
        await machines.postpone(connection, machine.id, token=token, due_at=world.now() + OURS_AGAIN)


async def _try_again_or_fail(world: MachineWorld, machine: Machine, error: AccessError, token: UUID) -> None:
    now = world.now()
    failure = patience.failure(error, machine.tries)
    async with world.db.transaction() as connection:
        if failure is not None:
            await outcomes.fail(
                connection, machine.id, failure, actor=world.actor(NAME), now=now, seen=machine.generation
            )
            return
        due_at = patience.next_try(machine.tries, now)
        await machines.retry(connection, machine.id, token=token, now=now, due_at=due_at)


LOOP = AccountLoop(
    NAME,
    timedelta(seconds=1),
    activate,
    lasts=proving.HELD_FOR,
    wakes=("admit_customers", "place_leases", "terminate_machines"),
    lanes=LANES,
)
