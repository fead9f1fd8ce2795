"""Opens the private keys of access tokens with AWS KMS, whose policy permits the API this one purpose."""

from control_plane.domain.secret import MasterKey, Plain, WrappedKey
from control_plane.vault.kms import Kms
from control_plane.vault.sealing.aws_kms import KmsKeyMaker
from control_plane.vault.token_keys import CONTEXT


class KmsTokenKeys(KmsKeyMaker):
    def __init__(self, master: MasterKey, kms: Kms | None = None) -> None:
        super().__init__(master, kms)
        self._manager = kms or Kms()

    async def unwrap(self, key: WrappedKey) -> Plain:
        answer = await self._manager.call(
            key.master,
            "decrypt",
            KeyId=key.master,
            CiphertextBlob=key.wrapped,
            EncryptionContext=CONTEXT.pairs(),
        )
        return Plain(answer["Plaintext"])
