"""Where the evidence of a broken promise comes from: the machine, on which its customer has root, or elsewhere.

Answers of a machine over SSH and its GPU proofs are those of software that its customer may have changed. What its
provider lists, what an operator announced, and what our journal has, no customer can forge.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum

from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.ids import MachineId
from control_plane.domain.sla_clock import Facts, HealthChange, Used, covers, last_change


class FactSource(StrEnum):
    """Where a fact is from."""

    JOURNAL = "journal"
    """Our journal: what we did, and when."""
    BILL = "bill"
    """Seconds that were not billed."""
    PROVIDER = "provider"
    """The lists of the machine's provider."""
    MACHINE = "machine"
    """What we read on the machine ourselves, on which its customer has root."""
    PROOF = "proof"
    """A GPU proof."""
    OPERATOR = "operator"
    CUSTOMER = "customer"


_SOURCES: Mapping[FaultCode, FactSource] = {
    FaultCode.PROOF_FAILED: FactSource.PROOF,
    FaultCode.PROVIDER_DOWN: FactSource.PROVIDER,
    FaultCode.PROVIDER_MISSING: FactSource.PROVIDER,
    FaultCode.EVICTION_ANNOUNCED: FactSource.PROVIDER,
    FaultCode.UNDER_MAINTENANCE: FactSource.OPERATOR,
    FaultCode.PROVIDER_MAINTENANCE: FactSource.PROVIDER,
    FaultCode.HANDED_BACK: FactSource.CUSTOMER,
}


def source_of(fault: FaultCode) -> FactSource:
    """Who says that a machine has a fault. What is not listed is read on the machine."""
    return _SOURCES.get(fault, FactSource.MACHINE)


FROM_OUTSIDE = frozenset(
    fault for fault in FaultCode if source_of(fault) in (FactSource.PROVIDER, FactSource.OPERATOR)
)
"""Faults that a machine cannot show by itself. All others rest on the machine, where its customer may have root, or on
the customer's word."""


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
