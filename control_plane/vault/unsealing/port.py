"""The whole key manager, which also unwraps data keys. Only the reconciler has it: an import contract says so."""

from typing import Protocol

from control_plane.domain.secret import MasterKey, Plain, WrappedKey
from control_plane.vault.sealing.port import KeyMaker


class KeyManager(KeyMaker, Protocol):
    @property
    def master(self) -> MasterKey:
        """The installation's newest master key."""
        ...

    async def unwrap(self, key: WrappedKey) -> Plain:
        """The plain data key. Raises KeyManagerRefused, KeyManagerUnavailable or NotOpened."""
        ...

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        """The same data key, wrapped under another master key. Raises as `unwrap`."""
        ...
