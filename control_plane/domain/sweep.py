"""A sweep compares an account's machines with one list of its provider and says what the list means for each.

A launch whose answer was lost is found by its launch key, a booting machine shows its address, a terminating one
its end, and a running one that it is still alive. A listing is complete or it is an error; the port ensures that.
But a complete-looking list can still be wrong: SkyPilot destroyed healthy clusters on an empty answer (its issue
10517). A list that lacks too many of the expected machines therefore freezes the account: nothing is concluded
from an absence until the lists look sane again. When they have shown the same for a long time, a few missing machines
are believed to be gone; for more an operator has to permit it. A machine whose agent reported lately is not gone,
whatever the lists show (docs/decisions/0043). A machine that is listed as ended counts as missed: a provider whose
backend does not know a machine for two seconds may answer with that word (docs/decisions/0052).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain import downtime
from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.downtime import CameUp, Reworded, Wavered, WentDown
from control_plane.domain.eviction import Notice, notices, taken
from control_plane.domain.evidence import NO_EVIDENCE, Evidence
from control_plane.domain.failure import FailReason
from control_plane.domain.freeze import FEW, Freeze, Odd, freeze_after, shrunk
from control_plane.domain.ids import MachineId, ProviderRef, installation_of
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import (
    MAY_EXIST,
    SHOULD_BE_SIGHTED,
    Machine,
    MachineEvent,
    MachineFailure,
    MachineMove,
    MachineState,
    step,
)
from control_plane.domain.outage import CONSEQUENCES, OFF
from control_plane.domain.power import PowerState
from control_plane.domain.progress import Step
from control_plane.domain.readdressing import Readdressing, readdressing
from control_plane.domain.sighting import NOT_RUNNING, LateRefusal, Sighting, concluded, ended_unasked
from control_plane.domain.transitions import Moved

MISSED_MAX = 10
"""A list that misses more machines than this is not believed either, however many it shows."""
MISSED_LISTS_MIN = 2
"""Absence counts from the second complete list on."""
LOST_WINDOW = timedelta(hours=1)
"""Machines that vanished from an account's lists in this time count as missed, so that lists that lose a few machines
at a time are as odd as those that lose them at once."""
LOOK_EXTRA = timedelta(seconds=10)
SETUP_MAX = timedelta(minutes=10)
"""How long setup may take, from a machine's first address until it is verified. Then it counts as unreachable."""


# Who is on the list


@dataclass(frozen=True, slots=True)
class Findings:
    found: tuple[tuple[Machine, Sighting], ...]
    missed: tuple[Machine, ...]
    """Those that are not on the list, and those that it shows as ended though nobody asked for that."""
    ended: Mapping[MachineId, Sighting]
    """How the list shows the latter."""
    orphans: tuple[Sighting, ...]
    """Sightings with launch keys of this installation that no open record matches."""
    foreign: int
    """Sightings of other installations on the same account; they are never touched."""


def match(
    machines: Iterable[Machine], listing: Sequence[Sighting], *, installation: str, asked_at: datetime
) -> Findings:
    """Compare the records of an account with one complete list that was requested at `asked_at`.

    At most one record matches a sighting, by reference first and by launch key second: a provider may reuse a
    reference or list a machine twice, and two records with one reference could not be stored.
    """
    listed: dict[str, Sighting] = {}
    by_key: dict[str, Sighting] = {}
    for sighting in listing:
        listed.setdefault(sighting.provider_ref, sighting)
    for sighting in listed.values():
        by_key.setdefault(sighting.launch_key, sighting)

    found: list[tuple[Machine, Sighting]] = []
    missed: list[Machine] = []
    ended: dict[MachineId, Sighting] = {}
    claimed: set[str] = set()
    # Records that know their reference come first, in whatever order they were read.
    for machine in sorted(machines, key=lambda machine: machine.provider_ref is None):
        if machine.state not in MAY_EXIST:
            continue
        here = listed.get(machine.provider_ref) if machine.provider_ref else by_key.get(machine.launch_key)
        if here is not None and here.provider_ref not in claimed:
            claimed.add(here.provider_ref)
            if ended_unasked(machine, here):
                missed.append(machine)
                ended[machine.id] = here
            else:
                found.append((machine, here))
        elif machine.asked_at is not None and machine.asked_at < asked_at:
            missed.append(machine)  # A list requested before the launch could not show it.

    unclaimed = [sighting for sighting in listed.values() if sighting.provider_ref not in claimed]
    orphans = tuple(
        sighting for sighting in unclaimed if installation_of(sighting.launch_key) == installation
    )
    return Findings(tuple(found), tuple(missed), ended, orphans, foreign=len(unclaimed) - len(orphans))


