"""Gives loops the authority that signs SSH certificates.

The private key lies sealed in the database and is opened once per process. The rows are read again after a second, so
that a rotation reaches every process. The first authority is made by the first process that needs one.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from control_plane.db import secrets as secret_rows
from control_plane.db import ssh_authorities
from control_plane.db.engine import Database
from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, Plain, Purpose, Sealed
from control_plane.domain.ssh_authority import TRUSTED, SshAuthority, SshAuthorityState
from control_plane.vault.errors import KeyManagerError
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.port import KeyManager
from data_plane.access.authority import Authority, new_authority
from data_plane.access.port import NotCertified
from data_plane.access.ssh import Certify

REMEMBER_SECONDS = 1.0
OPENED_AGAIN_SECONDS = 10.0
"""When an authority that could not be opened is tried again, so that no login waits for a key manager that is away."""
LOGIN_WITHIN = timedelta(minutes=5)
"""How long a certificate of ours is valid after it was signed."""
CLOCKS_DIFFER_MAX = timedelta(minutes=1)
"""How much a machine's clock may be behind ours: a certificate is valid from that long before it was signed."""


class NoAuthority(Exception):  # noqa: N818 - reads as a sentence
    """Nothing can be signed now. The text says what to do."""


class SshAuthorities(Protocol):
    async def signing(self) -> Authority:
        """The authority that signs now. Raises NoAuthority, KeyManagerError, and what the database raises."""
        ...

    async def usable(self) -> Sequence[Authority]:
        """The authorities that some machine may trust, the one that signs now first.

        Those whose keys cannot be opened are left out; raises as `signing` when that leaves none.
        """
        ...

    async def trusted(self) -> Sequence[str]:
        """The public keys that machines should trust, of the authority that signs now first. Raises as `signing`."""
        ...


class FixedAuthority:
    """One authority that lives as long as the process: for simulated machines."""

    def __init__(self, authority: Authority | None = None) -> None:
        self._authority = authority or new_authority()

    async def signing(self) -> Authority:
        return self._authority

    async def usable(self) -> Sequence[Authority]:
        return [self._authority]

    async def trusted(self) -> Sequence[str]:
        return [self._authority.public_key]


