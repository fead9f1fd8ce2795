"""A sighting is a machine as its provider lists it now: its state in our vocabulary, and what follows from it."""

from collections.abc import Iterable
from dataclasses import dataclass

from control_plane.domain.eviction import Eviction, taken
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import SHOULD_BE_SIGHTED, Machine, MachineEvent, MachineState


@dataclass(frozen=True, slots=True)
class Sighting:
    """One machine on a provider's list. Only machines that carry a launch key are sightings."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    state: ListedState
    native_status: str
    """The provider's own status word."""
    address: str | None = None
    """IPv4 or IPv6 text; None while booting."""
    ssh_port: int = 22
    native_type: str | None = None
    """The provider's own word for what kind of machine it is; None where its list does not say."""
    eviction: Eviction | None = None
    """That the provider takes the machine back, as it says itself."""


@dataclass(frozen=True, slots=True)
class LateRefusal:
    """A launch that was accepted and failed before its machine ran: no list shows it, or one that says less."""

    provider_ref: ProviderRef
    """What the launch returned."""
    state: ListedState
    """SOLD_OUT, or FAILED for any other reason."""
    native_status: str
    """The provider's own word for the reason."""


NOT_RUNNING = frozenset(
    {ListedState.FAILED, ListedState.OFF_OR_FAILED, ListedState.STOPPED, ListedState.STOPPED_BY_PROVIDER}
)
_FAILED = NOT_RUNNING | {ListedState.SOLD_OUT}
_MAY_FAIL = frozenset({MachineState.BOOTING, MachineState.BOOTSTRAPPING, MachineState.VERIFIED})


def concluded(state: MachineState, listed: ListedState, *, has_address: bool) -> MachineEvent | None:
    """What one sighting means for a machine in `state`; None when it only confirms what is known.

    A verified machine that the provider lists as failed or stopped fails only while no customer was admitted to it
    (`machine_failure.move_of`): an unhealthy machine has not ended, and its customer may still be using it (law 5).
    """
    if state is MachineState.LAUNCHING:
        return MachineEvent.FOUND  # It exists, whatever its state: its reference is stored first.
    if listed is ListedState.GONE:
        return MachineEvent.CONFIRMED_GONE if state is MachineState.TERMINATING else MachineEvent.VANISHED
    if listed in _FAILED and state in _MAY_FAIL:
        return MachineEvent.FAILED
    if state is MachineState.BOOTING and listed is ListedState.RUNNING and has_address:
        return MachineEvent.REACHABLE
    return None


def ended_unasked(machine: Machine, sighting: Sighting) -> bool:
    """Whether a list shows a machine as ended that nobody asked to end: that needs the same proof as its absence.

    That its provider took it back is a second statement, and proof at once.
    """
    unasked = machine.state in SHOULD_BE_SIGHTED and sighting.state is ListedState.GONE
    return unasked and taken(machine, sighting.eviction) is None


def may_be_refused(machines: Iterable[Machine], listing: Iterable[Sighting]) -> bool:
    """Whether a machine boots that the list does not show, or shows as failed or stopped: its launch may have been
    refused late, and that says more.
    """
    shown = {sighting.provider_ref for sighting in listing if sighting.state not in _FAILED}
    return any(
        machine.state is MachineState.BOOTING and machine.provider_ref not in shown for machine in machines
    )
