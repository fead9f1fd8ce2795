"""What the reconciler says about itself: in its log when it changes, and at `/readyz` when somebody asks."""

from collections.abc import Iterable

import structlog
from prometheus_client import Gauge

from control_plane.db.clock import DatabaseClock
from control_plane.db.errors import sentence
from control_plane.db.watch import DatabaseWatch
from reconciler.runner import Runner

CLOCK_DIFFERENCE = Gauge(
    "splitplane_clock_difference_seconds", "How far the clock of this host is ahead of the database's."
)

log = structlog.get_logger()


class Health:
    """Why the process cannot do its work now, if it cannot."""

    def __init__(self) -> None:
        self.watch: DatabaseWatch | None = None
        self.clock: DatabaseClock | None = None
        self.runner: Runner | None = None
        """None while the process waits for its database."""

    def not_ready(self) -> Iterable[str]:
        """The reasons, as sentences."""
        fault = self.watch.fault if self.watch else "the process is starting"
        if fault is not None:
            yield f"Waiting for the database: {fault}."
        elif self.runner is None:
            yield "The loops have not been started yet."
        refusal = self.clock.refusal() if self.clock and self.clock.is_set else None
        if refusal is not None:
            yield refusal
        for name in self.runner.overdue() if self.runner else ():
            yield f"The loop {name} has not finished an activation for too long."


def note_database(fault: str | None) -> None:
    """Log what the reconciler waits for, or that it can use the database."""
    if fault is None:
        log.info("database_usable")
    else:
        log.warning("waiting_for_database", why=f"Waiting for the database: {fault}.")


def note_clock(refusal: str | None) -> None:
    """Log that no activation is started any more because of the clock, or that they are again."""
    if refusal is None:
        log.info("clock_right")
    else:
        log.error("clock_wrong", why=refusal)


def note_not_started(error: Exception, place: str) -> None:
    """Log why the loops could not begin although the database was usable a moment ago."""
    log.warning("loops_not_started", why=sentence(error, place))
