"""Providers' status words, normalised, and what follows from them for a machine."""

from enum import StrEnum

from control_plane.domain.machine import MachineEvent, MachineState


class ListedState(StrEnum):
    """What a provider says of a machine. An unknown word maps to UNKNOWN, never to GONE."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDING = "ending"
    GONE = "gone"
    """The provider says explicitly that the machine was terminated."""
    FAILED = "failed"
    UNKNOWN = "unknown"


_SETTING_UP = frozenset({MachineState.BOOTING, MachineState.BOOTSTRAPPING})


def concluded(state: MachineState, listed: ListedState, *, has_address: bool) -> MachineEvent | None:
    """What one sighting means for a machine in `state`; None when it only confirms what is known.

    A verified machine that the provider calls failed or stopped is left alone here: losing health is
    not ending, and the customer may still be on it (law 5).
    """
    if state is MachineState.LAUNCHING:
        return MachineEvent.FOUND  # Whatever became of it, it exists: first of all we know its reference.
    if listed is ListedState.GONE:
        return MachineEvent.CONFIRMED_GONE if state is MachineState.TERMINATING else MachineEvent.VANISHED
    if listed in (ListedState.FAILED, ListedState.STOPPED) and state in _SETTING_UP:
        return MachineEvent.FAILED
    if state is MachineState.BOOTING and listed is ListedState.RUNNING and has_address:
        return MachineEvent.REACHABLE
    return None
