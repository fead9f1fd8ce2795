"""The world of loops that buy, check and terminate machines."""

from collections.abc import Callable
from dataclasses import dataclass

from data_plane.access.port import HostKey
from reconciler.worlds.proof import ProofWorld
from reconciler.worlds.providers import ProviderWorld


@dataclass(frozen=True, kw_only=True)
class MachineWorld(ProviderWorld, ProofWorld):
    new_host_key: Callable[[], HostKey]
    accept_emulated: bool = False
    """Whether an emulated GPU reading may make a machine verified. Never in production."""
