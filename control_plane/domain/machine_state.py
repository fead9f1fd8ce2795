"""Providers' status words, normalised, and what follows from them for an instance."""

from enum import StrEnum

from control_plane.domain.instance import InstanceEvent, InstanceState


class MachineState(StrEnum):
    """What a provider says of a machine. An unknown word maps to UNKNOWN, never to GONE."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDING = "ending"
    GONE = "gone"
    """The provider says explicitly that the machine was terminated."""
    FAILED = "failed"
    UNKNOWN = "unknown"


_SETTING_UP = frozenset({InstanceState.BOOTING, InstanceState.BOOTSTRAPPING})


def concluded(state: InstanceState, listed: MachineState, *, has_address: bool) -> InstanceEvent | None:
    """What one sighting means for an instance in `state`; None when it only confirms what is known.

    A verified machine that the provider calls failed or stopped is left alone here: losing health is
    not ending, and the customer may still be on it (law 5).
    """
    if state is InstanceState.LAUNCHING:
        return InstanceEvent.FOUND  # Whatever became of it, it exists: first of all we know its reference.
    if listed is MachineState.GONE:
        return InstanceEvent.CONFIRMED_GONE if state is InstanceState.ENDING else InstanceEvent.VANISHED
    if listed in (MachineState.FAILED, MachineState.STOPPED) and state in _SETTING_UP:
        return InstanceEvent.FAILED
    if state is InstanceState.BOOTING and listed is MachineState.RUNNING and has_address:
        return InstanceEvent.REACHABLE
    return None
