"""Says which loops there are, so that one which no process runs can be seen; and takes reports back at an orderly stop.

Every process stores all loops: its own with their accounts, the others by name. Only reports would leave a loop out
that nobody runs, and a report that stays behind looks like a loop that is stuck.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from control_plane.db import loops as loop_reports
from control_plane.db.loops import RosterLine, Turn
from control_plane.domain.ids import AccountName
from reconciler import registry
from reconciler.world import World

EVERY = timedelta(minutes=10)
"""How often the roster is stored again. Lines that nobody stores any more are erased after a day."""
RETRY = timedelta(seconds=5)
WITHDRAW_SECONDS_MAX = 5.0
"""How long a stopping process tries to delete its reports."""

log = structlog.get_logger()


class Roster:
    def __init__(self, world: World, turns: Sequence[Turn]) -> None:
        """`turns` are the loops of this process."""
        self._world = world
        self._turns = list(turns)

    def add(self, turn: Turn) -> None:
        """Name a loop that this process runs from now on. It is stored with the next report of the roster."""
        self._turns.append(turn)

    async def drop(self, account: AccountName) -> None:
        """Forget the loops of an account that was removed, with their reports. Never raises."""
        self._turns = [turn for turn in self._turns if turn.account != account]
        try:
            async with self._world.db.transaction() as connection:
                await loop_reports.drop_account(connection, account)
        except Exception as error:  # noqa: BLE001 - they are forgotten after a day
            log.warning("reports_not_withdrawn", error=f"{type(error).__name__}: {error}")

    def lines(self) -> list[RosterLine]:
        """All loops in one order for all processes, so that none waits for another in a circle."""
        wings = registry.names()
        own = {turn.loop for turn in self._turns}
        others = (Turn(name, "") for name in wings if name not in own)
        lines = [
            RosterLine(turn.loop, turn.account, wings.get(turn.loop, "")) for turn in (*self._turns, *others)
        ]
        return sorted(lines, key=lambda line: (line.loop, line.account))

    async def keep(self, stopping: asyncio.Event) -> None:
        """Store the roster now and every few minutes, until the process stops. Never raises."""
        while not stopping.is_set():
            pause = EVERY if await self._store() else RETRY
            try:
                async with asyncio.timeout(pause.total_seconds()):
                    await stopping.wait()
            except TimeoutError:
                pass

    async def withdraw(self) -> None:
        """Delete this process's reports. When that fails, they show as stopped or late for a day. Never raises."""
        withdrawing = asyncio.create_task(self._withdraw(), name="withdraw reports")
        # Not awaited by itself: on a database that hangs, even giving up takes its time.
        if not (await asyncio.wait([withdrawing], timeout=WITHDRAW_SECONDS_MAX))[0]:
            withdrawing.cancel()
            log.warning("reports_not_withdrawn", error="the database did not answer in time")

    async def _withdraw(self) -> None:
        try:
            async with self._world.db.transaction() as connection:
                await loop_reports.withdraw(connection, self._world.replica, self._turns)
        except Exception as error:  # noqa: BLE001 - the process ends either way
            log.warning("reports_not_withdrawn", error=f"{type(error).__name__}: {error}")

    async def _store(self) -> bool:
        try:
            async with self._world.db.transaction() as connection:
                await loop_reports.store_roster(connection, self.lines(), now=self._world.now())
        except Exception as error:  # noqa: BLE001 - no loop ends because the roster was not stored
            log.warning("roster_not_stored", error=f"{type(error).__name__}: {error}")
            return False
        return True