# Whether the list is complete


def unlisted_regions(machines: Iterable[Machine], lists: Callable[[str], bool]) -> tuple[str, ...]:
    """The provider's regions where machines may exist and where it does not look for them, as `lists` says.

    While there are any, the list of the account is incomplete and means nothing, not even for machines elsewhere.
    """
    places = {machine.native_region for machine in machines if machine.state in MAY_EXIST}
    return tuple(sorted(place for place in places if not lists(place)))


# Whether the list is believed


def oddness(findings: Findings, listing_size: int, *, lost: int = 0) -> Odd | None:
    """Whether a list is too empty or too short to draw conclusions from, as a whole or for one region.

    Only machines that were sighted before and are not being terminated are expected. A provider asks its regions one by
    one, so a list that lacks one of them may look nearly complete. `lost` counts the machines of the account that
    vanished within LOST_WINDOW.
    """
    found = [machine.region for machine, _ in findings.found if machine.state in SHOULD_BE_SIGHTED]
    missed = [machine.region for machine in findings.missed if _expected(machine)]
    missing, expected = len(missed) + lost, len(found) + len(missed) + lost
    if not missed:
        return None
    before = f", {lost} of them for up to an hour" if lost else ""
    if listing_size == 0:
        return Odd(f"The list is empty and {expected} machines should be on it{before}.", missing)
    most = len(missed) > 1 and len(missed) * 2 > expected - lost
    if shrunk(missing, expected) or most or missing > MISSED_MAX:
        return Odd(f"The list misses {missing} of {expected} machines that should be on it{before}.", missing)
    for region in sorted(set(missed)):
        gone, there = missed.count(region), found.count(region)
        if shrunk(gone, gone + there):
            why = f"The list misses {gone} of {gone + there} machines in {region} that should be on it."
            return Odd(why, missing)
    return None


def _expected(machine: Machine) -> bool:
    return machine.state in SHOULD_BE_SIGHTED and machine.sighted_at is not None


def expected_and_missed(machines: Iterable[Machine], listing: Iterable[Sighting]) -> list[MachineId]:
    """The machines that should be on a list and are not, or only as ended, by their references: whoever reported lately
    is alive.
    """
    listed = {sighting.provider_ref for sighting in listing if sighting.state is not ListedState.GONE}
    return [machine.id for machine in machines if _expected(machine) and machine.provider_ref not in listed]


# What an absence proves


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a provider takes, in seconds."""

    list_lag_seconds: float
    """From the acceptance of a launch until the machine appears on the provider's lists."""
    boot_seconds_max: float


def look_for(list_lag_seconds: float) -> timedelta:
    """How long to search for a launch whose answer was lost before its machine is given up.

    Its record stays open for longer: see `absence_proves_gone`.
    """
    return timedelta(seconds=2 * list_lag_seconds) + LOOK_EXTRA


def absence_proves_gone(machine: Machine, timing: Timing, now: datetime, *, ended: bool = False) -> bool:
    """Whether missing from complete lists is proof enough that the machine does not exist.

    A machine that was sighted before is gone when lists miss it repeatedly, for at least the lists' lag. One that
    was never sighted may still be starting, so the time of a whole boot has to pass as well, unless the list shows it
    as `ended`.
    """
    if machine.missed_since is None or machine.missed_lists < MISSED_LISTS_MIN or machine.asked_at is None:
        return False
    lag = timedelta(seconds=timing.list_lag_seconds)
    if now - machine.missed_since < lag:
        return False
    if ended or machine.sighted_at is not None:
        return True
    return now - machine.asked_at >= lag + timedelta(seconds=timing.boot_seconds_max)


