"""A child is what a launch made beside its machine, such as a start-up script or a volume, and when it is deleted.

A child outlives its machine, costs money or holds a secret, and a launch whose answer was lost may leave one without
a machine. It is deleted when its machine does not need it any more, which only the machine's record tells. A child
whose launch key has no record on its account is never touched: it belongs to another installation or to a foreign
tool, or our records were lost. An operator who has looked may decide that it is deleted all the same.

A record never returns to an earlier state, so an old backup only keeps children for longer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, zip_longest

from control_plane.domain.freeze import Odd, shrunk
from control_plane.domain.ids import LaunchKey, MachineId, installation_of
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.orphan import LEAK_MAX, SHARE_MAX_PERCENT
from control_plane.domain.progress import Step

DELETED_PER_RUN_MAX = 10


class Needed(StrEnum):
    """Until when a machine needs one of its children."""

    UNTIL_BOOT = "until_boot"
    """Until it booted: a start-up script, which may also hold its private host key."""
    WHILE_IT_EXISTS = "while_it_exists"


@dataclass(frozen=True, slots=True)
class ChildKey:
    """What identifies a child on an account. A provider may use an id again, and a launch key never returns."""

    kind: str
    ref: str
    launch_key: LaunchKey


@dataclass(frozen=True, slots=True)
class Child:
    """Something that a launch of ours made beside its machine, and that outlives it: a script, a volume, an address."""

    ref: str
    kind: str
    """In the provider's word, such as `startup_script`."""
    launch_key: LaunchKey
    needed: Needed
    cost_nano_per_hour: Nano | None = None
    """What the provider charges while it exists; None where it does not say."""

    @property
    def key(self) -> ChildKey:
        return ChildKey(self.kind, self.ref, self.launch_key)


@dataclass(frozen=True, slots=True)
class Parent:
    """What our records tell about the machine of a launch key."""

    machine_id: MachineId
    launch_key: LaunchKey
    state: MachineState
    step: Step
    gone_at: datetime | None
    """When the last of its machines was gone: a launch that we took for refused may have made one all the same, which
    was then an orphan. None while one of them may exist."""


@dataclass(frozen=True, slots=True)
class Unneeded:
    child: Child
    machine_id: MachineId | None
    """None where no record has its launch key, and an operator decided."""
    why: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """A child that no machine needs, or whose machine is not on record: a liability until it is gone."""

    ref: str
    kind: str
    launch_key: LaunchKey
    machine_id: MachineId | None
    """None where no record has its launch key."""
    cost_nano_per_hour: Nano | None
    why: str
    """Why it is still there."""
    gone_at: datetime | None = None
    """When its machine was gone; None where no record has its launch key."""

    @property
    def key(self) -> ChildKey:
        return ChildKey(self.kind, self.ref, self.launch_key)


@dataclass(frozen=True, slots=True)
class ListedChild:
    """A child of ours on a list, with what finance keeps of it."""

    kind: str
    ref: str
    launch_key: LaunchKey
    machine_id: MachineId | None
    """None while its machine may need it, and where no record has its launch key."""
    nano_per_hour: Nano | None
    """What the provider charges for it; None where it does not say."""
    left_at: datetime | None
    """Since when it serves nobody: when its machine was gone, or when it was listed where its machine is there and does
    not need it, or no record has its launch key. None while its machine may need it."""


def oddness(expected: Collection[ChildKey], listed: Sequence[Child]) -> Odd | None:
    """Why a list of children is not believed: it is empty, or misses too many of those that should be on it.

    Expected are those that no machine needs and whose deletion the provider has not accepted: nothing of ours removes
    them. By such a list, nothing is deleted and no liability forgotten.
    """
    there = {child.key for child in listed}
    missing = sum(key not in there for key in expected)
    if not missing or (listed and not shrunk(missing, len(expected))):
        return None
    if not listed:
        return Odd(f"The list is empty and {len(expected)} children should be on it.", missing)
    return Odd(f"The list misses {missing} of {len(expected)} children that should be on it.", missing)


def listed_children(
    children: Sequence[Child], leftovers: Sequence[Leftover], *, installation: str, now: datetime
) -> list[ListedChild]:
    """The children of ours on the list of `now`, of which `leftovers` are not needed."""
    left = {leftover.key: leftover for leftover in leftovers}
    found = list[ListedChild]()
    for child in children:
        if installation_of(child.launch_key) != installation:
            continue
        leftover = left.get(child.key)
        found.append(
            ListedChild(
                kind=child.kind,
                ref=child.ref,
                launch_key=child.launch_key,
                machine_id=leftover.machine_id if leftover else None,
                nano_per_hour=child.cost_nano_per_hour,
                left_at=(leftover.gone_at or now) if leftover else None,
            )
        )
    return found


UNRECORDED_WHY = (
    "No record of this account has its launch key, so it is not deleted: look at the provider's console."
)


