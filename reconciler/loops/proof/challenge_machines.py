"""Challenges the GPUs of verified machines while they are idle, at unpredictable times.

A proof holds for one moment: a provider could present a whole card when a machine starts, and take half of it away
later. So every proven machine is challenged again every few hours, at random. Customers who compute are not
disturbed: busy GPUs are looked at again later, and a challenge during which the customer began to compute does not
count if it found only late or missing answers. A wrong answer is always a failure. On a machine without an admitted
customer, nothing excuses busy GPUs.

Terminating a machine takes its customer's work away (law 5), so it needs two failures in a row. One run
terminates only a few machines, and a dry run none. While many machines of an account fail at once, none is
terminated until an operator permits it, because our references or our verifier are then the likelier cause.
The reason and the proof are stored. A machine that cannot be reached has not failed: it is looked at again.
"""

import asyncio
import dataclasses
from datetime import timedelta
from uuid import UUID

from control_plane.db import challenges
from control_plane.domain import proof
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine
from control_plane.domain.proof import Drop, Held, Load, OwnCode
from control_plane.outcomes import challenges as outcomes
from control_plane.outcomes.challenges import Challenged
from data_plane.access.port import AccessError, Session, StepFailed, Target
from data_plane.inspection.health import HealthReport, read_health
from data_plane.proof.challenger import port
from data_plane.proof.challenger.judgement import BY_LOAD
from data_plane.proof.challenger.port import Finding, ProofReport
from data_plane.proof.verifier.jobs import VerifierAway
from reconciler import proving
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.proof import ProofWorld

NAME = "challenge_machines"
MACHINES_PER_ACTIVATION_MAX = 8
"""Only a few, because each is held for minutes, and no challenge is urgent."""
UNREACHABLE_AGAIN = timedelta(minutes=5)


async def activate(world: ProofWorld, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        due = await challenges.take_due(
            connection,
            account,
            token=token,
            until=now + proving.HELD_FOR,
            now=now,
            limit=MACHINES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == MACHINES_PER_ACTIVATION_MAX)
    run = _Run(world, token, report)
    await each(due, run.challenge, report)
    return report


@dataclasses.dataclass
class _Run:
    """The state that the machines of one activation share."""

    world: ProofWorld
    token: UUID
    report: Report
    ended: int = 0
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """Machines are judged one after the other, so that each judgement counts the terminations before it."""

    async def challenge(self, machine: Machine) -> None:
        if machine.address is None or machine.host_key is None:
            raise ValueError(f"{machine.id} is verified without an address or a host key")
        target = Target(machine.address, machine.ssh_port, machine.host_key, machine.launch_key)
        try:
            async with self.world.access.connect(target) as session:
                report = await self._report(session, machine)
        except AccessError as error:
            await self._put_off(machine, UNREACHABLE_AGAIN)
            self.report.notes.append(f"{machine.launch_key}: {type(error).__name__}: {error}")
            return
        except VerifierAway as error:
            await self._put_off(machine, UNREACHABLE_AGAIN)
            self.report.errors.append(f"{machine.launch_key}: our verifier is away: {error}")
            return
        if report is None:
            await self._put_off(machine, proof.BUSY_POSTPONED)
            return
        await self._record(proving.challenged(machine, self.token, report, proof_id=self.world.new_id()))

    async def _report(self, session: Session, machine: Machine) -> ProofReport | None:
        """The report of the machine's challenge; None while its customer computes."""
        occasion = proof.next_occasion(machine.record)
        if await self._occupied(machine):
            try:
                if await self._busy(session) is not None:
                    return None
            except (StepFailed, TimeoutError) as error:
                # It is unknown whether the customer computes, so the machine is not challenged. But it is reachable and
                # should have reported its health, so this counts as unanswered.
                return proving.unanswered(occasion, OwnCode.NO_HEALTH, str(error), 0.0)
        report = await proving.challenge(self.world, session, machine, occasion)
        if report.outcome is port.Outcome.PASSED or not _explained_by_load(report):
            return report
        if not await self._occupied(machine):
            return report
        try:
            disturbed = await self._busy(session)
        except (AccessError, TimeoutError):
            return report  # Still a failure when the machine's driver or its connection failed too.
        return report if disturbed is None else _disturbed(report, disturbed)

    async def _occupied(self, machine: Machine) -> bool:
        async with self.world.db.reading() as connection:
            return await outcomes.occupied(connection, machine.id)

    async def _busy(self, session: Session) -> str | None:
        """Why the customer must not be disturbed now. Raises AccessError, TimeoutError."""
        async with asyncio.timeout(proving.LOOK_SECONDS):
            return _load(await read_health(session, self.world.agent))

    async def _put_off(self, machine: Machine, after: timedelta) -> None:
        actor, now = self.world.actor(NAME), self.world.now()
        async with self.world.db.transaction() as connection:
            await outcomes.put_off(connection, machine, self.token, after, actor=actor, now=now)

    async def _record(self, challenged: Challenged) -> None:
        async with self.turn, self.world.db.transaction() as connection:
            decision = await outcomes.while_in_use(
                connection,
                challenged,
                chance=self.world.chance(),
                ended=self.ended,
                dry_run=self.world.proof_dry_run,
                actor=self.world.actor(NAME),
                now=self.world.now(),
            )
            self.ended += isinstance(decision, Drop)
        if decision is not None:
            self.report.acted_on += 1
        key = challenged.machine.launch_key
        match decision:
            case Drop(why=why):
                self.report.notes.append(f"{key}: terminated, {why}")
            case Held(why=why):
                self.report.errors.append(f"{key}: failed its GPU proof and is not terminated: {why}")
            case _:
                pass


def _load(health: HealthReport) -> str | None:
    return proof.busy([Load(gpu.lost, gpu.processes, gpu.utilisation_percent) for gpu in health.gpus])


def _explained_by_load(report: ProofReport) -> bool:
    """Whether a computing customer could be the cause of all findings.

    A wrong answer never counts as such: otherwise a cheating machine need only claim that its customer computes.
    """
    return {finding.code for finding in report.findings} <= {*BY_LOAD, OwnCode.NO_PROVER, OwnCode.NO_END}


def _disturbed(report: ProofReport, why: str) -> ProofReport:
    """The report of a challenge that the customer's own work may have disturbed, so that it does not count."""
    finding = Finding(OwnCode.DISTURBED.value, None, f"the GPUs were in use when it ended: {why}")
    return dataclasses.replace(report, outcome=port.Outcome.UNANSWERED, findings=(finding, *report.findings))


LOOP = AccountLoop(
    NAME,
    timedelta(seconds=30),
    activate,
    lasts=proving.HELD_FOR,
    wakes=("terminate_machines", "meter_usage"),
)