def alive(machine: Machine, reported_at: datetime | None, now: datetime) -> bool:
    """Whether a machine is known to live: its agent reported within five heartbeats, or it passed a GPU proof."""
    heard = [at for at in (reported_at, machine.last_passed_at) if at is not None]
    return any(now - at < SILENT_AFTER for at in heard)


# What the list means


@dataclass(frozen=True, slots=True)
class Adoption:
    """A terminating machine whose launch answer was lost is on the list, so its reference is known now."""

    id: MachineId
    provider_ref: ProviderRef


@dataclass(frozen=True, slots=True)
class Loss:
    """A machine that has to be terminated, unless a customer who was admitted to it may still be using it."""

    id: MachineId
    failure: MachineFailure
    stopped: bool = False
    """Whether the provider lists it as stopped, for long: then a customer who can start it keeps it."""


Conclusion = MachineMove | Adoption | Loss | Readdressing | Notice | downtime.News


@dataclass(frozen=True, slots=True)
class Swept:
    """What one list means for an account, grouped by how it is stored."""

    moves: tuple[MachineMove, ...]
    adoptions: tuple[Adoption, ...]
    losses: tuple[Loss, ...]
    readdressed: tuple[Readdressing, ...]
    notices: tuple[Notice, ...]
    """Evictions that were announced, or withdrawn."""
    down: tuple[WentDown, ...]
    up: tuple[CameUp, ...]
    wavered: tuple[Wavered, ...]
    reworded: tuple[Reworded, ...]
    sighted: tuple[MachineId, ...]
    """Machines listed for the first time, or again after an absence. A machine on every list costs no write."""
    missed: tuple[MachineId, ...]
    """Machines that this list does not show to be alive."""
    orphans: tuple[Sighting, ...]
    size: int
    """How many live machines of this installation the list shows."""
    foreign: int
    freeze: Freeze | None
    believed: bool
    """Whether an absence from this list proves something."""

    @property
    def written(self) -> frozenset[MachineId]:
        """The machines whose rows this list changes, except those in `losses` and `up`."""
        moved = {move.id for move in self.moves} | {adoption.id for adoption in self.adoptions}
        moved |= {readdressing.id for readdressing in self.readdressed} | {news.id for news in self.notices}
        moved |= {down.id for down in self.down} | {word.id for word in self.reworded}
        moved |= {wavered.id for wavered in self.wavered}
        return frozenset({*moved, *self.sighted, *self.missed})


def sweep(
    machines: Iterable[Machine],
    listing: Sequence[Sighting],
    before: Freeze | None,
    *,
    installation: str,
    timing: Timing,
    asked_at: datetime,
    refused: Iterable[LateRefusal] = (),
    evidence: Evidence = NO_EVIDENCE,
) -> Swept:
    """What a complete list that was requested at `asked_at` means for the open records of its account.

    `before` is the account's freeze so far. Nothing is concluded from an absence while the account is frozen, unless
    the odd lists are believed after all. `refused` are launches that the provider refused after it had accepted them.
    """
    machines = list(machines)
    shown = [*_in_place_of(machines, listing, refused), *listing]
    findings = match(machines, shown, installation=installation, asked_at=asked_at)
    odd = oddness(findings, len(listing), lost=evidence.lost)
    if odd is not None:
        odd = replace(odd, why=odd.why + _reporting(findings.missed, evidence, asked_at))
    freeze = freeze_after(before, odd, now=asked_at)
    believed = freeze is None or freeze.believed(asked_at, evidence.permit)
    absent = findings.missed if believed else ()
    dead = [
        machine
        for machine in absent
        if machine.state is MachineState.TERMINATING
        or not alive(machine, evidence.reported_at.get(machine.id), asked_at)
    ]
    conclusions = [
        *(conclusion for pair in findings.found for conclusion in _of_sighting(*pair, timing, asked_at)),
        *(
            each
            for machine, sighting in findings.found
            for each in downtime.news(machine, sighting, evidence.power(machine.id), asked_at)
        ),
        *(_given_up(findings, evidence, asked_at) if believed else ()),
        *(
            conclusion
            for machine in dead
            for conclusion in _of_absence(machine, findings.ended.get(machine.id), timing, asked_at)
        ),
    ]
    return Swept(
        moves=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, MachineMove)),
        adoptions=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Adoption)),
        losses=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Loss)),
        readdressed=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Readdressing)),
        notices=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Notice)),
        down=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, WentDown)),
        up=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, CameUp)),
        wavered=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Wavered)),
        reworded=tuple(conclusion for conclusion in conclusions if isinstance(conclusion, Reworded)),
        sighted=tuple(machine.id for machine, sighting in findings.found if _appeared(machine, sighting)),
        # A list that shows a machine as gone is no evidence that it ran until now.
        missed=tuple(machine.id for machine, sighting in findings.found if sighting.state is ListedState.GONE)
        + tuple(machine.id for machine in absent),
        # A machine that has ended and is still listed for a while is no orphan.
        orphans=tuple(sighting for sighting in findings.orphans if sighting.state is not ListedState.GONE),
        size=sum(
            sighting.state is not ListedState.GONE and installation_of(sighting.launch_key) == installation
            for sighting in listing
        ),
        foreign=findings.foreign,
        freeze=freeze,
        believed=believed,
    )


