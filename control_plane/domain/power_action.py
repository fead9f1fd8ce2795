"""What can be done with the power of a machine, as offers and machines name it."""

from enum import StrEnum


class PowerAction(StrEnum):
    """What a customer can do with the power of a machine."""

    REBOOT = "reboot"
    STOP = "stop"
    START = "start"
