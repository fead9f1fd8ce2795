"""Makes data keys with AWS KMS: its operation GenerateDataKey, and no other."""

from control_plane.domain.secret import KeyContext, MasterKey, Plain
from control_plane.vault.kms import Kms
from control_plane.vault.sealing.port import NewDataKey


class KmsKeyMaker:
    def __init__(self, master: MasterKey, kms: Kms | None = None) -> None:
        """`master` is the installation's own key, for every organization that brings none."""
        self.master = master
        self._kms = kms or Kms()

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        chosen = master or self.master
        answer = await self._kms.call(
            chosen,
            "generate_data_key",
            KeyId=chosen,
            KeySpec="AES_256",
            EncryptionContext=context.pairs(),
        )
        return NewDataKey(Plain(answer["Plaintext"]), Plain(answer["CiphertextBlob"]), chosen)