def _reporting(missed: Iterable[Machine], evidence: Evidence, now: datetime) -> str:
    """How many of the missed machines are known to live, as a sentence for operators."""
    living = sum(
        _expected(machine) and alive(machine, evidence.reported_at.get(machine.id), now) for machine in missed
    )
    return f" {living} of them reported in the last five minutes." if living else ""


def _in_place_of(
    machines: Iterable[Machine], listing: Iterable[Sighting], refused: Iterable[LateRefusal]
) -> Iterator[Sighting]:
    """A sighting for each booting machine whose launch was refused late, unless a list shows more than a failure."""
    alive = {sighting.provider_ref for sighting in listing if sighting.state not in NOT_RUNNING}
    refusals = {refusal.provider_ref: refusal for refusal in refused if refusal.provider_ref not in alive}
    for machine in machines:
        refusal = refusals.get(machine.provider_ref) if machine.provider_ref else None
        if refusal is not None and machine.state is MachineState.BOOTING:
            yield Sighting(
                refusal.provider_ref, machine.launch_key, refusal.state, native_status=refusal.native_status
            )


def _appeared(machine: Machine, sighting: Sighting) -> bool:
    return sighting.state is not ListedState.GONE and (
        machine.sighted_at is None or machine.missed_since is not None
    )


def _of_sighting(
    machine: Machine, sighting: Sighting, timing: Timing, asked_at: datetime
) -> Iterator[Conclusion]:
    if machine.provider_ref is None and machine.state is MachineState.TERMINATING:
        yield Adoption(machine.id, sighting.provider_ref)
    yield from readdressing(machine, sighting)
    runs = sighting.state is ListedState.RUNNING
    yield from notices(machine, sighting.eviction, runs=runs, asked_at=asked_at)
    event = concluded(machine.state, sighting.state, has_address=sighting.address is not None)
    moved = None if event is None else step(machine.state, event)
    if not isinstance(moved, Moved):
        return
    listed_as = _listed_as(sighting)
    match moved.event:
        case MachineEvent.FOUND:
            yield _found(machine, moved, sighting, timing, asked_at)
        case MachineEvent.REACHABLE:
            yield _reachable(machine, moved, sighting, asked_at)
        case MachineEvent.CONFIRMED_GONE:
            yield MachineMove(machine.id, machine.generation, moved, why=_ENDED, gone_evidence=listed_as)
        case MachineEvent.VANISHED:
            yield Loss(machine.id, _evicted(machine, moved.event, sighting, listed_as))
        case _ if not downtime.overdue(machine, asked_at):
            sold_out = sighting.state is ListedState.SOLD_OUT
            reason, why = _SOLD_OUT if sold_out else _FAILED
            yield Loss(machine.id, MachineFailure(moved.event, reason, why, listed_as))


def _listed_as(sighting: Sighting) -> str:
    return f"the provider lists it as {sighting.native_status!r}"


