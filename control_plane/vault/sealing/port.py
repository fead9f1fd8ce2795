"""The half of a key manager that only writes: it makes data keys, and unwraps none.

This is all that the API process has. With AWS KMS its role lacks the permission to decrypt
(`control_plane/vault/policies/api.json`); with local keys its file holds only the public half.
"""

from dataclasses import dataclass
from typing import Protocol

from control_plane.domain.secret import KeyContext, MasterKey, Plain


@dataclass(frozen=True, slots=True)
class NewDataKey:
    """A data key that was just made. The plain key is used once and then dropped."""

    plain: Plain
    wrapped: Plain
    master: MasterKey


class KeyMaker(Protocol):
    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        """Make 32 random bytes, wrapped under `master`, or under the installation's own master key.

        Raises KeyManagerRefused or KeyManagerUnavailable.
        """
        ...
