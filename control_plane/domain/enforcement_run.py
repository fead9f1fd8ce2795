"""In which order the actions of one run are taken over all leases, and what has no room."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control_plane.domain.enforcement import (
    INTERRUPTS,
    SIGNALS,
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
class Run:
    """What the actions of one run share."""

    bounds: Bounds
    customers: Mapping[tuple[str, str], int]
    """How many customers have leases in each account and region."""
    affected: Mapping[tuple[str, str, Detector], int]
    """For how many of them a condition of some lease holds."""
    taken: int = 0
    of_place: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    stops_of_place: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def held_back(self, wanted: Wanted) -> str | None:
        """Why an action is not taken now; None when it is, and then it is counted.

        Notices and credits are never held back: they change nothing of the lease.
        """
        step, place = wanted.step, wanted.case.lease.place
        action = EnforcementAction.SHUTDOWN if isinstance(step, StopMachine) else step.action
        if action not in SIGNALS:
            return None
        held = self._of_many(wanted.case, step.present.basis) or self._full(place, action)
        if held is None:
            self.taken += 1
            self.of_place[place] += 1
            self.stops_of_place[place] += action in INTERRUPTS
        return held

    def _full(self, place: tuple[str, str], action: EnforcementAction) -> str | None:
        if self.taken >= self.bounds.actions_per_run:
            return f"{self.taken} actions were taken in this run"
        if self.of_place[place] >= self.bounds.actions_per_region:
            return f"{self.of_place[place]} actions were taken in this run in {place[1]}"
        if action in INTERRUPTS and self.stops_of_place[place] >= self.bounds.stops_per_region:
            return f"{self.stops_of_place[place]} leases in {place[1]} were interrupted in this run"
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
