"""Runs every loop until it is stopped: at the loop's interval, or earlier when another loop wakes it.

A loop overlaps itself only in lanes. A failure becomes an entry in the loop's report, a metric and a log line, and
the loop runs again at its next turn; so does a failure of the reporting itself. No loop waits for another one, no
account for another account, and no failure of one ends another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import structlog
from prometheus_client import Counter, Gauge, Histogram

from control_plane.db import loops as loop_reports
from control_plane.db.connection import Connection
from control_plane.db.errors import is_database_trouble
from control_plane.db.listen import Listener
from control_plane.db.loops import Turn
from control_plane.domain.ids import AccountName
from reconciler import traced
from reconciler.loop import AccountLoop, Report, is_being_cancelled
from reconciler.registry import AnyLoop
from reconciler.repeated_errors import RepeatedErrors
from reconciler.roster import Roster
from reconciler.world import World
from reconciler.worlds.accounts import AccountWorld

ACTIVATIONS = Counter("splitplane_loop_activations", "Activations of a loop.", ("loop", "account", "outcome"))
ACTED = Counter("splitplane_loop_acted_on", "What a loop acted on.", ("loop", "account"))
REPORTS_LOST = Counter("splitplane_loop_reports_lost", "Reports that were not stored.", ("loop", "account"))
SECONDS = Histogram("splitplane_loop_seconds", "Duration of one activation.", ("loop", "account"))
LAST_ACTIVATION = Gauge(
    "splitplane_loop_last_activation_timestamp_seconds",
    "When an activation ended last, or when the loop was started. The database's time.",
    ("loop", "account"),
)
LAST_SUCCESS = Gauge(
    "splitplane_loop_last_success_timestamp_seconds",
    "When an activation ended last without an error, or when the loop was started. The database's time.",
    ("loop", "account"),
)
LATE_AFTER = Gauge(
    "splitplane_loop_late_after_seconds",
    "How long a healthy loop may go without the end of an activation.",
    ("loop", "account"),
)
FOLLOW_ACCOUNTS = timedelta(seconds=2)
"""How often a process looks whether operators added, changed or removed an account."""
REPORT_EVERY = timedelta(seconds=5)
"""How often a loop stores an uneventful report. An eventful one is stored at once."""
BESIDE_AGAIN_SECONDS = 5.0
"""After what runs beside a loop has failed."""
LATE_AFTER_TURNS = 3
FINISH_SECONDS_MAX = 15.0
"""How long activations may go on after the request to stop. Then they are cancelled, which is as safe as a crash."""
UNWIND_SECONDS_MAX = 5.0
"""How long cancelled activations may take to end. One that does not end is left behind."""
ERRORS_KEPT = 10
TEXT_MAX = 500

log = structlog.get_logger()


class Runner:
    """All loops of one reconciler process."""

    def __init__(self, world: World, loops: Iterable[AnyLoop], notifications: Listener | None = None) -> None:
        """Without `notifications` every loop runs at its interval only, and when another loop wakes it."""
        self._world = world
        self._notifications = notifications
        self._loops = tuple(loops)
        self._wake: dict[tuple[str, AccountName | None], asyncio.Event] = {}
        self._finished: dict[tuple[str, AccountName | None], float] = {}
        """When an activation finished last, in seconds of the event loop's clock."""
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts: dict[AccountName, set[asyncio.Task[None]]] = {}
        """Those that the account loops run for, with their tasks. It follows the world's."""
        self._roster = Roster(world, [])

    async def run(self) -> None:
        """Run until `stop` is called. Activations that are under way finish first, or are cancelled after a while."""
        for loop in self._loops:
            if not isinstance(loop, AccountLoop):
                self._start(loop, None)
        for account in self._wanted():
            self._start_account(account)
        self._keep(self._roster.keep(self._stopping), "roster")
        if isinstance(self._world, AccountWorld):
            self._keep(self._follow_accounts(self._world), "accounts")
        waking = [self._keep(self._hear(), "notifications")]
        for loop in self._loops:
            if not isinstance(loop, AccountLoop) and loop.beside is not None:
                run = partial(loop.beside, self._world, partial(self._wake_loops, (loop.name,)))
                waking.append(self._keep(self._beside(loop.name, run), f"{loop.name} beside"))
        try:
            await self._stopping.wait()
            for task in waking:
                task.cancel()
            await _ended(self._tasks, FINISH_SECONDS_MAX, "activations_cancelled")
        finally:
            self.stop()
            for task in self._tasks:
                task.cancel()
            await _ended(self._tasks, UNWIND_SECONDS_MAX, "activations_stuck")
        await self._roster.withdraw()

    async def _hear(self) -> None:
        """Wake loops when PostgreSQL notifies them, until cancelled."""
        listener = self._notifications
        if listener is None:
            return
        hearing = [loop for loop in self._loops if loop.hears]
        for channel in {channel for loop in hearing for channel in loop.hears}:
            names = tuple(loop.name for loop in hearing if channel in loop.hears)
            listener.on(channel, partial(self._wake_hearing, names))
        # Notifications were missed before.
        listener.on_connected(partial(self._wake_loops, tuple(loop.name for loop in hearing)))
        if hearing:
            await listener.run()

    async def _beside(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run what runs beside a loop, until cancelled. When it fails, it begins anew."""
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - the loop itself finds its work without it
                log.warning(
                    "beside_loop_failed", loop=name, error=f"{type(error).__name__}: {error}"[:TEXT_MAX]
                )
            await asyncio.sleep(BESIDE_AGAIN_SECONDS)

    def _wake_hearing(self, names: tuple[str, ...], _payload: str) -> None:
        self._wake_loops(names)

    async def _follow_accounts(self, world: AccountWorld) -> None:
        """Start the loops of accounts that operators add, and end those of accounts that they remove. Never raises."""
        while not self._stopping.is_set():
            try:
                await world.refresh_accounts()
            except Exception as error:  # noqa: BLE001 - the accounts stay as they are, and the next look follows
                log.warning("accounts_not_refreshed", error=f"{type(error).__name__}: {error}"[:TEXT_MAX])
            wanted = self._wanted()
            for account in sorted(wanted - self._accounts.keys()):
                self._start_account(account)
            for account in sorted(self._accounts.keys() - wanted):
                self._end_account(account)
            await _wait(self._stopping, FOLLOW_ACCOUNTS)

    def _wanted(self) -> set[AccountName]:
        """The accounts of the world. Raises TypeError when a loop runs per account and the world has none."""
        if isinstance(self._world, AccountWorld):
            return set(self._world.account_names)
        for loop in self._loops:
            if isinstance(loop, AccountLoop):
                raise TypeError(f"{loop.name} runs per account, and this process has no accounts")
        return set()

    def _start_account(self, account: AccountName) -> None:
        self._accounts[account] = set()
        for loop in self._loops:
            if isinstance(loop, AccountLoop):
                self._accounts[account] |= self._start(loop, account)

    def _end_account(self, account: AccountName) -> None:
        """Let the activations under way finish, start no more, and take back what was reported of them."""
        ending = self._accounts.pop(account)
        for key in [key for key in self._wake if key[1] == account]:
            self._wake.pop(key).set()
            self._finished.pop(key, None)
        self._keep(self._drop_account(account, ending), f"drop {account}")

    async def _drop_account(self, account: AccountName, ending: Collection[asyncio.Task[None]]) -> None:
        if ending:
            await asyncio.wait(ending)
        if account not in self._accounts:
            await self._roster.drop(account)

    def _is_wanted(self, account: AccountName | None) -> bool:
        """Whether the loop of the current task shall go on."""
        return account is None or asyncio.current_task() in self._accounts.get(account, ())

    def _keep(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start(self, loop: AnyLoop, account: AccountName | None) -> set[asyncio.Task[None]]:
        """One task for each lane of a loop. A failure of one ends none of the others, unlike in a task group."""
        self._roster.add(Turn(loop.name, account or ""))
        self._wake[loop.name, account] = asyncio.Event()
        self._finished[loop.name, account] = asyncio.get_running_loop().time()
        started = set()
        for lane in range(loop.lanes if isinstance(loop, AccountLoop) else 1):
            name = " ".join(filter(None, (loop.name, account, str(lane) if lane else "")))
            started.add(self._keep(self._keep_running(loop, account), name))
        return started

    def stop(self) -> None:
        self._stopping.set()
        for event in self._wake.values():
            event.set()

    def overdue(self) -> Sequence[str]:
        """The loops whose last activation finished too long ago, each with its account."""
        now = asyncio.get_running_loop().time()
        late = {loop.name: late_after(loop).total_seconds() for loop in self._loops}
        return [
            " of ".join(filter(None, (name, account)))
            for (name, account), finished in self._finished.items()
            if now - finished > late[name]
        ]

    async def _keep_running(self, loop: AnyLoop, account: AccountName | None) -> None:
        wake = self._wake[loop.name, account]
        reporting = _Reporting(self._world, loop, account)
        while not self._stopping.is_set() and self._is_wanted(account):
            wake.clear()
            if not await self._turn(reporting, loop, account):
                await _wait(wake, loop.every)
        if not self._stopping.is_set():
            reporting.forget()

    async def _turn(self, reporting: "_Reporting", loop: AnyLoop, account: AccountName | None) -> bool:
        """One activation, unless the clock is wrong. Returns whether the next one starts at once; never raises."""
        try:
            refusal = self._world.clock_refusal()
            if refusal is not None:
                await reporting.refused(refusal)
                return False
            report = await reporting.activation(_bind(loop, account, self._world))
            if report.acted_on:
                self._wake_loops(loop.wakes)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            return False
        except Exception:
            with suppress(Exception):  # Whoever reads the log may be gone, and the loops go on.
                log.exception("loop_bookkeeping_failed", loop=loop.name, account=account or "")
            return False
        finally:
            if self._is_wanted(account):
                self._finished[loop.name, account] = asyncio.get_running_loop().time()
        return report.more

    def _wake_loops(self, names: tuple[str, ...]) -> None:
        for (name, _), event in self._wake.items():
            if name in names:
                event.set()


def late_after(loop: AnyLoop) -> timedelta:
    """How long a healthy loop may go without a report: a few turns, one of which takes as long as it may."""
    return LATE_AFTER_TURNS * max(loop.every, REPORT_EVERY) + loop.lasts


def _bind(loop: AnyLoop, account: AccountName | None, world: World) -> Callable[[], Awaitable[Report]]:
    if isinstance(loop, AccountLoop):
        if account is None:
            raise TypeError(f"{loop.name} runs per account")
        return lambda: loop.activate(world, account)
    return lambda: loop.activate(world)


async def _ended(tasks: Collection[asyncio.Task[None]], seconds_max: float, event: str) -> None:
    """Wait until the tasks have ended, and log those that take longer."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=seconds_max)
    if late:
        log.warning(event, loops=sorted(task.get_name() for task in late))


async def _wait(wake: asyncio.Event, every: timedelta) -> None:
    try:
        async with asyncio.timeout(every.total_seconds()):
            await wake.wait()
    except TimeoutError:
        pass


class _Reporting:
    """Runs activations of one loop, and reports them to the database, the metrics and the log."""

    def __init__(self, world: World, loop: AnyLoop, account: AccountName | None) -> None:
        self._world = world
        self._loop = loop
        self._account = account
        self._labels = (loop.name, account or "")
        self._written_at: datetime | None = None
        self._failed_before = False
        self._repeated = RepeatedErrors()
        LATE_AFTER.labels(*self._labels).set(late_after(loop).total_seconds())
        for gauge in (LAST_ACTIVATION, LAST_SUCCESS):
            gauge.labels(*self._labels).set(world.now().timestamp())

    def forget(self) -> None:
        """Show no times any more, because the account was removed: its loops are not late."""
        for gauge in (LATE_AFTER, LAST_ACTIVATION, LAST_SUCCESS):
            with suppress(KeyError):  # Another lane was faster.
                gauge.remove(*self._labels)

    async def activation(self, activate: Callable[[], Awaitable[Report]]) -> Report:
        started_at = self._world.now()
        try:
            with SECONDS.labels(*self._labels).time():
                report = await traced.activation(self._world, self._loop.name, self._account, activate)
        except (Exception, asyncio.CancelledError) as error:
            if is_being_cancelled():
                raise
            report = Report(errors=[f"{type(error).__name__}: {error}"])
            log.warning(
                "loop_failed",
                loop=self._labels[0],
                account=self._labels[1],
                error=report.errors[0][:TEXT_MAX],
                exc_info=not is_database_trouble(error),
            )
        else:
            self._log(report)
        self._count(report)
        await self._write(report, started_at)
        return report

    def _count(self, report: Report) -> None:
        """Update the metrics after an activation."""
        ended = self._world.now().timestamp()
        ACTIVATIONS.labels(*self._labels, "error" if report.errors else "ok").inc()
        ACTED.labels(*self._labels).inc(report.acted_on)
        LAST_ACTIVATION.labels(*self._labels).set(ended)
        if not report.errors:
            LAST_SUCCESS.labels(*self._labels).set(ended)

    def _log(self, report: Report) -> None:
        """Lines for an activation that came to its end, if it acted or met errors that were not logged lately. A failed
        one was logged.
        """
        met = [error[:TEXT_MAX] for error in report.errors[:ERRORS_KEPT]]
        errors = self._repeated.to_log(met, self._world.now())
        loop, account = self._labels
        for event in report.events:
            log.info(event.name, loop=loop, **event.facts)
        if report.acted_on:
            log.info("loop_acted", loop=loop, account=account, acted_on=report.acted_on, errors=errors)
        elif errors:
            log.warning("loop_met_errors", loop=loop, account=account, errors=errors)

    async def refused(self, why: str) -> None:
        """Report that no activation was started. It is logged where the clock is watched, once for all loops."""
        ACTIVATIONS.labels(*self._labels, "refused").inc()
        if self._is_due(self._world.now()):
            await self._store(Report(errors=[why]), self._world.now())

    def _is_due(self, now: datetime) -> bool:
        return self._written_at is None or now - self._written_at >= REPORT_EVERY

    async def _write(self, report: Report, started_at: datetime) -> None:
        now = self._world.now()
        eventful = bool(report.acted_on or report.errors or self._failed_before)
        if not eventful and not self._is_due(now):
            return
        self._failed_before = bool(report.errors)
        await self._store(report, started_at)

    async def _store(self, report: Report, started_at: datetime) -> None:
        """Store a report. When that fails, the loop goes on, and so do all others."""
        now = self._world.now()
        try:
            async with self._world.db.transaction() as connection:
                await self._record(connection, report, started_at, now)
        except Exception as error:  # noqa: BLE001 - no loop ends because its report was not stored
            REPORTS_LOST.labels(*self._labels).inc()
            passes = is_database_trouble(error)
            (log.warning if passes else log.error)(
                "report_not_written",
                loop=self._labels[0],
                account=self._labels[1],
                error=f"{type(error).__name__}: {error}"[:TEXT_MAX],
                exc_info=not passes,
            )
        else:
            self._written_at = now

    async def _record(
        self, connection: Connection, report: Report, started_at: datetime, finished_at: datetime
    ) -> None:
        await loop_reports.record(
            connection,
            loop=self._labels[0],
            account=self._labels[1],
            replica=self._world.replica,
            started_at=started_at,
            finished_at=finished_at,
            every_seconds=self._loop.every.total_seconds(),
            late_after_seconds=late_after(self._loop).total_seconds(),
            looked_at=report.looked_at,
            acted_on=report.acted_on,
            errors=[error[:TEXT_MAX] for error in report.errors[:ERRORS_KEPT]],
            notes=[note[:TEXT_MAX] for note in report.notes[:ERRORS_KEPT]],
        )
