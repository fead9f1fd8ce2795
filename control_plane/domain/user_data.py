"""What a machine is launched with, in the form that its provider takes."""

from enum import StrEnum

from control_plane.domain.boot_script import boot_script
from control_plane.domain.rendering import BootOrder, cloud_config


class UserDataKind(StrEnum):
    """What a provider does with the user data of a machine."""

    CLOUD_CONFIG = "cloud_config"
    """cloud-init reads it before sshd starts."""
    SHELL_SCRIPT = "shell_script"
    """It is run as root some time after sshd started, by some providers again at every boot."""


def user_data(order: BootOrder, kind: UserDataKind) -> str:
    return boot_script(order) if kind is UserDataKind.SHELL_SCRIPT else cloud_config(order)
