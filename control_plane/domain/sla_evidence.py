"""Where the evidence of a broken promise comes from: the machine, on which its customer has root, or elsewhere.

Answers of a machine over SSH and its GPU proofs are those of software that its customer may have changed. What its
provider lists, what an operator announced, and what our journal has, no customer can forge.
"""

from collections.abc import Collection
from dataclasses import replace

from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.ids import MachineId
from control_plane.domain.sla_clock import Facts, HealthChange, Used, covers, last_change

FROM_OUTSIDE = frozenset(
    {
        FaultCode.PROVIDER_DOWN,
        FaultCode.PROVIDER_MISSING,
        FaultCode.EVICTION_ANNOUNCED,
        FaultCode.UNDER_MAINTENANCE,
    }
)
"""Faults that a machine cannot show by itself: its provider, or an operator, says so. All others are read on the
machine, where its customer may have root."""


def from_outside(facts: Facts, confirmed: Collection[MachineId] = ()) -> Facts:
    """The facts without those that rest on what was read on a machine while its customer could change it.

    They show what is owed whatever the customer did there. `confirmed` are machines of which another source has shown
    that they are faulty: what was read on them counts.
    """

    def is_doubted(used: Used) -> bool:
        """Whether a machine was taken away for nothing but what was read on it."""
        last = None if used.until is None else last_change(facts.health, used.machine_id, used.until)
        return last is not None and is_inside(last, confirmed)

    taken = [used.until for used in facts.used if used.until is not None and is_doubted(used)]
    failures = [failure for failure in facts.failures if not any(covers(failure, at) for at in taken)]
    end, last_used = facts.end, max(facts.used, key=lambda used: used.since, default=None)
    if end is not None and end.by_us and last_used is not None:
        disproven = end.disproven and last_used.machine_id not in confirmed
        if disproven or is_doubted(last_used):
            failures = [(since, until) for since, until in failures if until is not None and until < end.at]
            end = replace(end, by_us=False)
    health = [
        replace(change, verdict=Verdict.HEALTHY, fault=None) if is_inside(change, confirmed) else change
        for change in facts.health
    ]
    return replace(facts, end=end, failures=failures, health=health)


def is_inside(change: HealthChange, confirmed: Collection[MachineId] = ()) -> bool:
    """Whether nothing but what was read on the machine says that it is faulty."""
    return (
        change.fault is not None and change.fault not in FROM_OUTSIDE and change.machine_id not in confirmed
    )
