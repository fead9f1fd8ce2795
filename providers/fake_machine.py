"""A machine of the provider in memory (`fake.py`)."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.money import Nano, accrued
from providers.base import Eviction, Ingress, LaunchOrder, ListedState


@dataclass(slots=True)
class FakeMachine:
    provider_ref: ProviderRef
    launch_key: LaunchKey
    order: LaunchOrder
    cost_nano_per_hour: Nano
    address: str
    launched_at: datetime
    runs_from: datetime | None
    """None for a machine that never boots."""
    listed_from: datetime | None
    """None for a machine that is never listed."""
    failed: bool = False
    listed_as: ListedState | None = None
    """How lists show it in place of its own state."""
    ended_at: datetime | None = None
    """When it ended; it costs nothing from then on."""
    listed_until: datetime | None = None
    boots: int = 1
    stopped: bool = False
    """It keeps its disk and costs as much as before."""
    eviction: Eviction | None = None
    """What the provider says about taking it back. It says so until it withdraws it."""
    lets_in: frozenset[Ingress] = frozenset()
    printed: str = "[    0.000000] Linux version 6.8.0-fake\n"
    """On its console."""

    def state(self, now: datetime) -> ListedState:
        if self.ended_at is not None:
            return ListedState.GONE
        if self.listed_as is not None:
            return self.listed_as
        if self.failed:
            return ListedState.FAILED
        if self.stopped:
            return ListedState.STOPPED
        booted = self.runs_from is not None and self.runs_from <= now
        return ListedState.RUNNING if booted else ListedState.PROVISIONING

    def listed(self, now: datetime) -> bool:
        if self.listed_until is not None and self.listed_until <= now:
            return False
        return self.listed_from is not None and self.listed_from <= now

    def cost_nano(self, now: datetime) -> Nano:
        """What the provider bills for it so far, by whole seconds since the launch."""
        seconds = int(((self.ended_at or now) - self.launched_at).total_seconds())
        return accrued(self.cost_nano_per_hour, max(0, seconds))
