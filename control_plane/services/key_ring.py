"""The keys that sign access tokens: which there are, which one signs, and when the next one is made.

Every process of the API looks now and then whether a key is needed; a lock lets one of them make it. A process reads
the published keys again after a second, so a key that an operator removes verifies nothing from then on.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from control_plane.db import signing_keys
from control_plane.db.signing_keys import StoredKey
from control_plane.domain.secret import Plain
from control_plane.domain.signing_key import VERIFIES_AFTER, Phase, SigningKey, signing, term
from control_plane.identity.tokens import Signer, new_key
from control_plane.vault.token_keys import TokenKeyManager, seal, unseal
from control_plane.world import World

REMEMBER_SECONDS = 1.0
KEEP_SECONDS = 60.0
"""How often a process looks whether a key is needed."""


class KeyRing:
    def __init__(self, world: World, manager: TokenKeyManager) -> None:
        self._world = world
        self._manager = manager
        self._stored: tuple[Sequence[StoredKey], float] | None = None
        self._opened: dict[str, Plain] = {}
        self._reading = asyncio.Lock()

    async def keys(self) -> Sequence[SigningKey]:
        """The keys that may still verify something."""
        return [stored.key for stored in await self._read()]

    async def signer(self) -> Signer:
        """The key that signs now. Raises KeyManagerError when it cannot be opened."""
        stored = self._signing(await self._read())
        if stored is None:
            await self.keep()
            stored = self._signing(await self._read())
        if stored is None:  # pragma: no cover - a key was just made
            raise LookupError("there is no key that signs now")
        return Signer(stored.id, await self._open(stored))

    async def keep(self) -> SigningKey | None:
        """Make the key that is needed, if one is. Raises KeyManagerError."""
        if term(await self.keys(), self._world.now()) is None:
            return None
        key_id, public, private = new_key()
        made, nonce, ciphertext = await seal(self._manager, key_id, private)
        async with self._world.db.transaction() as connection:
            await signing_keys.lock(connection)
            now = self._world.now()
            held = await signing_keys.signed_after(connection, now - VERIFIES_AFTER)
            dates = term([stored.key for stored in held], now)
            if dates is None:
                self._stored = None
                return None  # Another process was first.
            stored = StoredKey(
                key_id, public, *dates, None, made.master, made.wrapped.reveal, nonce, ciphertext
            )
            await signing_keys.insert(connection, stored, now=now)
        self._stored = None
        return stored.key

    async def renew(self) -> None:
        """Seal the keys that still sign anew, where another master key is the newest by now. Raises KeyManagerError.

        A private key stays the same, so tokens stay valid, and the master key of before may be removed afterwards.
        """
        now, newest = self._world.now(), self._manager.master
        for stored in await self._read():
            if stored.master == newest or stored.key.phase(now) not in {Phase.NEXT, Phase.CURRENT}:
                continue
            made, nonce, ciphertext = await seal(self._manager, stored.id, await self._open(stored))
            sealed = replace(
                stored,
                master=made.master,
                wrapped=made.wrapped.reveal,
                nonce=nonce,
                ciphertext=ciphertext,
            )
            async with self._world.db.transaction() as connection:
                await signing_keys.resealed(connection, sealed, before=stored.master)
            self._stored = None

    def forget(self) -> None:
        """Read the keys again."""
        self._stored = None

    def _signing(self, stored: Sequence[StoredKey]) -> StoredKey | None:
        key = signing([each.key for each in stored], self._world.now())
        return None if key is None else next(each for each in stored if each.id == key.id)

    async def _open(self, stored: StoredKey) -> Plain:
        if stored.id not in self._opened:
            self._opened[stored.id] = await unseal(self._manager, stored)
        return self._opened[stored.id]

    async def _read(self) -> Sequence[StoredKey]:
        async with self._reading:
            now = self._world.now()
            if self._stored is None or self._is_old(self._stored[1], now):
                async with self._world.db.reading() as connection:
                    found = await signing_keys.signed_after(connection, now - VERIFIES_AFTER)
                self._stored = (found, now.timestamp())
                self._opened = {key.id: self._opened[key.id] for key in found if key.id in self._opened}
            return self._stored[0]

    def _is_old(self, read_at: float, now: datetime) -> bool:
        return now.timestamp() >= read_at + REMEMBER_SECONDS
