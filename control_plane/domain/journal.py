"""The journal's words: what its lines say has happened.

A line about a change of state has the event of the lease's or the machine's table as its word. All other lines have a
note.
"""

from enum import StrEnum

from control_plane.domain.lease import LeaseEvent, LeaseState
from control_plane.domain.machine import MachineEvent, MachineState
from control_plane.domain.proof import ProofOutcome


class Note(StrEnum):
    """What happens to a lease or a machine without an event of a state table."""

    ADMITTED = "admitted"
    LABELLED = "labelled"
    CHANGED = "changed"
    """The customer changed what a waiting lease asks for, or when it is released by itself."""
    FUNDING_WARNED = "funding_warned"
    ENVELOPE_WARNED = "envelope_warned"
    ENVELOPE_CLEARED = "envelope_cleared"
    ENVELOPE_HELD = "envelope_held"
    """The customer's own envelope keeps the lease from being placed, and its promises stand still."""
    ENVELOPE_PASSED = "envelope_passed"
    """It no longer does."""
    USE_NOT_BILLED = "use_not_billed"
    INTENDED = "intended"
    LAUNCH_ANSWER_LOST = "launch_answer_lost"
    REFERENCE_LEARNT = "reference_learnt"
    """The provider's answer to the launch came late, when the machine was to be terminated already."""
    MACHINE_EXCHANGED = "machine_exchanged"
    """An operator decided that a booting record has another machine of its launch, which the provider lists."""
    PROOF_PASSED = "proof_passed"
    PROOF_FAILED = "proof_failed"
    PROOF_UNANSWERED = "proof_unanswered"
    PROOF_EMULATED = "proof_emulated"
    PROOF_SKIPPED = "proof_skipped"
    PROOF_TERMINATION_HELD = "proof_termination_held"
    PROOF_DOUBT_LAPSED = "proof_doubt_lapsed"
    GPU_SOLD_TWICE = "gpu_sold_twice"
    GPU_SHOWN_ELSEWHERE = "gpu_shown_elsewhere"
    MEMORY_OVERWRITTEN = "memory_overwritten"
    MEMORY_NOT_SHOWN_OVERWRITTEN = "memory_not_shown_overwritten"
    ADDRESS_CHANGED = "address_changed"
    EVICTION_ANNOUNCED = "eviction_announced"
    EVICTION_WITHDRAWN = "eviction_withdrawn"
    PLANNED_WORK = "planned_work"
    """The provider announced work on the machine, or called it off."""
    PREEMPTION_PLANNED = "preemption_planned"
    """The interruptible lease yields its machine at the stated time, or the lease that waits gets one so."""
    PREEMPTION_WITHDRAWN = "preemption_withdrawn"
    PREEMPTION = "preemption"
    """A step on the way from the machine that was taken back to the one of the lease that waits."""
    MACHINE_DOWN = "machine_down"
    MACHINE_UP = "machine_up"
    HEALTH_CHANGED = "health_changed"
    REPAIR = "repair"
    """A step of a repair of the machine."""
    POWER_REQUESTED = "power_requested"
    POWER_CHANGED = "power_changed"
    POWER_FAILED = "power_failed"
    NODE_KEY_CHANGE_REQUESTED = "node_key_change_requested"
    """An operator asked for another WireGuard key of the lease's node."""
    NODE_KEY_CHANGED = "node_key_changed"
    ENFORCEMENT = "enforcement"
    """What was found about the lease while it runs, what is asked of its workload, and that it is over."""
    SLA_BREACHED = "sla_breached"
    """A promise of the lease was broken in a month."""
    SLA_CREDITED = "sla_credited"
    """The balance got what is given back for it, or a correction of that."""
    SLA_CREDIT_WAITS = "sla_credit_waits"
    """A part of what is given back waits until finance has decided."""
    SLA_CREDIT_REFUSED = "sla_credit_refused"
    """Finance refused the part that waited."""
    CHILD_DELETION_REQUESTED = "child_deletion_requested"
    """The provider is asked to delete what the launch made beside the machine, such as its start-up script."""


EVENTS = frozenset({*Note, *LeaseEvent, *MachineEvent})
"""Every word that a line may have."""
STATES = frozenset({*LeaseState, *MachineState})
"""Every state before or after a line: of the lease, or of the machine that it is about."""
OF_PROOF = {
    ProofOutcome.PASSED: Note.PROOF_PASSED,
    ProofOutcome.FAILED: Note.PROOF_FAILED,
    ProofOutcome.UNANSWERED: Note.PROOF_UNANSWERED,
    ProofOutcome.EMULATED: Note.PROOF_EMULATED,
}
"""The note of a stored proof, by its outcome."""
