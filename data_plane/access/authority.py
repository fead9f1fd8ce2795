"""An SSH certificate authority: one key that signs certificates, which machines trust instead of lists of keys.

Every certificate names its principals and ends soon. `Authority` refuses to sign one that lasts longer than
CERTIFICATE_LASTS_MAX, whoever asks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncssh

CERTIFICATE_LASTS_MAX = timedelta(minutes=11)
"""The longest time from the start to the end of a certificate: ten minutes, and one before it was signed, because a
machine's clock may be behind ours."""
SERIAL_MAX = 2**64 - 1


class Authority:
    """A certificate authority's key, in memory. Its repr shows the public half only."""

    def __init__(self, private_openssh: str) -> None:
        """Raises ValueError for text that is no private key in OpenSSH's format."""
        try:
            self._key = asyncssh.import_private_key(private_openssh)
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise ValueError(f"not a usable private key: {error}") from None
        self.public_key = self._key.export_public_key().decode().strip()
        """One OpenSSH public key line."""

    def __repr__(self) -> str:
        return f"Authority(public_key={self.public_key!r})"  # Tracebacks and logs must not show the private half.

    def private_openssh(self) -> str:
        """The private key in OpenSSH's format, to be sealed."""
        return self._key.export_private_key().decode()

    def sign(
        self,
        public_key: str,
        *,
        serial: int,
        key_id: str,
        principals: Sequence[str],
        valid_after: datetime,
        valid_before: datetime,
        interactive: bool,
    ) -> str:
        """A user certificate for `public_key`: one OpenSSH line, without the key's comment.

        `key_id` is what sshd writes into its log. `interactive` permits a terminal, port and agent forwarding;
        without it the certificate permits nothing but to run commands. Raises ValueError for a key that cannot be
        read, no principal (OpenSSH would accept such a certificate for every user), and a time that is empty or longer
        than CERTIFICATE_LASTS_MAX.
        """
        if not principals:
            raise ValueError("a certificate names at least one principal")
        if not timedelta(0) < valid_before - valid_after <= CERTIFICATE_LASTS_MAX:
            raise ValueError(f"a certificate lasts more than 0 and at most {CERTIFICATE_LASTS_MAX}")
        if not 0 < serial <= SERIAL_MAX:
            raise ValueError(f"a serial is between 1 and {SERIAL_MAX}")
        try:
            subject = asyncssh.import_public_key(public_key)
        except asyncssh.KeyImportError as error:
            raise ValueError(f"not a usable public key: {error}") from None
        certificate = self._key.generate_user_certificate(
            subject,
            key_id,
            serial=serial,
            principals=list(principals),
            valid_after=int(valid_after.timestamp()),
            valid_before=int(valid_before.timestamp()),
            permit_pty=interactive,
            permit_port_forwarding=interactive,
            permit_agent_forwarding=interactive,
            permit_x11_forwarding=False,
            permit_user_rc=False,
            comment=None,
        )
        return certificate.export_certificate().decode().strip()


def new_authority() -> Authority:
    """A new ed25519 authority."""
    return Authority(asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
