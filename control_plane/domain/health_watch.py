"""What the stored facts about a machine and new readings of it come to: its open faults, its verdict, what is told.

One function decides (`assess`); the loops that judge machines and look at them store what it answers.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.gpu_faults import (
    AcceptedGpu,
    Reading,
    ShownLink,
    expected,
    faults_seen,
    links_shown,
    slower_than_possible,
    undecided,
)
from control_plane.domain.health import (
    RULES,
    UNFIT,
    Cleared,
    Fault,
    FaultCode,
    Judgement,
    Seen,
    Source,
    Verdict,
    judge,
    look_due,
    still_open,
    with_seen,
)
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.notice import NoticeKind
from control_plane.domain.planned_work import timed
from control_plane.domain.proof import Tier, challenged
from control_plane.domain.repeated_errors import Counted, repeats_seen, with_errors
from control_plane.domain.sweep import MISSED_LISTS_MIN


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One fault that our own last reading showed, or could not decide about."""

    code: FaultCode
    gpu: int | None
    xid: int | None
    shown: bool = True
    """False for one about which it said nothing."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A verified machine, as its rows describe it."""

    machine_id: MachineId
    account: AccountName
    region: str
    gpu_count: int
    proof: Tier
    created_at: datetime
    accepted: tuple[AcceptedGpu, ...]
    """Its GPUs when it was accepted; empty where they said nothing of their links."""
    # What our rows say about it.
    down_since: datetime | None
    provider_state: str | None
    missed_since: datetime | None
    missed_lists: int
    relisted_at: datetime | None
    unsteady_until: datetime | None
    """Until when it counts as missing although lists show it again."""
    suspect_since: datetime | None
    eviction_announced_at: datetime | None
    eviction_withdrawn_at: datetime | None
    last_passed_at: datetime | None
    handed_back_at: datetime | None
    handed_back_why: str | None
    maintenance_since: datetime | None
    maintenance_why: str | None
    maintenance_planned_at: datetime | None
    work_since: datetime | None
    """When its provider announced the next work on it."""
    work_why: str | None
    work_planned_at: datetime | None
    # What was stored about its health.
    verdict: Verdict
    why: str
    since: datetime
    faults: tuple[Fault, ...]
    """Without those that follow from the rows."""
    row_faults: tuple[Fault, ...]
    """Those that followed from the rows when it was judged last."""
    errors: tuple[Counted, ...]
    """Errors of the driver that may come again."""
    links: tuple[ShownLink, ...]
    """The fastest PCIe links that its GPUs had at work, as far as it was judged then."""
    samples_until: datetime | None
    looked_at: datetime | None
    looked: tuple[LookedAt, ...]
    look_due_at: datetime | None
    look_failed: bool
    """Whether the last try to look at it failed. Then `look_due_at` is the time of the next one."""
    look_asked_at: datetime | None
    """When a look was asked for last that no fault is the reason of."""
    reset_at: datetime | None

    @property
    def is_evicted(self) -> bool:
        """Whether its provider announced to take it back, and did not withdraw that."""
        return self.eviction_announced_at is not None and self.eviction_withdrawn_at is None

    @property
    def judged(self) -> Judgement:
        """What it was judged to be last."""
        return judge((*self.faults, *self.row_faults))

    @property
    def works_at(self) -> datetime | None:
        """When the first work on it is planned; None where no time is known, or where it may be under way."""
        known = [
            planned_at
            for since, planned_at in (
                (self.maintenance_since, self.maintenance_planned_at),
                (self.work_since, self.work_planned_at),
            )
            if since is not None
        ]
        times = [at for at in known if at is not None]
        return min(times) if times and len(times) == len(known) else None

    @property
    def good_since(self) -> datetime | None:
        """When its GPUs passed their last proof, or it was reset last."""
        return max((at for at in (self.last_passed_at, self.reset_at) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known about a machine's health now."""

    faults: tuple[Fault, ...]
    """The open faults, without those that follow from the rows."""
    row_faults: tuple[Fault, ...]
    """The other ones."""
    errors: tuple[Counted, ...]
    links: tuple[ShownLink, ...]
    judgement: Judgement
    looked_at: datetime | None
    looked: tuple[LookedAt, ...]
    look_due_at: datetime | None
    samples_until: datetime | None
    challenge: bool
    """Whether its GPUs should prove themselves now: the machine itself reported an error that takes a GPU out."""

    def changes(self, watched: Watched) -> bool:
        """Whether anything is to be stored."""
        return (
            self.faults != watched.faults
            or self.row_faults != watched.row_faults
            or self.errors != watched.errors
            or self.links != watched.links
            or self.judgement.verdict is not watched.verdict
            or self.judgement.why != watched.why
            or self.looked_at != watched.looked_at
            or self.look_due_at != watched.look_due_at
        )


def asks_for_links(watched: Watched, readings: Collection[Reading]) -> bool:
    """Whether what its GPUs showed before is to be looked up: one is slower than is possible, for the first time."""
    known = {each.uuid for each in watched.links}
    return not slower_than_possible(readings, watched.accepted) <= known


def assess(
    watched: Watched,
    readings: Collection[Reading],
    now: datetime,
    *,
    samples_until: datetime | None = None,
    links: Collection[ShownLink] = (),
) -> Assessment:
    """What a machine's rows and new readings come to. Readings that were taken into account already change nothing.

    `links` are PCIe links that its GPUs had before, beside those that are stored.
    """
    links = links_shown((*watched.links, *links), readings, watched.accepted)
    accepted = expected(watched.accepted, links)
    faults, errors = watched.faults, watched.errors
    looked_at, looked, good_since = watched.looked_at, watched.looked, watched.good_since
    known = {fault.key for fault in faults}
    for reading in sorted(readings, key=lambda reading: reading.at):
        errors = with_errors(errors, reading, good_since)
        seen = (
            *faults_seen(reading, watched.gpu_count, since=good_since, accepted=accepted),
            *repeats_seen(errors, reading.source, good_since, reading.at),
        )
        faults = with_seen(faults, seen, reading.source)
        if reading.source is Source.LOOK and (looked_at is None or reading.at > looked_at):
            looked_at = reading.at
            looked = (
                *(LookedAt(*each.key) for each in seen),
                *(LookedAt(*key, shown=False) for key in undecided(reading, accepted)),
            )
    cleared = Cleared(looked_at, frozenset((each.code, each.gpu, each.xid) for each in looked), good_since)
    faults = still_open(faults, cleared, now)
    row_faults = of_rows(watched, now)
    new = [fault for fault in faults if fault.key not in known]
    return Assessment(
        faults=faults,
        row_faults=row_faults,
        errors=errors,
        links=links,
        judgement=judge((*faults, *row_faults)),
        looked_at=looked_at,
        looked=looked,
        look_due_at=_look_due(watched, faults, looked_at, looked, now),
        samples_until=max(
            (at for at in (samples_until, watched.samples_until) if at is not None), default=None
        ),
        challenge=challenged(watched.proof) and any(RULES[fault.code].proves_again for fault in new),
    )


def _look_due(
    watched: Watched,
    faults: Collection[Fault],
    looked_at: datetime | None,
    looked: Collection[LookedAt],
    now: datetime,
) -> datetime | None:
    """Not before the next try where the last one failed: others have their turn meanwhile."""
    due_at = look_due(
        faults,
        looked_at,
        now,
        handed_back_at=watched.handed_back_at,
        reset_at=watched.reset_at,
        asked_at=watched.look_asked_at,
        contradicted=not any(each.shown for each in looked),
    )
    if due_at is None or watched.look_due_at is None or not watched.look_failed:
        return due_at
    return max(due_at, watched.look_due_at)


def of_rows(watched: Watched, now: datetime) -> tuple[Fault, ...]:
    """The faults that our rows tell of: what the provider's lists, proofs and people say."""
    faults: tuple[Fault, ...] = ()
    for seen in _in_rows(watched, now):
        faults = with_seen(faults, [seen], _REPORTED_BY.get(seen.code, Source.PROVIDER))
    return faults


_REPORTED_BY = {
    FaultCode.PROOF_FAILED: Source.PROOF,
    FaultCode.UNDER_MAINTENANCE: Source.OPERATOR,
    FaultCode.HANDED_BACK: Source.OPERATOR,
}


def _in_rows(watched: Watched, now: datetime) -> Iterator[Seen]:
    if watched.suspect_since is not None:
        detail = "its last challenge failed, and it was not cleared since"
        yield Seen(FaultCode.PROOF_FAILED, None, watched.suspect_since, detail)
    if watched.down_since is not None:
        word = watched.provider_state or "down"
        yield Seen(FaultCode.PROVIDER_DOWN, None, watched.down_since, f"as {word!r}")
    if watched.missed_since is not None and watched.missed_lists >= MISSED_LISTS_MIN:
        detail = f"{watched.missed_lists} complete lists in a row miss it"
        yield Seen(FaultCode.PROVIDER_MISSING, None, watched.missed_since, detail)
    elif (
        watched.relisted_at is not None
        and watched.unsteady_until is not None
        and now < watched.unsteady_until
    ):
        detail = "its lists show it again, and have missed it more than once lately"
        yield Seen(FaultCode.PROVIDER_MISSING, None, watched.relisted_at, detail)
    if watched.eviction_announced_at is not None and watched.is_evicted:
        detail = "as its provider announced"
        yield Seen(FaultCode.EVICTION_ANNOUNCED, None, watched.eviction_announced_at, detail)
    if watched.maintenance_since is not None:
        detail = _planned(watched.maintenance_why or "no reason was given", watched.maintenance_planned_at)
        yield Seen(FaultCode.UNDER_MAINTENANCE, None, watched.maintenance_since, detail)
    if watched.work_since is not None:
        detail = _planned(watched.work_why or "", watched.work_planned_at)
        yield Seen(FaultCode.PROVIDER_MAINTENANCE, None, watched.work_since, detail)
    if watched.handed_back_at is not None:
        detail = watched.handed_back_why or "no reason was given"
        yield Seen(FaultCode.HANDED_BACK, None, watched.handed_back_at, detail)


def _planned(why: str, at: datetime | None) -> str:
    return why if at is None else timed(why, at)


@dataclass(frozen=True, slots=True)
class NewNotice:
    """A notice that is to be stored."""

    kind: NoticeKind
    message: str
    planned_at: datetime | None = None
    """When what is announced happens at the earliest."""


def notice_for(watched: Watched, judgement: Judgement) -> NewNotice | None:
    """What the customer is told when a machine is judged anew; None when nothing changes for them.

    A machine that is degraded by its own word alone is shown as such and not announced: we look at it first.
    """
    fault, verdict = judgement.fault, judgement.verdict
    if not judgement.differs(watched.judged):
        return None
    if fault is None:
        announced = watched.verdict in UNFIT or any(known.confirmed_at for known in watched.faults)
        return NewNotice(NoticeKind.RECOVERED, "The machine is healthy again.") if announced else None
    if fault.code is FaultCode.HANDED_BACK:
        return None  # They said so themselves.
    if fault.code is FaultCode.PROVIDER_MAINTENANCE:
        return None  # They are told of each announcement, also of one that changes no verdict.
    if judgement.still_works and verdict is watched.verdict:
        return None  # They know of it. Something worse has ended.
    if fault.code is FaultCode.UNDER_MAINTENANCE:
        message = f"The machine is taken out for maintenance: {fault.detail}."
        return NewNotice(NoticeKind.MAINTENANCE_PLANNED, message, watched.maintenance_planned_at)
    if verdict in UNFIT or fault.confirmed_at is not None:
        return NewNotice(
            NoticeKind.FAULT_FOUND, f"The machine is {verdict.replace('_', ' ')}: {judgement.why}."
        )
    return None
