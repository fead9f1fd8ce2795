"""In which order the actions of one run are taken over all leases, and what has no room."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control_plane.domain.enforcement import (
    BOUNDED,
    INTERRUPTS,
    Basis,
    Bounds,
    Case,
    Detector,
    EnforcementAction,
    StopMachine,
    Take,
    degradation_order,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An action that somebody has to have room for."""

    case: Case
    step: Take | StopMachine


def in_order(wanted: Sequence[Wanted]) -> list[Wanted]:
    """In the order in which they are taken, which depends on nothing but the leases and the detectors."""
    detectors = list(Detector)
    return sorted(
        wanted, key=lambda each: (*degradation_order(each.case.lease), detectors.index(each.case.detector))
    )


@dataclass
class _Room:
    """What was taken in a run so far."""

    taken: int = 0
    of_place: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    stops_of_place: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])


@dataclass
class Run:
    """What the actions of one run share.

    What is only decided has the same bounds, and takes no room from what is done.
    """

    bounds: Bounds
    customers: Mapping[tuple[str, str], int]
    """How many customers have leases in each account and region."""
    affected: Mapping[tuple[str, str, Detector], int]
    """For how many of them a condition of some lease holds."""
    done: _Room = field(default_factory=_Room)
    decided: _Room = field(default_factory=_Room)

    def held_back(self, wanted: Wanted) -> str | None:
        """Why an action is not taken now; None when it is, and then it is counted.

        Notices and credits are never held back: they change nothing of the lease.
        """
        step, place = wanted.step, wanted.case.lease.place
        action = EnforcementAction.SHUTDOWN if isinstance(step, StopMachine) else step.action
        if action not in BOUNDED:
            return None
        room = self.done if wanted.case.armed else self.decided
        held = self._of_many(wanted.case, step.present.basis) or self._full(room, place, action)
        if held is None:
            self.count(place, action, 1, armed=wanted.case.armed)
        return held

    def count(self, place: tuple[str, str], action: EnforcementAction, actions: int, *, armed: bool) -> None:
        """Count actions that were taken, in this run or by other processes at about the same time."""
        room = self.done if armed else self.decided
        room.taken += actions
        room.of_place[place] += actions
        room.stops_of_place[place] += actions if action in INTERRUPTS else 0

    def _full(self, room: _Room, place: tuple[str, str], action: EnforcementAction) -> str | None:
        if room.taken >= self.bounds.actions_per_run:
            return f"{room.taken} actions were taken in this run"
        if room.of_place[place] >= self.bounds.actions_per_region:
            return f"{room.of_place[place]} actions were taken in this run in {place[1]}"
        if action in INTERRUPTS and room.stops_of_place[place] >= self.bounds.stops_per_region:
            return f"{room.stops_of_place[place]} leases in {place[1]} were interrupted in this run"
        return None

    def _of_many(self, case: Case, basis: Basis) -> str | None:
        """The same claim of many customers' machines is more likely our mistake.

        Customers are counted, because machines of one often do the same: a job that ends leaves all of them idle. So
        what somebody's own machines claim keeps no one else from being helped.
        """
        if basis is Basis.OURS:
            return None
        account, region = case.lease.place
        affected, customers = (
            self.affected.get((account, region, case.detector), 0),
            self.customers.get((account, region), 0),
        )
        allowed = max(self.bounds.always_allowed, -(-customers // self.bounds.share_per_region))
        if affected <= allowed:
            return None
        return (
            f"machines of {affected} of {customers} customers in {region} show the same, more than {allowed}"
        )
