"""A verified machine may have another address than before, after a stop and a start for example, or another SSH port
where the provider maps ports.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from control_plane.domain.ids import MachineId
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.sighting import Sighting


@dataclass(frozen=True, slots=True)
class Readdressing:
    """A running machine has another address or port than before, as it may after it was stopped and started.

    Whoever connects there still demands its own host key.
    """

    id: MachineId
    address: str
    ssh_port: int


def readdressing(machine: Machine, sighting: Sighting) -> Iterator[Readdressing]:
    if machine.state is not MachineState.VERIFIED or sighting.state is not ListedState.RUNNING:
        return
    before = (machine.address, machine.ssh_port)
    if sighting.address is not None and (sighting.address, sighting.ssh_port) != before:
        yield Readdressing(machine.id, sighting.address, sighting.ssh_port)
