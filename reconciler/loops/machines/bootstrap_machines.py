"""Makes a running machine a leased one: private network, GPUs read and proven, keys. Only then READY, and the bill.

The machine's identity is known before first contact, so whoever answers with another host key is
refused. A booting machine may show its image's own key or no user for a while, so early refusals
are tried again; later they are final. Every step can be repeated, and the whole is: a crash anywhere
leaves a claim that expires, and the next worker begins again.

A machine whose GPUs are not what was sold is ended at once, with the reading as evidence, and the
lease moves on to the next candidate. That reading is the machine's own word. Where the SKU demands more,
the GPUs are challenged on the same session (`reconciler/proving.py`), and only a passed proof makes the
lease READY; a second failure in a row sends it to the next candidate. When our own verifier is away no
machine can be blamed: it waits, and its patience with it.

The customer's keys come last: nobody is on a machine that was not found to be what was sold, and a
proof has the GPUs to itself. If they cannot be installed the whole is done again, the proof included.
"""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import machines, leases, proofs
from control_plane.domain import proof
from control_plane.domain.backoff import delay
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import FailReason, Machine, MachineEvent, MachineState, Step
from control_plane.domain.lease import Lease
from control_plane.domain.sku import Shape
from control_plane.domain.verification import Mismatch, Reading, Verified, verify
from control_plane.services import attempts, challenges
from control_plane.services.attempts import Verification
from control_plane.services.challenges import Challenged
from data_plane.access.port import AccessError, GpuReport, HostKeyChanged, Session, StepFailed, Target
from data_plane.proof.port import VerifierAway
from reconciler import network, proving
from reconciler.loop import AccountLoop, Report, World, each

NAME = "bootstrap_machines"
MACHINES_PER_ACTIVATION_MAX = 16
LANES = 4
"""Beside each other, because a proof takes a minute and a hung one five."""
CLAIM = timedelta(seconds=90)
"""Longer than any one step may take; every step renews it, and the proof holds it longer (`proving.CLAIM`).
How long a machine waits when its worker dies."""
VERIFIER_PATIENCE = timedelta(hours=1)
"""How long after its order a machine waits for our own verifier. Then its deadline counts again."""
VERIFIER_AGAIN = timedelta(seconds=20)
RETRY_FIRST = timedelta(seconds=1)
RETRY_CEILING = timedelta(seconds=15)
STEP_TRIES_MAX = 5
STRANGE_KEY_TRIES_MAX = 10
"""How often another host key is met with patience: cloud-init replaces the image's key during boot."""


