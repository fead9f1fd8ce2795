"""Watches whether a process can use its database: it answers, is migrated to this version, and its clock is known.

Once, before the process works, it also looks whether the login could go around row-level security. Such a process ends:
it must not serve while somebody corrects the login.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from control_plane.db import privileges, schema
from control_plane.db.clock import DatabaseClock
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.db.errors import sentence
from control_plane.domain.clock import REREAD_EVERY

LOOK_SECONDS_MAX = 5.0
RETRY_SECONDS = 1.0
"""A database that was away is found again within this time."""


class DatabaseWatch:
    """Looks at the database again and again, and knows what is wrong with it."""

    def __init__(
        self,
        db: Database,
        clock: DatabaseClock,
        *,
        say: Callable[[str | None], None],
        say_clock: Callable[[str | None], None],
    ) -> None:
        """`say` is called with what is wrong whenever that changes, and with None when the database is usable.

        `say_clock` is called with why the clock must not be trusted when that begins, and with None when it ends.
        """
        self._db = db
        self._clock = clock
        self._say = say
        self._say_clock = say_clock
        self._refused = False
        self.fault: str | None = "the database has not been looked at yet"
        """What is wrong with the database, as a part of a sentence; None when it is usable."""
        self.unusable = False
        """Whether the database answers, but lacks something that this version needs."""
        self.refusal: str | None = None
        """Why the process must not work under its login, as a sentence."""
        self._login_is_checked = db.role is None

    async def look(self) -> str | None:
        """Read the clock and check the schema. Returns what is wrong; never raises."""
        unusable = False
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                fault = await self._fault()
            unusable = fault is not None
        except Exception as error:  # noqa: BLE001 - whatever it is, the database cannot be used now
            fault = sentence(error, self._db.place)
        self.unusable = unusable
        if fault != self.fault:
            self.fault = fault
            with suppress(Exception):  # Whoever reads the log may be gone, and the watch goes on.
                self._say(fault)
        self._check_clock()
        return fault

    def _check_clock(self) -> None:
        refusal = self._clock.refusal() if self._clock.is_set else None
        if (refusal is not None) is not self._refused:
            self._refused = refusal is not None
            with suppress(Exception):  # As above.
                self._say_clock(refusal)

    async def keep(self) -> None:
        """Look for ever: often while something is wrong. Raises LoginRefused."""
        while True:
            await self.look()
            self.refuse_login()
            await asyncio.sleep(self.pause_seconds)

    def refuse_login(self) -> None:
        """Raise LoginRefused when the last look found that the process must not work under its login."""
        if self.refusal is not None:
            raise privileges.LoginRefused(self.refusal)

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next look."""
        return REREAD_EVERY.total_seconds() if self.fault is None else RETRY_SECONDS

    async def _fault(self) -> str | None:
        async with self._db.reading() as connection:
            fault = await schema.why_unusable(connection)
            if fault is None and not self._login_is_checked:
                self.refusal = fault = await self._check_login(connection)
        await self._clock.reread()
        return fault

    async def _check_login(self, connection: Connection) -> str | None:
        refusal = None if self._db.role is None else await privileges.why_refused(connection, self._db.role)
        self._login_is_checked = refusal is None
        return refusal
