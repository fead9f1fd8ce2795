"""Work that providers plan on machines: what they announce, and what a new list of it changes.

A list is complete, so what it no longer has is over or called off. One list alone does not show that: an announcement
ends when two lists in a row lack it, as of the first of them. Where lists lack most of what is to come, of several
announcements, that is more likely their fault, and they are believed when they have lacked it for an hour.

A customer is told of each announcement once, and again when its time changes. Work that is brought forward counts as
announced anew, so that a promised notice is measured against the time that was told last. Work that is put off keeps
the moment of its announcement, because its customer has known of it since then.

A list is believed within bounds, because customers are told what it says: a time that no work can have is none, one
that moves by seconds has not moved, and of a machine few announcements count.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import MachineId, ProviderRef

PAST_MAX, AHEAD_MAX = timedelta(days=90), timedelta(days=2 * 366)
"""How long ago work may have begun that is not over, and how far ahead it may be. Programs write the year 1 where they
know no time."""
SAME_WITHIN = timedelta(minutes=1)
"""Times that differ by less are the same: customers read minutes."""
PER_MACHINE_MAX = 8
"""Announcements of a machine that count: those that are known, and then the soonest."""
TOLD_MAX, TOLD_WITHIN = 4, timedelta(hours=6)
"""Of how many announcements and changes a customer is told within this time, for each machine. What is still true later
is told then."""


DOUBTED_FROM = 3
"""Lists that lack so many announcements of what is to come, and most of them, are doubted."""
DOUBTED_FOR = timedelta(hours=1)
RESUMED_WITHIN = timedelta(days=1)
"""How long after it was taken to be over, work under way that lists have again is the same."""


class WorkKind(StrEnum):
    """What a provider will do to a machine."""

    REBOOT = "reboot"
    STOP = "stop"
    """It is stopped; a later start puts it on other hardware."""
    RETIREMENT = "retirement"
    """Its hardware is taken out of service, and the machine is stopped or ended."""
    NETWORK_OR_POWER = "network_or_power"
    """It is cut off for a while, or rebooted."""


WORDS: Mapping[WorkKind, str] = {
    WorkKind.REBOOT: "it will be rebooted",
    WorkKind.STOP: "it will be stopped",
    WorkKind.RETIREMENT: "its hardware will be retired, and it will be stopped or ended",
    WorkKind.NETWORK_OR_POWER: "its network or its power will be worked on",
}


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """One announcement of a provider about one machine, which is not over."""

    provider_ref: ProviderRef
    event: str
    """The provider's id of it."""
    kind: WorkKind
    native_kind: str
    """The provider's own word."""
    begins_at: datetime
    """The earliest time of the work; in the past while it is under way."""

    @property
    def why(self) -> str:
        """What will happen, for the machine's customer."""
        return f"{WORDS[self.kind]} ({self.native_kind})"


@dataclass(frozen=True, slots=True)
class Announced:
    """An announcement that is stored, and not over."""

    id: UUID
    machine_id: MachineId
    event: str
    why: str
    planned_at: datetime
    unlisted_at: datetime | None
    """When a list lacked it for the first time; None while the last one has it."""
    machine_ended: bool = False
    """Whether its machine has failed or ended, so that it concerns nobody any more."""


@dataclass(frozen=True, slots=True)
class New:
    """Work that is to be stored as announced now."""

    machine_id: MachineId
    work: PlannedWork

    def is_under_way(self, now: datetime) -> bool:
        """Whether it has begun. If it was announced before, lists have lacked it for a while, and it was not over."""
        return self.work.begins_at <= now


