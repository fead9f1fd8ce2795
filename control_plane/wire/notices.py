"""What customers are told about the machines of their leases."""

from typing import Annotated

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText, one_of

NoticeKindWord = Annotated[
    str,
    one_of(
        "NoticeKind",
        "What a notice is about.",
        fault_found="Something is wrong with the machine.",
        recovered="The machine is healthy again.",
        reset_planned="The machine will be rebooted, not before `planned_at`.",
        reset_recommended="A reboot may end the fault. Nothing happens unless you reboot it.",
        replacement_planned="The lease gets another machine, not before `planned_at`, and its disk will be gone. Or it"
        " is a node's: the node is drained, not before `planned_at`, and its node pool gets another one.",
        replacement_recommended="Another machine would end the fault. Nothing happens unless you ask for it.",
        replaced="The machine was taken away, and the lease, or its node pool, gets another one.",
        preemption_planned="The lease is interruptible, and we take its machine back at `planned_at`.",
        preemption_withdrawn="The machine is not taken back after all.",
        preempted="The machine was taken back for a lease whose readiness is promised.",
        condition_found="Something about how the lease runs; the message says what is asked of its workload.",
        stop_planned="The machine will be stopped at `planned_at`, as you wanted for machines that are idle.",
        term_ending="The term that the lease was committed to ends at `planned_at`, and the lease with it.",
        maintenance_planned="Somebody works on the machine at `planned_at`.",
        maintenance_withdrawn="The work that the machine's provider planned will not happen.",
    ),
]


class NoticeView(View):
    """Something that the customer of a lease was told about its machine."""

    lease_id: LeaseIdText
    """The lease."""
    machine_id: MachineIdText
    """The machine, which the lease may have no longer."""
    at: Timestamp
    """When it was told."""
    kind: NoticeKindWord
    """What it is about."""
    message: str
    """The notice as a sentence."""
    planned_at: Timestamp | None
    """When what is announced will happen at the earliest; null for what happened already or is only recommended."""


class NoticePage(View):
    """The notices of a lease, the latest first."""

    items: tuple[NoticeView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""
