"""Unwraps data keys with AWS KMS, and has it wrap them anew, so that no data key leaves it for that."""

from dataclasses import replace

from control_plane.domain.secret import MasterKey, Plain, WrappedKey
from control_plane.vault.kms import region
from control_plane.vault.sealing.aws_kms import KmsKeyMaker


class KmsKeyManager(KmsKeyMaker):
    async def unwrap(self, key: WrappedKey) -> Plain:
        answer = await self._kms.call(
            key.master,
            "decrypt",
            KeyId=key.master,
            CiphertextBlob=key.wrapped,
            EncryptionContext=key.context.pairs(),
        )
        return Plain(answer["Plaintext"])

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        if region(key.master) != region(master):
            return await self._carry(key, master)
        answer = await self._kms.call(
            master,
            "re_encrypt",
            CiphertextBlob=key.wrapped,
            SourceKeyId=key.master,
            SourceEncryptionContext=key.context.pairs(),
            DestinationKeyId=master,
            DestinationEncryptionContext=key.context.pairs(),
        )
        return replace(key, master=master, wrapped=answer["CiphertextBlob"])

    async def _carry(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        """To a key of another region, which KMS does not do by itself."""
        plain = await self.unwrap(key)
        answer = await self._kms.call(
            master,
            "encrypt",
            KeyId=master,
            Plaintext=plain.reveal,
            EncryptionContext=key.context.pairs(),
        )
        return replace(key, master=master, wrapped=answer["CiphertextBlob"])
