"""What customers are told about the machines of their leases."""

from enum import StrEnum


class NoticeKind(StrEnum):
    FAULT_FOUND = "fault_found"
    """Something is wrong with the machine."""
    RECOVERED = "recovered"
    RESET_PLANNED = "reset_planned"
    """It will be rebooted, at the stated time at the earliest."""
    RESET_RECOMMENDED = "reset_recommended"
    """A reboot may end the fault; the customer decides."""
    REPLACEMENT_PLANNED = "replacement_planned"
    """The lease will get another machine, at the stated time at the earliest."""
    REPLACEMENT_RECOMMENDED = "replacement_recommended"
    """Another machine would end the fault; the customer decides."""
    REPLACED = "replaced"
    """The machine was taken away, and the lease gets another one."""
    PREEMPTION_PLANNED = "preemption_planned"
    """We take the machine of an interruptible lease back at the stated time."""
    PREEMPTION_WITHDRAWN = "preemption_withdrawn"
    """That is not needed after all."""
    PREEMPTED = "preempted"
    """The machine was taken back."""
    MAINTENANCE_PLANNED = "maintenance_planned"
    """An operator or the provider will work on the machine at the stated time."""