class StoredAuthorities:
    """The authorities in the database."""

    def __init__(
        self, db: Database, now: Callable[[], datetime], new_id: Callable[[], UUID], keys: KeyManager
    ) -> None:
        self._db = db
        self._now = now
        self._new_id = new_id
        self._keys = keys
        self._read: tuple[Sequence[SshAuthority], float] | None = None
        self._opened: dict[UUID, Authority] = {}
        self._closed: dict[UUID, tuple[NoAuthority | KeyManagerError, float]] = {}
        """Those that could not be opened, why, and when that was tried."""
        self._reading = asyncio.Lock()

    async def signing(self) -> Authority:
        async with self._reading:
            return await self._open((await self._stored())[0])

    async def usable(self) -> Sequence[Authority]:
        opened: list[Authority] = []
        async with self._reading:
            stored = await self._stored()
            for each in stored:
                with suppress(NoAuthority, KeyManagerError):
                    opened.append(await self._open(each))
            return opened or [await self._open(stored[0])]

    async def trusted(self) -> Sequence[str]:
        async with self._reading:
            return [each.public_key for each in await self._stored() if each.state in TRUSTED]

    def forget(self) -> None:
        """Read the authorities again."""
        self._read = None

    async def _stored(self) -> Sequence[SshAuthority]:
        now = self._now().timestamp()
        if self._read is None or now >= self._read[1] + REMEMBER_SECONDS:
            made = await self._signing_or_made()
            found = sorted(made, key=lambda each: each.state is not SshAuthorityState.SIGNING)
            self._read = found, now
            self._opened = {each.id: self._opened[each.id] for each in found if each.id in self._opened}
            self._closed = {each.id: self._closed[each.id] for each in found if each.id in self._closed}
        return self._read[0]

    async def _signing_or_made(self) -> Sequence[SshAuthority]:
        async with self._db.reading() as connection:
            found = await ssh_authorities.live(connection)
            owner = await ssh_authorities.owner(connection)
        if _signs(found):
            return found
        if owner is None:
            raise NoAuthority(
                "there is no organization of operators yet, which owns the key that signs SSH certificates;"
                " create it with `python -m control_plane bootstrap --organization NAME --operator`"
            )
        return await self._make_first(owner)

    async def _make_first(self, owner: OrganizationId) -> Sequence[SshAuthority]:
        made, sealed = await sealed_authority(self._db, self._keys, owner, self._new_id)
        async with self._db.transaction() as connection:
            await ssh_authorities.lock(connection)
            if not _signs(await ssh_authorities.live(connection)):  # Otherwise another process was first.
                now = self._now()
                await secret_rows.insert(connection, sealed, now=now)
                await ssh_authorities.insert(
                    connection, self._new_id(), made.public_key, sealed.id, signs=True, now=now
                )
            return await ssh_authorities.live(connection)

    async def _open(self, stored: SshAuthority) -> Authority:
        if stored.id not in self._opened:
            now = self._now().timestamp()
            error, tried = self._closed.get(stored.id, (None, 0.0))
            if error is not None and now < tried + OPENED_AGAIN_SECONDS:
                raise error.with_traceback(None)
            try:
                self._opened[stored.id] = await self._unseal(stored)
            except (NoAuthority, KeyManagerError) as why:
                self._closed[stored.id] = why, now
                raise
        return self._opened[stored.id]

    async def _unseal(self, stored: SshAuthority) -> Authority:
        sealed = None
        if stored.secret_id is not None:
            async with self._db.reading() as connection:
                sealed = await secret_rows.get(connection, stored.secret_id)
        if sealed is None:
            raise NoAuthority(f"the private key of the SSH authority {stored.id} was destroyed; rotate it")
        authority = Authority((await unseal(self._keys, sealed)).reveal.decode())
        if authority.public_key != stored.public_key:
            raise NoAuthority(f"the private key of the SSH authority {stored.id} is not its own; rotate it")
        return authority


def certifier(authorities: SshAuthorities, now: Callable[[], datetime], replica: str) -> Certify:
    """Signs a certificate for each login of ours: for one machine, for some minutes, and only to run commands."""

    async def certify(public_key: str, principal: str) -> Sequence[str]:
        try:
            usable = await authorities.usable()
        except (NoAuthority, KeyManagerError) as error:
            raise NotCertified(str(error)) from None
        at = now()
        return [
            authority.sign(
                public_key,
                # Customers' serials have 62 bits. Ours have the highest of 64, so that no revocation hits them.
                serial=1 << 63 | secrets.randbits(63),
                key_id=f"reconciler {replica} on {principal}",
                principals=[principal],
                valid_after=at - CLOCKS_DIFFER_MAX,
                valid_before=at + LOGIN_WITHIN,
                interactive=False,
            )
            for authority in usable
        ]

    return certify


def _signs(authorities: Sequence[SshAuthority]) -> bool:
    return any(each.state is SshAuthorityState.SIGNING for each in authorities)


async def sealed_authority(
    db: Database, keys: KeyManager, owner: OrganizationId, new_id: Callable[[], UUID]
) -> tuple[Authority, Sealed]:
    """A new authority, and its private key, sealed for the platform's organization. Raises KeyManagerError.

    Call it with no transaction open, because it may ask AWS KMS.
    """
    async with db.reading() as connection:
        master = await secret_rows.master_of(connection, owner)
    made = new_authority()
    sealed = await seal(
        keys,
        KeyContext(owner, Purpose.SSH_AUTHORITY),
        Plain(made.private_openssh().encode()),
        secret_id=SecretId(new_id()),
        key_id=DataKeyId(new_id()),
        master=master,
    )
    return made, sealed