def _given_up(findings: Findings, evidence: Evidence, now: datetime) -> Iterator[Loss]:
    """The machines that were down for too long, and whose agents are silent: no more than few, as of those that vanish.

    For more, an operator has to look: a provider whose status is wrong calls all of them failed. One that is off, or
    whose power is being changed, has no agent to speak for it, and is kept.
    """
    overdue = [
        (machine, sighting)
        for machine, sighting in findings.found
        if downtime.overdue(machine, now)
        and evidence.power(machine.id) is PowerState.ON
        and concluded(machine.state, sighting.state, has_address=True)
    ]
    if len(overdue) + evidence.lost > FEW:
        return
    for machine, sighting in overdue:
        moved = step(machine.state, MachineEvent.FAILED)
        if isinstance(moved, Moved) and not alive(machine, evidence.reported_at.get(machine.id), now):
            reason = FailReason.PROVIDER_REPORTED_FAILURE
            if machine.down_cause is not None:
                reason = CONSEQUENCES[machine.down_cause].fail_reason
            why, stopped = f"{_listed_as(sighting)}, for an hour", sighting.state in OFF
            yield Loss(machine.id, MachineFailure(moved.event, reason, why, overdue=True), stopped)


_ENDED = "the provider lists it as ended"
_FAILED = (FailReason.PROVIDER_REPORTED_FAILURE, "the provider lists it as failed")
_SOLD_OUT = (FailReason.NO_CAPACITY, "the provider accepted the order and then had no capacity left")


def _evicted(machine: Machine, event: MachineEvent, sighting: Sighting, listed_as: str) -> MachineFailure:
    """The failure of a machine that its provider lists as ended, and says to have taken back."""
    evicted = taken(machine, sighting.eviction)
    if sighting.eviction is None or evicted is None:
        return MachineFailure(event, FailReason.VANISHED, _ENDED, listed_as)
    words = f"{listed_as}: {sighting.eviction.native_status}"
    return MachineFailure(event, FailReason.EVICTED, evicted, words)


def _found(
    machine: Machine,
    moved: Moved[MachineState, MachineEvent],
    sighting: Sighting,
    timing: Timing,
    asked_at: datetime,
) -> MachineMove:
    return MachineMove(
        machine.id,
        machine.generation,
        moved,
        why="found in the inventory by its launch key",
        provider_ref=sighting.provider_ref,
        step=Step.LAUNCHED,
        deadline_at=asked_at + timedelta(seconds=timing.boot_seconds_max),
    )


def _reachable(
    machine: Machine, moved: Moved[MachineState, MachineEvent], sighting: Sighting, asked_at: datetime
) -> MachineMove:
    return MachineMove(
        machine.id,
        machine.generation,
        moved,
        address=sighting.address,
        ssh_port=sighting.ssh_port,
        step=Step.BOOTED,
        deadline_at=asked_at + SETUP_MAX,
    )


def _of_absence(
    machine: Machine, ended: Sighting | None, timing: Timing, asked_at: datetime
) -> Iterator[Conclusion]:
    """What it means that lists miss a machine, or show it as `ended`, when that is proof enough."""
    if not absence_proves_gone(machine, timing, asked_at, ended=ended is not None):
        return
    since = machine.missed_since.isoformat(timespec="seconds") if machine.missed_since else "never listed"
    evidence = f"missing from {machine.missed_lists + 1} complete lists, the first at {since}"
    gone = step(machine.state, MachineEvent.CONFIRMED_GONE)
    vanished = step(machine.state, MachineEvent.VANISHED)
    if isinstance(gone, Moved):
        yield MachineMove(machine.id, machine.generation, gone, gone_evidence=evidence)
    elif isinstance(vanished, Moved) and ended is not None:
        failure = MachineFailure(
            vanished.event, FailReason.VANISHED, _ENDED, f"{_listed_as(ended)}; {evidence}"
        )
        yield Loss(machine.id, failure)
    elif isinstance(vanished, Moved):
        yield Loss(machine.id, MachineFailure(vanished.event, FailReason.VANISHED, evidence))
