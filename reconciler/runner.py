"""Runs every loop until it is stopped: at the loop's interval, or earlier when another loop wakes it.

A loop overlaps itself only in lanes. A failure becomes an entry in the loop's report, a metric and a log line, and
the loop runs again at its next turn. No loop waits for another one, and no account for another account.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import structlog
from prometheus_client import Counter, Histogram

from control_plane.db import loops as loop_reports
from control_plane.db.engine import is_connection_trouble
from control_plane.domain.ids import AccountName
from reconciler.loop import AccountLoop, Report
from reconciler.registry import AnyLoop
from reconciler.world import World
from reconciler.worlds.accounts import AccountWorld

ACTIVATIONS = Counter("loop_activations", "Activations of a loop.", ("loop", "account", "outcome"))
ACTED = Counter("loop_acted_on", "What a loop acted on.", ("loop", "account"))
SECONDS = Histogram("loop_seconds", "Duration of one activation.", ("loop", "account"))
REPORT_EVERY = timedelta(seconds=5)
"""How often a loop stores an uneventful report. An eventful one is stored at once."""
LATE_AFTER_TURNS = 3
ERRORS_KEPT = 10
TEXT_MAX = 500

log = structlog.get_logger()


class Runner:
    """All loops of one reconciler process."""

    def __init__(self, world: World, loops: Iterable[AnyLoop]) -> None:
        self._world = world
        self._loops = tuple(loops)
        self._wake: dict[tuple[str, AccountName | None], asyncio.Event] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until `stop` is called. Activations that are under way finish first."""
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                for account in self._turns(loop):
                    self._wake[loop.name, account] = asyncio.Event()
                    for lane in range(loop.lanes if isinstance(loop, AccountLoop) else 1):
                        name = f"{loop.name} {account or ''} {lane}"
                        group.create_task(self._keep_running(loop, account), name=name)

    def stop(self) -> None:
        self._stopping.set()
        for event in self._wake.values():
            event.set()

    def _turns(self, loop: AnyLoop) -> tuple[AccountName | None, ...]:
        if not isinstance(loop, AccountLoop):
            return (None,)
        if not isinstance(self._world, AccountWorld):
            raise TypeError(f"{loop.name} runs per account, and this process has no accounts")
        return self._world.account_names

    async def _keep_running(self, loop: AnyLoop, account: AccountName | None) -> None:
        wake = self._wake[loop.name, account]
        reporting = _Reporting(self._world, loop, account)
        while not self._stopping.is_set():
            wake.clear()
            report = await reporting.activation(_bind(loop, account, self._world))
            if report.acted_on:
                self._wake_loops(loop.wakes)
            if not report.more:
                await _wait(wake, loop.every)

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
        self._labels = (loop.name, account or "")
        self._written_at = world.now() - REPORT_EVERY
        self._failed_before = False

    async def activation(self, activate: Callable[[], Awaitable[Report]]) -> Report:
        started_at = self._world.now()
        try:
            with SECONDS.labels(*self._labels).time():
                report = await activate()
        except Exception as error:
            report = Report(errors=[f"{type(error).__name__}: {error}"])
            log.warning(
                "loop_failed",
                loop=self._labels[0],
                account=self._labels[1],
                error=report.errors[0][:TEXT_MAX],
                exc_info=not is_connection_trouble(error) and not isinstance(error, ExceptionGroup),
            )
        outcome = "error" if report.errors else "ok"
        ACTIVATIONS.labels(*self._labels, outcome).inc()
        ACTED.labels(*self._labels).inc(report.acted_on)
        await self._write(report, started_at)
        return report

    async def _write(self, report: Report, started_at: datetime) -> None:
        now = self._world.now()
        eventful = bool(report.acted_on or report.errors or self._failed_before)
        if not eventful and now - self._written_at < REPORT_EVERY:
            return
        self._failed_before = bool(report.errors)
        if report.acted_on or report.errors:
            log.info(
                "loop_acted",
                loop=self._labels[0],
                account=self._labels[1],
                acted_on=report.acted_on,
                errors=[error[:TEXT_MAX] for error in report.errors[:ERRORS_KEPT]],
            )
        try:
            async with self._world.db.transaction() as connection:
                await loop_reports.record(
                    connection,
                    loop=self._labels[0],
                    account=self._labels[1],
                    replica=self._world.replica,
                    started_at=started_at,
                    finished_at=now,
                    every_seconds=self._loop.every.total_seconds(),
                    late_after_seconds=late_after(self._loop).total_seconds(),
                    looked_at=report.looked_at,
                    acted_on=report.acted_on,
                    errors=[error[:TEXT_MAX] for error in report.errors[:ERRORS_KEPT]],
                    notes=[note[:TEXT_MAX] for note in report.notes[:ERRORS_KEPT]],
                )
        except Exception as error:
            if not is_connection_trouble(error):
                raise
            log.warning("report_not_written", loop=self._labels[0], error=str(error)[:TEXT_MAX])
        else:
            self._written_at = now
