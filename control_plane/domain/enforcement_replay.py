"""Plays a recorded incident against the rules of enforcement: which decisions they would have led to.

It decides by the same functions as the loop `enforce_rules`, over values in memory instead of rows. The same incident
and the same rules give the same decisions, byte for byte, so that rules can be tried on what has happened.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.domain import detection
from control_plane.domain.detection import Watch
from control_plane.domain.enforcement import (
    Case,
    Close,
    Detector,
    Finding,
    FindingOutcome,
    Open,
    Present,
    StopMachine,
    Symptom,
    Take,
    Taken,
    WatchedLease,
    next_step,
)
from control_plane.domain.enforcement_rules import EnforcementRules
from control_plane.domain.enforcement_run import Run, Wanted, in_order
from control_plane.domain.ids import ClaimId, EnforcementActionId, FindingId
from control_plane.domain.throughput import Sampled, Usual

EVERY = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A lease of an incident, with what was known of it."""

    lease: WatchedLease
    samples: Sequence[Sampled] = ()
    """The oldest first."""
    own: Sequence[tuple[datetime, Detector, Symptom]] = ()
    """What our own rows said about it, from a moment on."""
    usual: Usual = field(default_factory=lambda: Usual({}))
    idle_stop: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A line of a replay."""

    at: datetime
    lease_id: UUID
    detector: Detector
    did: str
    """`found`, an action, `stopped`, or `closed`."""
    why: str
    expires_at: datetime | None = None
    planned_at: datetime | None = None
    outcome: FindingOutcome | None = None


def replay(
    incident: Sequence[Recorded], rules: EnforcementRules, began: datetime, ended: datetime
) -> list[Decision]:
    """The decisions about these leases between two moments, with every detector armed."""
    player = _Player(incident, rules)
    now = began
    while now <= ended:
        player.play(now)
        now += EVERY
    return player.decisions


class _Player:
    def __init__(self, incident: Sequence[Recorded], rules: EnforcementRules) -> None:
        self._incident, self._rules = incident, rules
        self._findings: dict[tuple[ClaimId, Detector], Finding] = {}
        self._muted_until: dict[tuple[ClaimId, Detector], datetime] = {}
        customers = {(recorded.lease.place, recorded.lease.organization_id) for recorded in incident}
        self._customers = Counter(place for place, _ in customers)
        self._made = 0
        self.decisions: list[Decision] = []

    def play(self, now: datetime) -> None:
        """One activation of the loop."""
        cases = [case for recorded in self._incident for case in self._cases(recorded, now)]
        showing = {(case.lease.place, case.detector, case.lease.organization_id) for case in cases}
        affected = Counter((*place, detector) for place, detector, _ in showing)
        wanted = [found for case in cases if (found := self._decided(case, now)) is not None]
        run = Run(self._rules.ladders.bounds, self._customers, affected)
        for each in in_order(wanted):
            held = run.held_back(each)
            if held is None:
                self._act(each.case, each.step, now)

    def _cases(self, recorded: Recorded, now: datetime) -> list[Case]:
        lease, rules = recorded.lease, self._rules
        own = {
            detector: finding
            for (claim_id, detector), finding in self._findings.items()
            if claim_id == lease.claim_id
        }
        samples = [sample for sample in recorded.samples if sample.at <= now]
        reads = detection.read_by(samples[-1] if samples else None, own, recorded.usual, rules, now)
        watch = Watch(samples, recorded.usual, recorded.idle_stop)
        begun = {detector: finding.since for detector, finding in own.items()}
        symptoms = detection.sample_symptoms(watch, reads, begun, rules, now)
        symptoms |= {detector: symptom for at, detector, symptom in recorded.own if at <= now}
        return [
            Case(
                lease,
                detector,
                symptom,
                own.get(detector),
                self._muted_until.get((lease.claim_id, detector)),
            )
            for detector, symptom in symptoms.items()
            if detector in own or isinstance(symptom, Present)
        ]

    def _decided(self, case: Case, now: datetime) -> Wanted | None:
        step = next_step(case, self._rules.ladders, now)
        if isinstance(step, Open):
            present = step.present
            new = FindingId(self._id())
            finding = Finding(new, case.detector, case.lease.claim_id, now, present.since, now, None)
            self._findings[case.lease.claim_id, case.detector] = finding
            self._say(case, now, "found", present.why)
            case = replace(case, finding=finding)
            step = next_step(case, self._rules.ladders, now)
        if isinstance(step, Close):
            del self._findings[case.lease.claim_id, case.detector]
            self.decisions.append(
                Decision(now, case.lease.lease_id, case.detector, "closed", step.why, outcome=step.outcome)
            )
        return Wanted(case, step) if isinstance(step, Take | StopMachine) else None

    def _act(self, case: Case, step: Take | StopMachine, now: datetime) -> None:
        key, finding = (case.lease.claim_id, case.detector), case.finding
        if finding is None:
            return
        if isinstance(step, StopMachine):
            del self._findings[key]
            mute = timedelta(seconds=self._rules.ladders.bounds.mute_seconds)
            self._muted_until[key] = now + mute
            self._say(case, now, "stopped", step.present.why)
            return
        made = EnforcementActionId(self._id())
        taken = Taken(made, step.action, now, step.expires_at, step.planned_at, None)
        self._findings[key] = replace(finding, taken=taken, step_at=finding.step_at if step.again else now)
        self._say(
            case,
            now,
            step.action.value,
            step.present.why,
            expires_at=step.expires_at,
            planned_at=step.planned_at,
        )

    def _say(
        self,
        case: Case,
        now: datetime,
        did: str,
        why: str,
        *,
        expires_at: datetime | None = None,
        planned_at: datetime | None = None,
    ) -> None:
        self.decisions.append(
            Decision(now, case.lease.lease_id, case.detector, did, why, expires_at, planned_at)
        )

    def _id(self) -> UUID:
        self._made += 1
        return UUID(int=self._made)
