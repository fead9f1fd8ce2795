"""The words and figures of a fleet that operators read. Each is computed from what is stored, never stored."""

from enum import StrEnum


class MachineHealth(StrEnum):
    """How a machine of the fleet is. The first word that applies, in this order."""

    ENDING = "ending"
    """It has to be terminated."""
    STARTING = "starting"
    """It was ordered, and is not verified yet."""
    MISSING = "missing"
    """It was verified, and its provider's last list does not show it."""
    DOWN = "down"
    """It was verified, and its provider lists it as failed, stopped or ending though nobody asked for that."""
    SUSPECT = "suspect"
    """It was verified, and failed its last GPU proof since."""
    STOPPED = "stopped"
    """Its customer stopped it, or it is stopping or starting, so nobody reports from it."""
    SILENT = "silent"
    """Its agent reported before, and not in the last five minutes."""
    HEALTHY = "healthy"
    """It is verified, and nothing of the above is so."""
