"""What an operator does with the keys that sign SSH certificates: list them, print them, replace them."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import audit, secrets, ssh_authorities
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.audit import AuditLine, AuditOutcome, Happening, SubjectKind
from control_plane.domain.ssh_authority import TRUSTED, SshAuthority, SshAuthorityState, fingerprint
from control_plane.vault.unsealing.port import KeyManager
from reconciler.ssh_authorities import NoAuthority, StoredAuthorities, sealed_authority


class Refused(Exception):  # noqa: N818 - reads as a sentence
    """The command cannot be carried out now. The text says why."""


class SshAuthorityCommand:
    def __init__(
        self, db: Database, now: Callable[[], datetime], new_id: Callable[[], UUID], keys: KeyManager
    ) -> None:
        self._db = db
        self._now = now
        self._new_id = new_id
        self._keys = keys

    async def listed(self) -> Sequence[str]:
        """A line for each authority that ever was, and one for the machines that a rotation waits for."""
        await self.trusted()
        async with self._db.reading() as connection:
            every = await ssh_authorities.every(connection)
            trust = fingerprint(each.public_key for each in every if each.state in TRUSTED)
            behind = await ssh_authorities.count_behind(connection, trust)
        lines = [_line(each) for each in every]
        if behind:
            lines.append(f"{behind} machines and server hosts have not been told yet whom to trust now.")
        return lines

    async def trusted(self) -> Sequence[str]:
        """The public keys that machines and the hub should trust. Makes the first authority if there is none.

        Raises NoAuthority and KeyManagerError.
        """
        return await StoredAuthorities(self._db, self._now, self._new_id, self._keys).trusted()

    async def rotate(self, *, leaked: bool) -> str:
        """Make a new authority; what it did, in a sentence. Raises Refused, NoAuthority and KeyManagerError.

        It signs when every machine trusts it. With `leaked` it signs at once, and all others are distrusted.
        """
        async with self._db.reading() as connection:
            owner = await ssh_authorities.owner(connection)
        if owner is None:
            raise NoAuthority("there is no organization of operators yet, which owns the key")
        made, sealed = await sealed_authority(self._db, self._keys, owner, self._new_id)
        async with self._db.transaction() as connection:
            await ssh_authorities.lock(connection)
            now = self._now()
            live = await ssh_authorities.live(connection)
            if leaked:
                await _distrust(connection, live, now)
            elif any(each.state is SshAuthorityState.NEXT for each in live):
                raise Refused("a rotation is under way; `ssh-authority list` shows what it waits for")
            signs = leaked or not any(each.state is SshAuthorityState.SIGNING for each in live)
            await secrets.insert(connection, sealed, now=now)
            await ssh_authorities.insert(
                connection, self._new_id(), made.public_key, sealed.id, signs=signs, now=now
            )
            await audit.insert(connection, [self._line(now, leaked=leaked)])
        if signs:
            return "The new authority signs from now on. Machines are told within seconds."
        return "The new authority signs when every machine trusts it, in a minute at the earliest."

    def _line(self, now: datetime, *, leaked: bool) -> AuditLine:
        return AuditLine(
            id=self._new_id(),
            organization_id=None,
            at=now,
            event=Happening.SSH_AUTHORITIES_ROTATE,
            outcome=AuditOutcome.ALLOWED,
            subject=ADMINISTRATOR.name,
            subject_kind=SubjectKind.ADMINISTRATOR,
            rule="host:leaked" if leaked else "host",
        )


async def _distrust(connection: Connection, live: Sequence[SshAuthority], now: datetime) -> None:
    for each in live:
        if each.state in TRUSTED:
            await ssh_authorities.move(connection, each, SshAuthorityState.DISTRUSTED, now=now)


def _line(authority: SshAuthority) -> str:
    digest = hashlib.sha256(base64.b64decode(authority.public_key.split()[1])).digest()
    shown = base64.b64encode(digest).decode().rstrip("=")
    return f"{authority.state:10}  SHA256:{shown}  {', '.join(_times(authority))}"


def _times(authority: SshAuthority) -> Iterator[str]:
    for what, at in (
        ("made", authority.made_at),
        ("signs from", authority.signs_from),
        ("signed until", authority.retired_at),
        ("removed", authority.removed_at),
    ):
        if at is not None:
            yield f"{what} {at:%Y-%m-%d %H:%M}"
