"""What is known about machines besides a provider's list: their agents, their power, and what operators permitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from control_plane.domain.freeze import MissingPermit
from control_plane.domain.ids import MachineId
from control_plane.domain.power import PowerState


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known besides the list about machines that it misses, or shows as down."""

    reported_at: Mapping[MachineId, datetime] = field(default_factory=dict[MachineId, datetime])
    """When their agents reported last."""
    lost: int = 0
    """How many machines of the account vanished within LOST_WINDOW."""
    permit: MissingPermit | None = None
    """The operator's permit in force."""
    powers: Mapping[MachineId, PowerState] = field(default_factory=dict[MachineId, PowerState])
    """Of the machines that are off, or whose customers wait for a change of their power."""

    def power(self, machine_id: MachineId) -> PowerState:
        return self.powers.get(machine_id, PowerState.ON)


NO_EVIDENCE = Evidence()
