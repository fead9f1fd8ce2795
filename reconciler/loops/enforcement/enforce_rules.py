"""Finds conditions of leases that run, and takes the next action about each (`control_plane/domain/enforcement.py`).

Detectors read the samples of the machine, and what other loops stored about the lease: envelope warnings, funding
warnings, broken promises. A window of samples is read only where the last sample is suspicious or a finding is open, so
a fleet without conditions costs a few queries a page.

What a detector that no operator armed would do is stored, and not done. Actions are taken in one order over all leases,
with a bound per run and per region; what has no room waits for the next run. Each finding and each action is a
transaction, so a run has a bound of these too, also where nothing else holds them back: when thousands of leases are in
the same trouble, their notices go out over several runs, one right after the other.

Machines of customers write samples, so what fails about one lease is an error of the report, and the others are served.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from control_plane.db import conditions, enforcement, holds, organizations
from control_plane.db.conditions import Hour, Watched
from control_plane.db.connection import Connection
from control_plane.db.enforcement import Waits
from control_plane.db.errors import is_database_trouble
from control_plane.domain import detection, known_conditions, throughput
from control_plane.domain.detection import Watch
from control_plane.domain.enforcement import (
    Case,
    Detector,
    Finding,
    Open,
    Present,
    StopMachine,
    Symptom,
    Take,
    Unclear,
    Wait,
    next_step,
)
from control_plane.domain.enforcement_rules import EnforcementRules
from control_plane.domain.enforcement_run import Run, Wanted, in_order
from control_plane.domain.funding import runs_out
from control_plane.domain.ids import ClaimId, FindingId, OrganizationId
from control_plane.domain.known_conditions import Breach, EnvelopeWarning, FundingWarning
from control_plane.domain.throughput import Sampled, Usual, throughput_of
from control_plane.outcomes import enforcement as outcomes
from control_plane.outcomes.enforcement import Work
from control_plane.outcomes.funding import funding
from reconciler.loop import Loop, Report
from reconciler.worlds.enforcement import EnforcementWorld

NAME = "enforce_rules"
LEASES_PER_PAGE_MAX = 500
SERVING_PER_QUERY_MAX = 25
"""Machines of whose last hour the throughput is read together: some 10,000 samples."""
WAITS_PER_STATEMENT_MAX = 500
FINDINGS_PER_ACTIVATION_MAX = 500
"""How many findings are opened or closed."""
ACTIONS_PER_ACTIVATION_MAX = 500
"""How many actions are taken, notices and credits among them."""
NOTES_MAX = 20
EVERY = timedelta(seconds=15)
HOUR = timedelta(hours=1)
NOTHING_USUAL = Usual({})


async def activate(world: EnforcementWorld) -> Report:
    now, report = world.now(), Report()
    async with world.db.reading() as connection:
        armed = {detector for detector, arm in (await enforcement.arms(connection)).items() if arm.armed}
    run = _Activation(world, frozenset(armed), now, report)
    cases = await run.cases()
    wanted: list[Wanted] = []
    for case in cases:
        step = await run.decided(case)
        if step is not None:
            wanted.append(step)
    if wanted:
        shared = await run.shared()
        for each in in_order(wanted):
            await run.act(each, shared)
    await run.store_waits()
    return report


class _Activation:
    """What the steps of one activation share."""

    def __init__(
        self, world: EnforcementWorld, armed: frozenset[Detector], now: datetime, report: Report
    ) -> None:
        self._world, self._armed, self._now, self._report = world, armed, now, report
        self._rules = world.enforcement_rules
        self._waits: list[Waits] = []
        self._findings_left, self._actions_left = FINDINGS_PER_ACTIVATION_MAX, ACTIONS_PER_ACTIVATION_MAX
        self.customers: set[tuple[tuple[str, str], OrganizationId]] = set()
        """Who has leases where."""
        self._affected: set[tuple[tuple[str, str], Detector, OrganizationId]] = set()

    async def shared(self) -> Run:
        """What the actions of this run share, also with those that other processes took within its interval."""
        async with self._world.db.reading() as connection:
            before = await enforcement.taken_since(connection, self._now - EVERY)
        run = Run(
            self._rules.ladders.bounds,
            Counter(place for place, _ in self.customers),
            Counter((*place, detector) for place, detector, _ in self._affected),
        )
        for taken in before:
            run.count((taken.account, taken.region), taken.action, taken.actions, armed=taken.armed)
        return run

    @asynccontextmanager
    async def _apart(self, what: object) -> AsyncIterator[None]:
        """A failure in here is one of these leases alone. When the database is away, the whole run ends."""
        try:
            yield
        except Exception as error:
            if is_database_trouble(error):
                raise
            self._report.errors.append(f"{what}: {type(error).__name__}: {error}")

    async def cases(self) -> list[Case]:
        """Every condition that is open or may begin, of all leases."""
        found: list[Case] = []
        after: ClaimId | None = None
        while True:
            async with self._world.db.reading() as connection:
                page = await conditions.watched(connection, after=after, limit=LEASES_PER_PAGE_MAX)
                cases = await self._cases_of(connection, page)
            await self._add_hours(page)
            self._report.looked_at += len(page)
            self.customers |= {(lease.place, lease.organization_id) for lease in page}
            self._affected |= {
                (case.lease.place, case.detector, case.lease.organization_id)
                for case in cases
                if case.finding is not None or isinstance(case.symptom, Present)
            }
            found += cases
            if len(page) < LEASES_PER_PAGE_MAX:
                return found
            after = page[-1].claim_id

    async def _cases_of(self, connection: Connection, page: Sequence[Watched]) -> list[Case]:
        """The cases of a page of leases: those with a finding, and those whose condition may hold."""
        ids = [lease.claim_id for lease in page]
        own_of: dict[ClaimId, dict[Detector, Finding]] = {claim_id: {} for claim_id in ids}
        for (claim_id, detector), found in (await enforcement.open_findings(connection, ids)).items():
            own_of[claim_id][detector] = found
        mute = timedelta(seconds=self._rules.ladders.bounds.mute_seconds)
        left_alone = await enforcement.left_alone_since(connection, ids, self._now - mute)
        breaches = await conditions.breaches(connection, [lease.lease_id for lease in page])
        of_samples = await self._of_samples(connection, page, own_of)
        cases: list[Case] = []
        for lease in page:
            own, symptoms = own_of[lease.claim_id], dict(of_samples.get(lease.claim_id, {}))
            async with self._apart(lease.lease_id):
                breach = breaches.get(lease.lease_id)
                symptoms |= await _of_rows(connection, lease, breach, self._world, self._now)
            for detector, symptom in symptoms.items():
                if detector not in own and not isinstance(symptom, Present):
                    continue
                was = left_alone.get((lease.claim_id, detector))
                muted_until = None if was is None else was + mute
                armed = detector in self._armed
                cases.append(Case(lease, detector, symptom, own.get(detector), muted_until, armed=armed))
        return cases

    async def _of_samples(
        self,
        connection: Connection,
        page: Sequence[Watched],
        own_of: Mapping[ClaimId, Mapping[Detector, Finding]],
    ) -> dict[ClaimId, dict[Detector, Symptom]]:
        """What samples show. Windows are read only of machines whose last sample is suspicious, or with findings."""
        rules, now = self._rules, self._now
        usual = await _usual(connection, page, rules, now)
        reads: dict[ClaimId, dict[Detector, timedelta]] = {}
        for lease in page:
            async with self._apart(lease.lease_id):
                own, known = own_of[lease.claim_id], usual.get(lease.claim_id, NOTHING_USUAL)
                reads[lease.claim_id] = detection.read_by(lease.last, own, known, rules, now)
        by_claim = {lease.claim_id: lease for lease in page}
        lengths = {claim_id: max(windows.values()) for claim_id, windows in reads.items() if windows}
        found: dict[ClaimId, dict[Detector, Symptom]] = {}
        for portion in conditions.portions(lengths):
            samples = await conditions.windows(connection, {each: lengths[each] for each in portion}, now)
            for claim_id in portion:
                lease, known = by_claim[claim_id], usual.get(claim_id, NOTHING_USUAL)
                idle_stop = lease.idle_stop_seconds
                watch = Watch(
                    samples[claim_id], known, None if idle_stop is None else timedelta(seconds=idle_stop)
                )
                begun = {detector: finding.since for detector, finding in own_of[claim_id].items()}
                async with self._apart(lease.lease_id):
                    found[claim_id] = detection.sample_symptoms(watch, reads[claim_id], begun, rules, now)
        return found

    async def _add_hours(self, page: Sequence[Watched]) -> None:
        """Store the throughput of the last full hour of machines with inference servers, once."""
        hour = self._now.replace(minute=0, second=0, microsecond=0) - HOUR
        serving = [lease for lease in page if _serves(lease)]
        if not serving:
            return
        async with self._world.db.reading() as connection:
            ids = [lease.claim_id for lease in serving]
            known = {found.claim_id for found in await conditions.hours_of(connection, ids, since=hour)}
        new = [lease for lease in serving if lease.claim_id not in known]
        for first in range(0, len(new), SERVING_PER_QUERY_MAX):
            some = new[first : first + SERVING_PER_QUERY_MAX]
            async with self._world.db.reading() as connection:
                claim_ids = [lease.claim_id for lease in some]
                samples = await conditions.served(connection, claim_ids, hour, hour + HOUR)
            hours = [
                Hour(lease.claim_id, lease.organization_id, hour, batch, median)
                for lease in some
                for batch, median in _median(samples[lease.claim_id], self._rules).items()
            ]
            who = f"throughput of {len(some)} machines, the first of {some[0].lease_id}"
            async with self._apart(who), self._world.db.transaction() as connection:
                await conditions.add_hours(connection, hours)

    async def decided(self, case: Case) -> Wanted | None:
        """Open and close at once; an action that needs room is returned."""
        async with self._apart(case.lease.lease_id):
            return await self._decided(case)
        return None

    async def _decided(self, case: Case) -> Wanted | None:
        step = next_step(case, self._rules.ladders, self._now)
        if isinstance(step, Open):
            opened = await self._open(case, step.present)
            if opened is None:
                return None
            case = opened
            step = next_step(case, self._rules.ladders, self._now)
        if isinstance(step, Take | StopMachine):
            return Wanted(case, step)
        finding = case.finding
        if finding is None or isinstance(step, Open):
            return None
        if isinstance(step, Wait):
            self._waits.append(Waits(finding.id, step.why))
            return None
        if not self._has_room(self._findings_left):
            return None
        async with self._world.db.transaction() as connection:
            closed = await outcomes.close(self._work(connection, case.detector), case, finding, step)
        self._findings_left -= 1
        self._report.count(closed)
        return None

    def _has_room(self, left: int) -> bool:
        """Whether this run may do one more. Otherwise the next one follows at once.

        Only what succeeded counts: what fails about many leases keeps the others from nothing.
        """
        if left <= 0:
            self._report.more = True
        return left > 0

    async def store_waits(self) -> None:
        """What findings wait for, together: most of those that are open wait most of the time."""
        for first in range(0, len(self._waits), WAITS_PER_STATEMENT_MAX):
            async with self._world.db.transaction() as connection:
                await enforcement.wait_all(connection, self._waits[first : first + WAITS_PER_STATEMENT_MAX])

    async def _open(self, case: Case, present: Present) -> Case | None:
        if not self._has_room(self._findings_left):
            return None
        new = FindingId(self._world.new_id())
        async with self._world.db.transaction() as connection:
            work = self._work(connection, case.detector)
            if not await outcomes.open_finding(work, case, new, since=present.since, why=present.why):
                return None
        self._findings_left -= 1
        finding = Finding(new, case.detector, case.lease.claim_id, self._now, present.since, self._now, None)
        return replace(case, finding=finding)

    async def act(self, wanted: Wanted, shared: Run) -> None:
        case, step = wanted.case, wanted.step
        if case.finding is None or not self._has_room(self._actions_left):
            return
        held = shared.held_back(wanted)
        if held is not None:
            self._waits.append(Waits(case.finding.id, f"it is held back: {held}"))
            if len(self._report.notes) < NOTES_MAX:
                self._report.notes.append(f"{case.lease.lease_id}: {case.detector} is held back: {held}")
            return
        async with self._apart(case.lease.lease_id):
            await self._act(case, case.finding, step)

    async def _act(self, case: Case, finding: Finding, step: Take | StopMachine) -> None:
        async with self._world.db.transaction() as connection:
            work = self._work(connection, case.detector)
            if isinstance(step, StopMachine):
                done = await outcomes.stop_machine(work, case, finding, step)
            else:
                done = await outcomes.take(work, case, finding, step, self._world.new_id())
        self._actions_left -= 1
        self._report.count(done)

    def _work(self, connection: Connection, detector: Detector) -> Work:
        return Work(
            connection, detector in self._armed, self._rules.digest, self._world.actor(NAME), self._now
        )


def _serves(lease: Watched) -> bool:
    last = lease.last
    return last is not None and throughput_of(last.reading.servers) is not None


def _median(samples: Sequence[Sampled], rules: EnforcementRules) -> Mapping[int, int]:
    """Batch 0 stands for an hour that was looked at."""
    return throughput.hour_of(samples, rules.throughput) or {0: 0}


async def _usual(
    connection: Connection, page: Sequence[Watched], rules: EnforcementRules, now: datetime
) -> dict[ClaimId, Usual]:
    """What is usual for machines with inference servers that serve something now."""
    serving = [lease.claim_id for lease in page if _serves(lease)]
    since = now - timedelta(days=rules.throughput.usual_days)
    hours = await conditions.usual(connection, serving, since=since)
    return {claim_id: throughput.usual_of(found, rules.throughput) for claim_id, found in hours.items()}


async def _of_rows(
    connection: Connection, lease: Watched, breach: Breach | None, world: EnforcementWorld, now: datetime
) -> dict[Detector, Symptom]:
    """What other loops stored about a lease."""
    warned = lease.envelope_warned_at
    warning = (
        None
        if warned is None
        else EnvelopeWarning(warned, lease.envelope_ends_at, lease.envelope_why or "it is outside")
    )
    return {
        Detector.ENVELOPE_BREACH: known_conditions.envelope_symptom(warning),
        Detector.UNFUNDED: await _funding(connection, lease, world, now),
        Detector.SLA_VIOLATION: known_conditions.breach_symptom(breach),
    }


async def _funding(connection: Connection, lease: Watched, world: EnforcementWorld, now: datetime) -> Symptom:
    if lease.funding_warned_at is None:
        return known_conditions.funding_symptom(None)
    funded = await holds.funded(connection, lease.lease_id)
    standing = await organizations.standing(connection, lease.organization_id, lock=False)
    if funded is None or standing is None:
        return Unclear()
    end = runs_out(funding(funded, standing, now), world.stop_times, now)
    return known_conditions.funding_symptom(
        FundingWarning(
            lease.funding_warned_at, None if end is None else end.at, end is not None and end.stops
        )
    )


LOOP = Loop(NAME, EVERY, activate, wakes=("end_actions", "change_power"))
"""As often as agents send samples."""
