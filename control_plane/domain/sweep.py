"""Records held against what a provider lists: who is found, who is absent, who is an orphan.

A listing is complete or it is an error; the port sees to that. But a complete-looking list can
still be wrong: SkyPilot destroyed healthy clusters on an empty answer (its issue 10517). So a list
that misses too much of what should be there freezes the account: nothing is concluded from an
absence until the lists look sane again, or keep saying the same for a long time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.ids import MachineId, installation_of
from control_plane.domain.machine import MAY_EXIST, SHOULD_BE_SIGHTED, MachineState

MISSED_LISTS_MIN = 2
"""Absence counts from the second complete list on."""
ORPHAN_GRACE = timedelta(minutes=2)
"""How long an orphan is only watched: a record may be about to claim it."""
ORPHANS_PER_RUN_MAX = 5
ORPHAN_SHARE_MAX_PERCENT = 20
"""More orphans than this share of a list (and more than three) is our memory failing, not a leak."""
THAW_AFTER = timedelta(minutes=15)
THAW_LISTS = 5
"""A list that says the same for this long, this often, is believed after all."""
LOOK_EXTRA = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Record:
    """What a sweep needs of a machine row."""

    id: MachineId
    launch_key: str
    provider_ref: str | None
    state: MachineState
    asked_at: datetime | None
    """When the launch was asked for; a list asked for earlier cannot show it."""
    sighted_at: datetime | None
    missed_since: datetime | None
    missed_lists: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What a sweep needs of a sighting."""

    provider_ref: str
    launch_key: str


@dataclass(frozen=True, slots=True)
class Findings:
    found: tuple[tuple[Record, Listed], ...]
    missed: tuple[Record, ...]
    orphans: tuple[Listed, ...]
    """Machines with our launch keys that no open record claims."""
    foreign: int
    """Machines of other installations on the same account; never touched."""


def match(
    records: Iterable[Record], listing: Sequence[Listed], *, installation: str, asked_at: datetime
) -> Findings:
    """Hold the open records of an account against one complete list that was asked for at `asked_at`.

    A machine is claimed by one record at most, by reference before by launch key: a provider may hand
    out a reference again, or list a machine twice, and two claims on one machine could not be written.
    """
    machines: dict[str, Listed] = {}
    by_key: dict[str, Listed] = {}
    for listed in listing:
        machines.setdefault(listed.provider_ref, listed)
    for listed in machines.values():
        by_key.setdefault(listed.launch_key, listed)

    found: list[tuple[Record, Listed]] = []
    missed: list[Record] = []
    claimed: set[str] = set()
    # Those that know their reference come first, in whatever order the records came.
    for record in sorted(records, key=lambda record: record.provider_ref is None):
        if record.state not in MAY_EXIST:
            continue
        here = machines.get(record.provider_ref) if record.provider_ref else by_key.get(record.launch_key)
        if here is not None and here.provider_ref not in claimed:
            found.append((record, here))
            claimed.add(here.provider_ref)
        elif record.asked_at is not None and record.asked_at < asked_at:
            missed.append(record)

    unclaimed = [listed for listed in machines.values() if listed.provider_ref not in claimed]
    orphans = tuple(one for one in unclaimed if installation_of(one.launch_key) == installation)
    return Findings(tuple(found), tuple(missed), orphans, foreign=len(unclaimed) - len(orphans))


@dataclass(frozen=True, slots=True)
class Odd:
    """The list misses too much to be believed at once."""

    why: str


def oddness(findings: Findings, listing_size: int) -> Odd | None:
    """Whether a list is too empty or too short to draw conclusions from.

    Only machines that were sighted before and that nobody asked to end are expected.
    """
    expected_found = sum(record.state in SHOULD_BE_SIGHTED for record, _ in findings.found)
    expected_missed = sum(
        record.state in SHOULD_BE_SIGHTED and record.sighted_at is not None for record in findings.missed
    )
    expected = expected_found + expected_missed
    if expected_missed == 0:
        return None
    if listing_size == 0:
        return Odd(f"The list is empty and {expected} machines should be on it.")
    if expected_missed > 1 and expected_missed * 2 > expected:
        return Odd(f"The list misses {expected_missed} of {expected} machines that should be on it.")
    return None


@dataclass(frozen=True, slots=True)
class Freeze:
    """An account on which absences are not believed for now."""

    since: datetime
    lists: int
    why: str


def freeze_after(before: Freeze | None, odd: Odd | None, *, now: datetime) -> Freeze | None:
    """The account's freeze after one more list. Thaws on a sane list, or when the odd one persists."""
    if odd is None:
        return None
    if before is None:
        return Freeze(now, 1, odd.why)
    if now - before.since >= THAW_AFTER and before.lists + 1 >= THAW_LISTS:
        return None
    return Freeze(before.since, before.lists + 1, odd.why)


def look_for(list_lag_seconds: float) -> timedelta:
    """How long a launch whose answer was lost is looked for before the lease tries elsewhere.

    Its record stays open for longer: see `absence_proves_gone`.
    """
    return timedelta(seconds=2 * list_lag_seconds) + LOOK_EXTRA


def absence_proves_gone(
    record: Record, *, list_lag_seconds: float, boot_seconds_max: float, now: datetime
) -> bool:
    """Whether missing from complete lists is proof enough that no machine lives.

    A machine that was sighted is gone when two lists, apart by the list's lag, miss it. One that
    was never sighted may still be on its way: it has to stay away for a whole boot as well.
    """
    if record.missed_since is None or record.missed_lists < MISSED_LISTS_MIN or record.asked_at is None:
        return False
    lag = timedelta(seconds=list_lag_seconds)
    if now - record.missed_since < lag:
        return False
    if record.sighted_at is not None:
        return True
    return now - record.asked_at >= lag + timedelta(seconds=boot_seconds_max)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A sighting that no open record claims, with how long we have watched it."""

    provider_ref: str
    launch_key: str
    first_seen_at: datetime
    lists_seen: int


@dataclass(frozen=True, slots=True)
class OrphanVerdict:
    end: tuple[Orphan, ...]
    refused_why: str | None = None


def orphans_to_end(
    orphans: Sequence[Orphan], *, listing_size: int, frozen_why: str | None, now: datetime
) -> OrphanVerdict:
    """Which orphans to end now: old enough, seen twice, few enough, and never on a frozen account."""
    ripe = [
        orphan
        for orphan in orphans
        if orphan.lists_seen >= MISSED_LISTS_MIN and now - orphan.first_seen_at >= ORPHAN_GRACE
    ]
    if not ripe:
        return OrphanVerdict(())
    if frozen_why is not None:
        return OrphanVerdict((), f"The account is frozen: {frozen_why}")
    if len(ripe) > 3 and len(ripe) * 100 > listing_size * ORPHAN_SHARE_MAX_PERCENT:
        return OrphanVerdict(
            (),
            f"{len(ripe)} of {listing_size} machines look like orphans; that is more likely our own loss of memory.",
        )
    ripe.sort(key=lambda orphan: (orphan.first_seen_at, orphan.provider_ref))
    return OrphanVerdict(tuple(ripe[:ORPHANS_PER_RUN_MAX]))