@dataclass(frozen=True, slots=True)
class Sorted:
    """What becomes of the children on one list."""

    delete: tuple[Unneeded, ...]
    held: Mapping[str, int]
    """How many children are not needed and kept all the same, by the reason."""
    unrecorded: tuple[Child, ...]
    """Children with launch keys of this installation that no record of the account has, and no operator decided on."""
    leftovers: tuple[Leftover, ...]
    """All that are not needed, and those without a record."""


def to_delete(
    children: Sequence[Child],
    parents: Mapping[LaunchKey, Parent],
    *,
    installation: str,
    frozen_why: str | None,
    armed: bool,
    decided: Collection[ChildKey],
    late: timedelta,
    now: datetime,
) -> Sorted:
    """Which children of an account are deleted now.

    `decided` are those that an operator decided to delete, whatever holds them back. What a machine needs stays all
    the same.

    `late` is the longest time from a launch until its machine is listed and runs. `frozen_why` is None unless the
    account is frozen: then no absence counts, and a child may belong to a machine that the list does not show. While
    the account is not `armed`, only start-up scripts are deleted, which belong to launches of ours and hold keys.
    """
    ours = [child for child in children if installation_of(child.launch_key) == installation]
    unrecorded = tuple(
        child for child in ours if child.launch_key not in parents and child.key not in decided
    )
    unneeded, held = [], dict[str, int]()
    left = [_leftover(child, None, UNRECORDED_WHY) for child in unrecorded]
    for child in sorted(ours, key=lambda child: (child.kind, child.ref)):
        parent = parents.get(child.launch_key)
        why = None if parent is None else _unneeded(child, parent, late, now)
        if child.key in decided and (parent is None or why is not None):
            machine_id = None if parent is None else parent.machine_id
            left.append(_leftover(child, parent, f"Its deletion is requested every minute: {_DECIDED}."))
            unneeded.append(Unneeded(child, machine_id, _DECIDED))
            continue
        if parent is None or why is None:
            continue
        hold = _hold(child, len(unrecorded), len(ours), frozen_why, armed=armed)
        left.append(_leftover(child, parent, hold or f"Its deletion is requested every minute: {why}."))
        if hold is None:
            unneeded.append(Unneeded(child, parent.machine_id, why))
        else:
            held[hold] = held.get(hold, 0) + 1
    delete = _turn(unneeded, now)
    if len(unneeded) > len(delete):
        held[_NEXT] = len(unneeded) - len(delete)
    return Sorted(delete, held, unrecorded, tuple(left))


def _leftover(child: Child, parent: Parent | None, why: str) -> Leftover:
    machine_id, gone_at = (parent.machine_id, parent.gone_at) if parent else (None, None)
    return Leftover(
        child.ref, child.kind, child.launch_key, machine_id, child.cost_nano_per_hour, why, gone_at
    )


_DECIDED = "an operator decided so"
_NEXT = f"At most {DELETED_PER_RUN_MAX} are deleted per run."


def _unneeded(child: Child, parent: Parent, late: timedelta, now: datetime) -> str | None:
    """Why a machine does not need one of its children any more; None while it may."""
    if child.needed is Needed.UNTIL_BOOT:
        if parent.state in (MachineState.TERMINATING, MachineState.GONE):
            return "its machine is over"
        return "its machine was reached over SSH" if parent.step in _REACHED else None
    if parent.state is MachineState.GONE and parent.gone_at is not None and now - parent.gone_at >= late:
        return f"its machine is gone since {parent.gone_at.isoformat(timespec='seconds')}"
    return None


_REACHED = frozenset(step for step in Step if step not in (Step.PLACED, Step.LAUNCHED, Step.BOOTED))


def _hold(child: Child, unrecorded: int, ours: int, frozen_why: str | None, *, armed: bool) -> str | None:
    """Why a child is kept although its machine does not need it."""
    if unrecorded > LEAK_MAX and unrecorded * 100 > ours * SHARE_MAX_PERCENT:
        return (
            f"{unrecorded} of {ours} children have no record; it is more likely that our records were lost."
        )
    if frozen_why is not None and child.needed is Needed.WHILE_IT_EXISTS:
        return f"The account is frozen: {frozen_why}"
    if not armed and child.needed is Needed.WHILE_IT_EXISTS:
        return "The account is not armed: this only shows what would be deleted."
    return None


def _turn(unneeded: Sequence[Unneeded], now: datetime) -> tuple[Unneeded, ...]:
    """As many as one run may delete, of every kind some. Each minute begins elsewhere, so that some that stay keep no
    other waiting.
    """
    kinds = [list(group) for _, group in groupby(unneeded, key=lambda each: each.child.kind)]
    share = max(1, DELETED_PER_RUN_MAX // max(1, len(kinds)))
    minute = int(now.timestamp()) // 60
    rounds = zip_longest(*(_from(group, minute * share) for group in kinds))
    mixed = [each for together in rounds for each in together if each is not None]
    return tuple(mixed[:DELETED_PER_RUN_MAX])


def _from(unneeded: Sequence[Unneeded], begin: int) -> Sequence[Unneeded]:
    """All of them, beginning at a place that may lie behind the last one."""
    begin %= len(unneeded)
    return [*unneeded[begin:], *unneeded[:begin]]
