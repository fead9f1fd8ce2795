"""Challenges the GPUs of machines that customers have, at times that nobody can foresee, while they are idle.

A proof is of a moment: a provider could show a whole card when the lease starts and take half of it away
afterwards. So every proven machine is asked again, every few hours, at random. Nobody who computes is
disturbed: busy GPUs are looked at again later, and a challenge during which the customer began to compute
counts for nothing if all that was found is late answers or silence. A wrong answer is a failure all the same.

Ending a machine takes its customer's work away (law 5). It needs two failures in a row with no pass between
them; at most a few per run; none while many machines of the account fail at once, since then our references
or our verifier are the likelier cause, until a person has looked; none in a dry run. The reason and the proof
are stored. Losing contact is no failure: a machine that cannot be reached is looked at again.
"""

import asyncio
import dataclasses
from datetime import timedelta
from uuid import UUID

from control_plane.db import leases, proofs
from control_plane.domain import proof
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine
from control_plane.domain.lease import Lease
from control_plane.domain.proof import Drop, Held, Load, Occasion, OwnCode, Record
from control_plane.services import challenges
from control_plane.services.challenges import Challenged
from data_plane.access.port import AccessError, HealthReport, Session, StepFailed, Target
from data_plane.proof import port
from data_plane.proof.judgement import BY_LOAD
from data_plane.proof.port import Finding, ProofReport, VerifierAway
from reconciler import proving
from reconciler.loop import AccountLoop, Report, World, each

NAME = "challenge_machines"
MACHINES_PER_ACTIVATION_MAX = 8
"""Few: each is held for minutes, and no challenge is urgent."""
UNREACHABLE_AGAIN = timedelta(minutes=5)


async def activate(world: World, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        due = await proofs.claim_due(
            connection,
            account,
            token=token,
            until=now + proving.CLAIM,
            now=now,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
        of = await leases.read(connection, [one.lease_id for one in due]) if due else {}
        known = {one.id: await proofs.record(connection, one.id) for one in due}
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    run = _Run(world, token, report)
    await each(due, lambda machine: run.look(machine, of[machine.lease_id], known[machine.id]), report)
    return report


@dataclasses.dataclass
class _Run:
    """One activation: what its machines share."""

    world: World
    token: UUID
    report: Report
    ended: int = 0
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """Machines are judged one after the other, so that each sees how many were ended before it."""

    async def look(self, machine: Machine, lease: Lease, known: Record) -> None:
        if machine.address is None or machine.host_key is None:
            raise ValueError(f"{machine.id} is verified without an address or a host key")
        target = Target(machine.address, machine.ssh_port, machine.host_key)
        try:
            async with self.world.access.connect(target) as session:
                shown = await self._ask(session, machine, lease, proof.next_occasion(known))
        except AccessError as error:
            await self._put_off(machine, known, UNREACHABLE_AGAIN)
            self.report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
            return
        except VerifierAway as error:
            await self._put_off(machine, known, UNREACHABLE_AGAIN)
            self.report.errors.append(f"{machine.launch_key}: our verifier is away: {error}")
            return
        if shown is None:
            await self._put_off(machine, known, proof.BUSY_POSTPONED)
            return
        await self._record(shown)

    async def _ask(
        self, session: Session, machine: Machine, lease: Lease, occasion: Occasion
    ) -> Challenged | None:
        """What the machine shows; None while it is busy."""
        shown = await self._shown(session, lease, occasion)
        if shown is None:
            return None
        return proving.challenged(
            machine, self.token, shown, proof_id=self.world.new_id(), now=self.world.now()
        )

    async def _shown(self, session: Session, lease: Lease, occasion: Occasion) -> ProofReport | None:
        try:
            async with asyncio.timeout(proving.LOOK_SECONDS):
                if _busy(await session.read_health(self.world.agent)) is not None:
                    return None
        except (StepFailed, TimeoutError) as error:
            # Whether its customer computes is not known, so it is not challenged; but it can be reached, and owes us
            # an answer.
            return proving.unanswered(port.Occasion(occasion.value), OwnCode.NO_HEALTH, str(error), 0.0)
        shown = await proving.challenge(self.world, session, lease, occasion)
        if shown.outcome is port.Outcome.PASSED or not _may_be_by_load(shown):
            return shown
        try:
            async with asyncio.timeout(proving.LOOK_SECONDS):
                disturbed = _busy(await session.read_health(self.world.agent))
        except (AccessError, TimeoutError):
            return shown  # A failure that takes the machine's driver or its line with it is one all the same.
        return shown if disturbed is None else _disturbed(shown, disturbed)

    async def _put_off(self, machine: Machine, known: Record, after: timedelta) -> None:
        actor, now = self.world.actor(NAME), self.world.now()
        async with self.world.db.transaction() as connection:
            await challenges.put_off(connection, machine, self.token, known, after, actor=actor, now=now)

    async def _record(self, shown: Challenged) -> None:
        async with self.turn, self.world.db.transaction() as connection:
            decided = await challenges.while_in_use(
                connection,
                shown,
                chance=self.world.chance(),
                ended=self.ended,
                dry_run=self.world.proof_dry_run,
                actor=self.world.actor(NAME),
                now=self.world.now(),
            )
            self.ended += isinstance(decided, Drop)
        if decided is not None:
            self.report.acted_on += 1
        key = shown.machine.launch_key
        match decided:
            case Drop(why=why):
                self.report.notes.append(f"{key}: ended, {why}")
            case Held(why=why):
                self.report.errors.append(f"{key}: failed its GPU proof and is not ended: {why}")
            case _:
                pass


def _busy(health: HealthReport) -> str | None:
    return proof.busy([Load(gpu.lost, gpu.processes, gpu.utilisation_percent) for gpu in health.gpus])


def _may_be_by_load(shown: ProofReport) -> bool:
    """A wrong answer is not: else a machine that is caught would only have to say that its customer computes."""
    return {finding.code for finding in shown.findings} <= {*BY_LOAD, OwnCode.NO_PROVER, OwnCode.NO_END}


def _disturbed(shown: ProofReport, why: str) -> ProofReport:
    """A challenge that the customer's own work may have spoilt says nothing of the machine."""
    finding = Finding(OwnCode.DISTURBED.value, None, f"the GPUs were in use when it ended: {why}")
    return dataclasses.replace(shown, outcome=port.Outcome.UNANSWERED, findings=(finding, *shown.findings))


LOOP = AccountLoop(
    NAME, timedelta(seconds=30), activate, lasts=proving.CLAIM, wakes=("end_machines", "meter_usage")
)
