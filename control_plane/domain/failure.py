"""Why an attempt failed or a machine is terminated: stable codes."""

from enum import StrEnum


class FailReason(StrEnum):
    NO_CAPACITY = "no_capacity"
    QUOTA_REACHED = "quota_reached"
    ORDER_REFUSED = "order_refused"
    UNAUTHORIZED = "unauthorized"
    LAUNCH_ANSWER_LOST = "launch_answer_lost"
    NOT_TAKEN = "not_taken"
    """The provider was too busy for the order, or unreachable, for too long."""
    NEVER_BOOTED = "never_booted"
    PROVIDER_REPORTED_FAILURE = "provider_reported_failure"
    NOT_RUNNING = "not_running"
    """It did not run any more, and its provider did not say that it had failed: somebody may have shut it down."""
    UNREACHABLE = "unreachable"
    HOST_KEY_CHANGED = "host_key_changed"
    SETUP_FAILED = "setup_failed"
    GPU_MISMATCH = "gpu_mismatch"
    PROOF_FAILED = "proof_failed"
    """Its GPUs failed their proof twice in a row, or prove less than was sold, or failed once and were not
    cleared while a customer waited."""
    PROOF_EMULATED = "proof_emulated"
    """An emulation answered instead of its GPUs."""
    NODE_FAILED = "node_failed"
    """It did not become a healthy node of its cluster in time."""
    NODE_LOST = "node_lost"
    """It was a node of a cluster, and stayed unready for too long."""
    NODE_HOSTILE = "node_hostile"
    """As a node of a cluster it claimed what it does not have."""
    VANISHED = "vanished"
    EVICTED = "evicted"
    """Its provider took it back, and says so: it was spot capacity."""
    UNHEALTHY = "unhealthy"
    """We saw a fault of it that takes away what was sold, or its customer handed it back because of one."""
    NOT_ATTENDED = "not_attended"
    """An outage of ours kept us from doing our part for hours. Neither the machine nor its provider is to blame."""
    LEASE_ENDED = "lease_ended"
    """The lease ended before the provider took the order."""


OURS = frozenset({FailReason.NOT_ATTENDED})
"""Reasons that say nothing about a machine, its offer or its provider, so nothing is concluded from them."""
