"""The world of a process that runs only wings without providers and machines."""

from dataclasses import dataclass

from reconciler.worlds.enforcement import EnforcementWorld
from reconciler.worlds.sla import SlaWorld
from reconciler.worlds.telemetry import TelemetryWorld


@dataclass(frozen=True, kw_only=True)
class RowsWorld(SlaWorld, TelemetryWorld, EnforcementWorld):
    """Everything that the loops of those wings may use."""