async def activate(world: World, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        reachable = await machines.claim(
            connection,
            account,
            MachineState.BOOTSTRAPPING,
            token=token,
            until=now + CLAIM,
            now=now,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
        of = await leases.read(connection, [one.lease_id for one in reachable]) if reachable else {}
    report = Report(looked_at=len(reachable), more=len(reachable) == MACHINES_PER_ACTIVATION_MAX)
    await each(
        reachable, lambda machine: _bootstrap(world, machine, of[machine.lease_id], token, report), report
    )
    return report


async def _bootstrap(world: World, machine: Machine, lease: Lease, token: UUID, report: Report) -> None:
    if machine.address is None or machine.host_key is None:
        raise ValueError(f"{machine.id} is reachable without an address or a host key")
    target = Target(machine.address, machine.ssh_port, machine.host_key)
    try:
        async with world.access.connect(target) as session:
            gpus = await _set_up(world, machine, session, token)
            if gpus is None:
                return
            verdict = _judged(world, lease, gpus)
            as_sold, shown = isinstance(verdict, Verified), None
            if as_sold and proof.challenged(lease.proof):
                shown = await _challenge(world, machine, lease, session, token)
                if shown is None:
                    return
                as_sold = proof.makes(shown.result, lease.proof)
            if as_sold and not await _admit(world, machine, lease, session, token):
                return
    except AccessError as error:
        await _try_again_or_fail(world, machine, error, token)
        report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
        return
    except VerifierAway as error:
        await _wait_for_our_verifier(world, machine, token)
        report.errors.append(f"{machine.launch_key}: our verifier is away: {error}")
        return
    await _record(world, machine, gpus, verdict, shown)
    report.acted_on += 1


async def _set_up(world: World, machine: Machine, session: Session, token: UUID) -> GpuReport | None:
    """The steps in their order; None when another worker took the machine over meanwhile."""
    if not await _step(world, machine, Step.CONNECTED, token):
        return None
    public_key = await session.mesh_public_key()
    if not await _step(world, machine, None, token):
        return None
    mesh_link = await network.join(world, machine.organization_id, machine.id, public_key)
    if not await _step(world, machine, None, token):
        return None
    await session.join_mesh(mesh_link)
    if not await _step(world, machine, Step.MESH_JOINED, token):
        return None
    return await session.read_gpus(world.agent)


async def _step(
    world: World, machine: Machine, step: Step | None, token: UUID, *, claim: timedelta = CLAIM
) -> bool:
    """Note a step and hold the claim on; False when another worker has it."""
    async with world.db.statement() as connection:
        now = world.now()
        return await machines.record_step(
            connection, machine.id, step, token=token, now=now, until=now + claim
        )


def _judged(world: World, lease: Lease, gpus: GpuReport) -> Verified | Mismatch:
    """The reading held against what was sold."""
    sold = Shape(GpuModel(lease.gpu_model), lease.gpu_count, vcpus=0, memory_gib=0, disk_gib=0)
    return verify(
        sold,
        [Reading(gpu.name, gpu.uuid, gpu.memory_mib, gpu.sharing) for gpu in gpus.gpus],
        emulated=gpus.source == "emulated",
        accept_emulated=world.accept_emulated,
    )


async def _challenge(
    world: World, machine: Machine, lease: Lease, session: Session, token: UUID
) -> Challenged | None:
    """The GPUs' proof; None when another worker took the machine over meanwhile."""
    if not await _step(world, machine, Step.GPUS_VERIFIED, token, claim=proving.CLAIM):
        return None
    shown = await proving.challenge(world, session, lease, proof.Occasion.START)
    return proving.challenged(machine, token, shown, proof_id=world.new_id(), now=world.now())


async def _admit(world: World, machine: Machine, lease: Lease, session: Session, token: UUID) -> bool:
    """Let the customer in; False when another worker took the machine over meanwhile."""
    step = Step.GPUS_PROVEN if proof.challenged(lease.proof) else Step.GPUS_VERIFIED
    if not await _step(world, machine, step, token):
        return False
    await session.install_keys(lease.authorized_keys)
    return True


async def _record(
    world: World, machine: Machine, gpus: GpuReport, verdict: Verified | Mismatch, shown: Challenged | None
) -> None:
    reading = Verification(world.new_id(), gpus.source, json.dumps(asdict(gpus), sort_keys=True))
    actor, now = world.actor(NAME), world.now()
    async with world.db.transaction() as connection:
        if isinstance(verdict, Mismatch):
            why = f"{verdict.code}: {verdict.why}"
            await attempts.mismatched(connection, machine, reading, why=why, actor=actor, now=now)
        elif shown is None:
            await attempts.verified(connection, machine, reading, actor=actor, now=now)
        else:
            await challenges.while_being_set_up(
                connection, shown, reading, chance=world.chance(), actor=actor, now=now
            )


async def _wait_for_our_verifier(world: World, machine: Machine, token: UUID) -> None:
    """No strike and no failed try; the time we cost the machine is given back, up to a bound."""
    now = world.now()
    patient = machine.asked_at is not None and now - machine.asked_at < VERIFIER_PATIENCE
    async with world.db.statement() as connection:
        await proofs.again(
            connection,
            machine.id,
            token=token,
            due_at=now + VERIFIER_AGAIN,
            deadline_at=now + CLAIM if patient else None,
        )


async def _try_again_or_fail(world: World, machine: Machine, error: AccessError, token: UUID) -> None:
    now = world.now()
    final = _final(machine, error)
    async with world.db.transaction() as connection:
        if final is not None:
            await attempts.fail(
                connection, machine.lease_id, machine.id, final, actor=world.actor(NAME), now=now
            )
            return
        await machines.retry(connection, machine.id, token=token, due_at=_next_try(machine, now))


def _final(machine: Machine, error: AccessError) -> attempts.Failed | None:
    """Whether this error ends the attempt. Silence does not: the deadline does (expire_machines)."""
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, HostKeyChanged) and machine.tries + 1 >= STRANGE_KEY_TRIES_MAX:
        return attempts.Failed(MachineEvent.FAILED, FailReason.HOST_KEY_CHANGED, why)
    if isinstance(error, StepFailed) and machine.tries + 1 >= STEP_TRIES_MAX:
        return attempts.Failed(MachineEvent.FAILED, FailReason.SETUP_FAILED, why)
    return None


def _next_try(machine: Machine, now: datetime) -> datetime:
    return now + delay(machine.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)


LOOP = AccountLoop(
    NAME,
    timedelta(seconds=1),
    activate,
    lasts=proving.CLAIM,
    wakes=("place_leases", "terminate_machines"),
    lanes=LANES,
)
