"""The journal of a lease."""

from typing import Annotated

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import ActorKindWord, MachineIdText, one_of

JournalEventWord = Annotated[
    str,
    one_of(
        "JournalEventName",
        "What happened. Where it can happen to a lease and to a machine, `machine_id` tells which of them it was.",
        admitted="The request was admitted as a lease.",
        placed="An offer was chosen for the lease.",
        attempt_failed="A try to serve the lease failed.",
        verified="The machine is what was ordered; the lease: its machine can be used, and the bill starts.",
        labelled="The labels of the lease were replaced.",
        changed="What a waiting lease asks for was changed, or when it is released by itself.",
        funding_warned="The balance will not pay for the lease much longer.",
        envelope_warned="The lease is outside of an envelope.",
        envelope_cleared="The lease is within its envelopes again.",
        released="The customer released the lease; the machine: no lease uses it any more.",
        auto_released="A limit was reached that the customer had set for the lease.",
        gave_up="No offer was left for the lease, or it waited too long.",
        unfunded="The balance did not pay for the lease any more.",
        machine_lost="The machine of the ready lease is gone, or was taken away from its node pool.",
        evicted="The provider took the machine of the ready lease back, and the lease ended.",
        preempted="We took the machine of the ready interruptible lease back, and the lease ended.",
        preemption_planned="A machine will be taken back for a lease whose readiness is promised; `why` says when.",
        preemption_withdrawn="No machine is taken back after all; `why` says what changed.",
        preemption="A machine was taken back for a lease whose readiness is promised; `why` says how far that is.",
        replacing="The machine of the ready lease was taken back or taken away, and the lease waits for another one.",
        proof_failed="The lease: its machine failed two challenges in a row; the machine: it failed a challenge.",
        organization_suspended="The organization of the lease was suspended for a reason that ends leases.",
        organization_closed="The organization of the lease was closed.",
        envelope_exceeded="The lease was outside of an envelope for longer than the grace after the warning.",
        ended_by_operator="An operator ended the lease; `why` has the reason.",
        use_not_billed="A part of the use is not billed; `why` says which.",
        machines_gone="The provider confirmed the end of every machine of the lease.",
        intended="The machine was chosen, and nothing had been requested from the provider yet.",
        asked="The machine was requested from the provider.",
        rejected="The provider refused the order.",
        put_back="The order did not reach the provider, or the provider was too busy; it is repeated.",
        launch_answer_lost="The provider's answer was lost; its lists are searched for the machine.",
        accepted="The provider accepted the order.",
        found="The answer had been lost, and the provider lists the machine.",
        reference_learnt="The provider's answer to the order came late, when the machine was no longer wanted.",
        machine_exchanged="An operator gave the order another machine that the provider made for it.",
        reachable="The provider reports that the machine runs.",
        failed="The machine did not boot, did not answer, or is not what was ordered.",
        vanished="The provider does not list the machine any more.",
        disproven="The machine failed two challenges in a row after it had been verified.",
        confirmed_gone="The provider confirmed that the machine is gone.",
        never_asked="The machine was given up before it was requested from the provider.",
        proof_passed="The GPUs of the machine passed a challenge.",
        proof_unanswered="The machine did not answer a challenge.",
        proof_skipped="The machine has no GPUs to read or to prove.",
        proof_emulated="The challenge was answered by an emulation.",
        proof_termination_held="The machine failed again, and is not terminated yet.",
        proof_doubt_lapsed="The machine could not be challenged again in time; billing resumes.",
        gpu_sold_twice="Another machine of the same provider account reports a GPU of this one.",
        gpu_shown_elsewhere="A machine of another provider account reports a GPU of this one.",
        memory_overwritten="The GPU memory was overwritten after the lease.",
        memory_not_shown_overwritten="It could not be shown that the GPU memory was overwritten after the lease.",
        address_changed="The machine has another address since.",
        machine_down="Its provider lists the machine as failed, stopped or ending, though nobody asked for that.",
        machine_up="The machine is no longer down: it runs again, or counts as stopped.",
        eviction_announced="The provider announced that it takes the machine back; it may still change its mind.",
        eviction_withdrawn="The machine still runs after the time at which its provider had announced to take it back.",
        planned_work="The provider announced work on the machine, or called it off; `why` says what and when.",
        enforcement="Something was found about the lease while it runs; `why` says what, and what is asked for.",
        health_changed="The verdict about the machine's health changed; `why` says from what to what, and why.",
        repair="A step of a repair of the machine was taken; `why` says which one.",
        power_requested="The customer asked to reboot, stop or start the machine.",
        power_changed="The machine was rebooted, stopped or started.",
        power_failed="The machine could not be rebooted, stopped or started; `why` says what happened.",
        node_key_change_requested="An operator asked for another WireGuard key of the node.",
        node_key_changed="The node uses another WireGuard key, as an operator asked.",
        envelope_held="An envelope that you set keeps the lease from being placed. Its promises stand still meanwhile.",
        envelope_passed="Your envelopes no longer keep the lease from being placed.",
        sla_breached="A promise of the lease was broken in a month; `GET /v1/leases/{id}/sla` has the evidence.",
        sla_credited="The balance got what is given back for a broken promise, or a correction of that.",
        sla_credit_waits="A part of what is given back for a broken promise waits until finance has decided; `why` says"
        " how much, and why.",
        sla_credit_refused="Finance refused the part that waited; `why` has the reason.",
        child_deletion_requested="The provider is asked to delete a child of the machine, such as its start-up script.",
    ),
]
JournalStateWord = Annotated[
    str,
    one_of(
        "JournalState",
        "A state of the machine if the line has a `machine_id`, and otherwise a state of the lease.",
        placing="The lease waits for a machine.",
        starting="A machine is being set up for the lease.",
        ready="The machine of the lease can be used, and the lease is billed.",
        ending="The lease is no longer billed; its machine is being terminated.",
        ended="The provider has confirmed that every machine of the lease is gone.",
        intended="The machine is chosen, and nothing has been requested from the provider.",
        launching="The machine is being ordered.",
        booting="The provider accepted the order.",
        bootstrapping="The machine runs and is being checked and set up.",
        verified="The machine is what was ordered.",
        terminating="The machine has to be terminated.",
        gone="The provider has confirmed that the machine is gone.",
    ),
]


class JournalLine(View):
    """One event in the life of a lease."""

    number: int
    """Identifies the line. Numbers grow, with gaps; a line that was committed late may come after a higher number."""
    at: Timestamp
    """When it happened."""
    actor_kind: ActorKindWord
    """Who did it."""
    actor: str
    """The id of the user or the service account, or the name of the loop."""
    request_id: str | None
    """The request that did it; null for loops."""
    event: JournalEventWord
    """What happened."""
    machine_id: MachineIdText | None
    """The machine that it is about; null when it is about the lease alone."""
    state_before: JournalStateWord | None
    """The state before, of the machine or the lease; null when no state changed."""
    state_after: JournalStateWord | None
    """The state after; null when no state changed."""
    why: str | None
    """The reason, as a sentence; null when there is nothing to add."""


class JournalPage(View):
    """A page of the journal."""

    items: tuple[JournalLine, ...]
    """The lines, oldest first."""
    next_cursor: NextCursor | None