@dataclass(frozen=True, slots=True)
class PutOff:
    """Announced work that comes later than was told, or is described in another way."""

    id: UUID
    machine_id: MachineId
    planned_at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An announcement that is over."""

    announced: Announced
    at: datetime
    called_off: bool
    """Whether the work will not happen. Otherwise it was done, or is announced in another way, or its machine is gone.
    """


@dataclass(frozen=True, slots=True)
class Changes:
    """What a list changes."""

    ended: tuple[Ended, ...] = ()
    new: tuple[New, ...] = ()
    put_off: tuple[PutOff, ...] = ()
    unlisted: tuple[UUID, ...] = ()
    """Announcements that a list lacks for the first time."""
    listed_again: tuple[UUID, ...] = ()
    left_out: int = 0
    """Announcements about machines of ours that do not count: their times are impossible, or they are too many."""

    @property
    def count(self) -> int:
        return len(self.ended) + len(self.new) + len(self.put_off)


def changes(
    known: Iterable[Announced],
    listed: Sequence[PlannedWork],
    machines: Mapping[ProviderRef, MachineId],
    now: datetime,
) -> Changes:
    """What a complete list of an account's planned work changes. Work on what is no machine of ours is left out."""
    stored = {(each.machine_id, each.event): each for each in known}
    ours = [work for work in listed if work.provider_ref in machines]
    shown = _shown(ours, stored, machines, now)
    ended: list[Ended] = []
    new: list[New] = []
    for key, work in shown.items():
        before = stored.get(key)
        if before is not None and work.begins_at >= before.planned_at:
            continue
        if before is not None and before.planned_at <= now:
            continue  # It is under way: when exactly it began changes nothing.
        if before is not None:
            ended.append(Ended(before, now, called_off=False))
        new.append(New(key[0], work))
    replaced = {each.announced.id for each in ended}
    kept = {key: each for key, each in stored.items() if key in shown and each.id not in replaced}
    of_gone = [each for each in stored.values() if each.machine_ended]
    lacking = [each for key, each in stored.items() if key not in shown and not each.machine_ended]
    to_come = [each for each in stored.values() if each.planned_at > now and not each.machine_ended]
    missed = sum(each.planned_at > now for each in lacking)
    doubted = missed >= DOUBTED_FROM and 2 * missed > len(to_come)
    still_planned = {(machine_id, work.begins_at) for (machine_id, _), work in shown.items()}
    return Changes(
        ended=(
            *ended,
            *(Ended(each, now, called_off=False) for each in of_gone),
            *(
                Ended(
                    each, each.unlisted_at, called_off=_is_called_off(each, each.unlisted_at, still_planned)
                )
                for each in lacking
                if each.unlisted_at is not None and not (doubted and _may_come_back(each, now))
            ),
        ),
        new=tuple(new),
        put_off=tuple(
            PutOff(each.id, each.machine_id, max(work.begins_at, each.planned_at), work.why)
            for key, each in kept.items()
            for work in (shown[key],)
            if work.begins_at > each.planned_at or work.why != each.why
        ),
        unlisted=tuple(each.id for each in lacking if each.unlisted_at is None),
        listed_again=tuple(each.id for each in kept.values() if each.unlisted_at is not None),
        left_out=len(ours) - len(shown),
    )


_Key = tuple[MachineId, str]
"""A machine, and the provider's id of an announcement about it."""


def _shown(
    ours: Iterable[PlannedWork],
    stored: Mapping[_Key, Announced],
    machines: Mapping[ProviderRef, MachineId],
    now: datetime,
) -> dict[_Key, PlannedWork]:
    """The announcements that count, with the time that is stored where the one that is listed says nothing new."""
    keyed = [((machines[work.provider_ref], work.event), work) for work in ours]
    shown: dict[_Key, PlannedWork] = {}
    of_machine: Counter[MachineId] = Counter()
    for key, work in sorted(keyed, key=lambda each: (each[0] not in stored, each[1].begins_at)):
        before = stored.get(key)
        is_possible = now - PAST_MAX <= work.begins_at <= now + AHEAD_MAX
        if key in shown or (before is None and (not is_possible or of_machine[key[0]] >= PER_MACHINE_MAX)):
            continue
        of_machine[key[0]] += 1
        moves = before is None or (is_possible and abs(work.begins_at - before.planned_at) >= SAME_WITHIN)
        shown[key] = work if before is None or moves else replace(work, begins_at=before.planned_at)
    return shown


def _may_come_back(announced: Announced, now: datetime) -> bool:
    """It is to come, and lists have lacked it for a short time."""
    since = announced.unlisted_at or now
    return announced.planned_at > now and now - since < DOUBTED_FOR


def _is_called_off(
    announced: Announced, at: datetime, still_planned: Collection[tuple[MachineId, datetime]]
) -> bool:
    """It was not due yet, and nothing is planned on the machine for that time under another id."""
    return at < announced.planned_at and (announced.machine_id, announced.planned_at) not in still_planned


def announcement(why: str, planned_at: datetime) -> str:
    """What the customer of a machine is told of its provider's work."""
    return f"The machine's provider plans work on it: {timed(why, planned_at)}."


def timed(why: str, planned_at: datetime) -> str:
    """What is planned, and when it begins at the earliest."""
    return f"{why}, not before {planned_at:%Y-%m-%d %H:%M} UTC"


def withdrawal(planned_at: datetime) -> str:
    return f"The work that its provider planned for {planned_at:%Y-%m-%d %H:%M} UTC will not happen."
