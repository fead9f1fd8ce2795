"""Gives loops the key that signs checkpoints of the audit log.

The private half lies sealed in the database and is opened once per process. The first key is made by the first process
that needs one, and the next one after `KEY_LASTS`. The public halves stay, because they check what was signed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from control_plane.db import audit_keys, secrets, ssh_authorities
from control_plane.db.audit_keys import AuditKey
from control_plane.db.engine import Database
from control_plane.domain.ids import DataKeyId, SecretId
from control_plane.domain.secret import KeyContext, Purpose
from control_plane.vault.audit_keys import AuditSigner, new_private
from control_plane.vault.errors import NotOpened
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.port import KeyManager

KEY_LASTS = timedelta(days=365)
"""So long a key signs."""


class AuditKeys(Protocol):
    async def signer(self) -> AuditSigner | None:
        """The key that signs now; None: checkpoints are not signed. Raises KeyManagerError."""
        ...


class NoAuditKeys:
    """Without a key manager no key can be kept, and checkpoints are not signed."""

    async def signer(self) -> AuditSigner | None:
        return None


class StoredAuditKeys:
    """The keys in the database."""

    def __init__(
        self, db: Database, now: Callable[[], datetime], new_id: Callable[[], UUID], keys: KeyManager
    ) -> None:
        self._db = db
        self._now = now
        self._new_id = new_id
        self._keys = keys
        self._opened: AuditSigner | None = None

    async def signer(self) -> AuditSigner | None:
        """None while there is no organization of operators, which owns the secret."""
        async with self._db.reading() as connection:
            key = await audit_keys.newest(connection)
        if not self._signs(key):
            key = await self._make()
        if key is None:
            return None
        if self._opened is None or self._opened.key_id != key.id:
            self._opened = await self._open(key)
        return self._opened

    def _signs(self, key: AuditKey | None) -> bool:
        return key is not None and self._now() < key.made_at + KEY_LASTS

    async def _make(self) -> AuditKey | None:
        async with self._db.reading() as connection:
            owner = await ssh_authorities.owner(connection)
            master = None if owner is None else await secrets.master_of(connection, owner)
        if owner is None:
            return None
        private = new_private()
        signer, secret_id = AuditSigner(private), SecretId(self._new_id())
        context = KeyContext(owner, Purpose.AUDIT_SIGNING)
        key_id = DataKeyId(self._new_id())
        sealed = await seal(self._keys, context, private, secret_id=secret_id, key_id=key_id, master=master)
        async with self._db.transaction() as connection:
            await audit_keys.lock(connection)
            found = await audit_keys.newest(connection)
            if self._signs(found):
                return found  # Another process was first.
            now = self._now()
            await secrets.insert(connection, sealed, now=now)
            made = AuditKey(signer.key_id, signer.public, secret_id, now)
            await audit_keys.insert(connection, made)
        return made

    async def _open(self, key: AuditKey) -> AuditSigner:
        async with self._db.reading() as connection:
            sealed = await secrets.get(connection, key.secret_id)
        if sealed is None:
            raise NotOpened(f"the private half of the audit key {key.id} is gone")
        signer = AuditSigner(await unseal(self._keys, sealed))
        if signer.key_id != key.id:
            raise NotOpened(f"the private half of the audit key {key.id} is not its own")
        return signer
