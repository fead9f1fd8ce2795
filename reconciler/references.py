"""A challenger with current reference times: those that we measured and ship, and those learnt from proofs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

from control_plane.db import references
from control_plane.db.engine import Database
from control_plane.db.references import Learnt
from data_plane.access.line import Line
from data_plane.proof.challenger import measurements
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.port import Expected, Occasion, ProofReport
from data_plane.proof.challenger.reference import (
    EVERY_DRIVER,
    Basis,
    Observed,
    Pace,
    References,
    TimedPhase,
)
from data_plane.proof.verifier.jobs import Verifier

FRESH_FOR = timedelta(minutes=1)
"""How long learnt references are used before they are read again."""


class LearningChallenger:
    """`port.Challenger` that uses what `learn_references` stores."""

    def __init__(self, db: Database, verifier: Verifier, now: Callable[[], datetime]) -> None:
        self._db = db
        self._verifier = verifier
        self._now = now
        self._measured = measurements.load()
        self._read_at: datetime | None = None
        self._references = References(self._measured)

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        """As `ProofChallenger.challenge`."""
        current = await self._current()
        challenger = ProofChallenger(self._verifier, current, now=self._now)
        return await challenger.challenge(line, expected, occasion)

    async def _current(self) -> References:
        now = self._now()
        if self._read_at is None or now - self._read_at > FRESH_FOR:
            async with self._db.reading() as connection:
                learnt = await references.learnt(connection)
            self._references = References((*self._measured, *observed(learnt)))
            self._read_at = now
        return self._references


def of_driver(major: int) -> str:
    """The driver that a reference applies to, in words."""
    return "every driver" if major == EVERY_DRIVER else f"driver {major}"


def observed(learnt: Sequence[Learnt]) -> tuple[Observed, ...]:
    """Convert learnt references to the data plane's form: one value per model and driver branch."""
    paces: dict[tuple[str, int], dict[TimedPhase, Pace]] = defaultdict(dict)
    for row in learnt:
        note = f"{row.learnt_on}, {of_driver(row.driver_major)}, {row.providers} providers"
        phase = cast("TimedPhase", row.phase)
        paces[row.gpu_model, row.driver_major][phase] = Pace(row.rate, Basis.LEARNT, note)
    return tuple(Observed(model, major, of_phase) for (model, major), of_phase in paces.items())
