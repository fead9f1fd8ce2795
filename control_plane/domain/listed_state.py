"""The states that a machine can have on its provider's list, in our words."""

from enum import StrEnum


class ListedState(StrEnum):
    """A machine's state as its provider lists it. An unknown status word maps to UNKNOWN, never to GONE."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDING = "ending"
    GONE = "gone"
    """The provider says explicitly that the machine was terminated."""
    FAILED = "failed"
    OFF_OR_FAILED = "off_or_failed"
    """It does not run, in a word that the provider has for its own failures and for machines that were shut down from
    inside."""
    STOPPED_BY_PROVIDER = "stopped_by_provider"
    """The provider stopped it, and says so. It can be started like any other one that is stopped."""
    SOLD_OUT = "sold_out"
    """The provider accepted the order and found later that it has no place for it. Nothing runs."""
    UNKNOWN = "unknown"
