"""What is to be given back for broken promises, computed a second time: from docs/sla.md and raw facts alone.

Nothing of the product is imported here, neither its clocks nor its rules nor its terms: those are read from the file
that ships. The facts are lines of the journal, charges, verdicts about machines, claims and operators' maintenance, as
their rows have them. Time is cut at every moment at which any fact changes, and each piece is asked what it was: so the
arithmetic shares no idea with spans that are joined and cut. A second that nobody charged is a second that was not
billed, whatever the product believes to have paused.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

_BY_US = frozenset({"machine_lost", "evicted", "proof_failed"})
"""Events with which a lease ends though nobody wanted that."""
_BROKEN = frozenset({"quarantined", "maintenance_required"})
"""Verdicts that nobody reaches by a machine's word alone (docs/health.md)."""
_UNFIT = _BROKEN | {"lost"}
"""Verdicts about machines that no lease is given."""
_WORKS = frozenset({"eviction_announced", "under_maintenance", "provider_maintenance"})
"""Faults with which all that was sold works."""


@dataclass(frozen=True)
class Line:
    """A line of a lease's journal."""

    at: datetime
    event: str
    state_after: str | None


@dataclass(frozen=True)
class Charge:
    since: datetime
    until: datetime
    stopped: bool
    nano: int


@dataclass(frozen=True)
class Use:
    """A machine, from when its customer could use it until the claim ended."""

    machine: str
    since: datetime
    until: datetime | None
    handed_back: bool = False
    """Whether its customer asked for another one."""


@dataclass(frozen=True)
class Verdict:
    machine: str
    number: int
    at: datetime
    verdict: str
    fault: str | None


@dataclass(frozen=True)
class Work:
    """Our work on a machine."""

    machine: str
    announced_at: datetime
    begins_at: datetime
    until: datetime | None


@dataclass(frozen=True)
class PromisedLease:
    id: str
    tier: str
    created_at: datetime
    journal: Sequence[Line]
    charges: Sequence[Charge] = ()
    uses: Sequence[Use] = ()
    verdicts: Sequence[Verdict] = ()
    works: Sequence[Work] = ()


@dataclass
class Owed:
    """What is owed for a lease in a month."""

    broken: set[str] = field(default_factory=set[str])
    nano: int = 0


Month = tuple[int, int]


def shipped_terms(path: Path) -> dict[str, Any]:
    """The terms of each tier, as the file has them."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def owed(lease: PromisedLease, terms: Mapping[str, Any]) -> dict[Month, Owed]:
    """What is owed for a lease that has ended, by month. A month without a broken promise is left out."""
    promised = terms[lease.tier]
    life = _Life(lease, promised.get("degraded_seconds"))
    shares: dict[Month, dict[str, Decimal]] = defaultdict(dict)
    for month in life.months():
        share = _availability(life, month, promised)
        if share is not None:
            shares[month]["availability"] = share
    for month in life.months_of_late_repairs(promised.get("replacement_seconds")):
        shares[month]["replacement"] = _share(promised["replacement_credit"])
    if (late := life.month_of_late_start(promised.get("ready_seconds"))) is not None:
        shares[late]["ready"] = _share(promised["ready_credit"])
    for month in life.months_of_unannounced_work(promised.get("notice_seconds")):
        shares[month]["notice"] = _share(promised["notice_credit"])
    found = {}
    for month, parts in shares.items():
        whole = min(Decimal(1), sum(parts.values(), Decimal(0)))
        nano = (Decimal(life.charged(month)) * whole).to_integral_value(ROUND_HALF_EVEN)
        found[month] = Owed(set(parts), int(nano))
    return found


def _share(text: str) -> Decimal:
    return Decimal(text.rstrip("%")) / 100


def _availability(life: "_Life", month: Month, promised: Mapping[str, Any]) -> Decimal | None:
    """The share that is given back for availability: of the lowest step that was missed."""
    notice = promised.get("notice_seconds")
    late_work = life.work(notice, announced_in_time=False)
    excused = life.work(notice, announced_in_time=True)
    promised_seconds = missed = 0
    for piece in life.pieces:
        if piece.month != month or not piece.promised:
            continue
        promised_seconds += piece.seconds
        down = not piece.billed or piece.begin in life.broken or piece.begin in late_work
        missed += piece.seconds if down and piece.begin not in excused else 0
    if not promised_seconds:
        return None
    up = Decimal(promised_seconds - missed) / Decimal(promised_seconds)
    steps = [step for step in promised.get("availability", ()) if up < _share(step["below"])]
    return _share(min(steps, key=lambda step: _share(step["below"]))["credit"]) if steps else None


@dataclass(frozen=True)
class _Piece:
    """Time in which nothing changes, in whole seconds since 1970."""

    begin: int
    end: int
    billed: bool
    """Or used at our expense."""
    stopped: bool
    ready: bool
    """Between its becoming ready and its end."""

    @property
    def seconds(self) -> int:
        return self.end - self.begin

    @property
    def promised(self) -> bool:
        return self.ready and not self.stopped

    @property
    def month(self) -> Month:
        return _month(self.begin)


class _Life:
    """A lease's life, cut at every moment at which something changed."""

    def __init__(self, lease: PromisedLease, grace: int | None) -> None:
        self.lease = lease
        readied = [line.at for line in lease.journal if line.state_after == "ready"]
        ending = [line for line in lease.journal if line.state_after == "ending"]
        assert len(ending) == 1, f"lease {lease.id} has ended, once: {lease.journal}"
        self.end, self.end_event = _down(ending[0].at), ending[0].event
        self.ready = _up(min(readied)) if readied else None
        self.by_us = self.end_event in _BY_US or (self.end_event == "gave_up" and self.ready is not None)
        # What no hold covered in time is ours to pay (docs/operating.md): nothing failed then.
        unpaid = any(line.event == "use_not_billed" for line in lease.journal)
        self.ours_from = max((_down(charge.until) for charge in lease.charges), default=0) if unpaid else None
        self.wanted = _Seconds(())
        self.pieces = self._cut(())
        # A customer who hands a machine back that was fit has none meanwhile because they want it so.
        self.wanted = _Seconds(self._wanted())
        self.pieces = self._cut(())
        self.broken = self._broken_after(grace)
        self.pieces = self._cut(begin for begin, _ in self.broken.spans)

    def _cut(self, besides: Iterable[int]) -> list[_Piece]:
        if self.ready is None or self.ready >= self.end:
            return []
        moments = {self.ready, self.end, *_months_between(self.ready, self.end), *besides}
        for charge in self.lease.charges:
            moments |= {int(charge.since.timestamp()), int(charge.until.timestamp())}
        for use in self.lease.uses:
            moments |= {_down(use.since), self.end if use.until is None else _down(use.until)}
        moments |= {_down(verdict.at) for verdict in self.lease.verdicts}
        for work in self.lease.works:
            moments |= {_down(work.begins_at), self.end if work.until is None else _down(work.until)}
        ordered = sorted(moment for moment in moments if self.ready <= moment <= self.end)
        return [self._piece(begin, end) for begin, end in pairwise(ordered)]

    def _piece(self, begin: int, end: int) -> _Piece:
        covering = [
            charge
            for charge in self.lease.charges
            if charge.since.timestamp() <= begin and end <= charge.until.timestamp()
        ]
        assert len(covering) <= 1, "a second is charged twice"
        stopped = bool(covering) and covering[0].stopped
        ours = self.ours_from is not None and begin >= self.ours_from
        return _Piece(
            begin, end, billed=bool(covering) or ours, stopped=stopped or begin in self.wanted, ready=True
        )

    def _wanted(self) -> Iterable[tuple[int, int]]:
        """The pieces in which nothing was billed around the end of a use that its customer ended."""
        for use in self.lease.uses:
            if not use.handed_back or use.until is None:
                continue
            said = [one for one in self.lease.verdicts if one.machine == use.machine and one.at <= use.until]
            if said and max(said, key=lambda one: (one.at, one.number)).verdict in _UNFIT:
                continue
            ends = _down(use.until)
            after = [piece for piece in self.pieces if piece.begin >= ends]
            before = [piece for piece in reversed(self.pieces) if piece.end <= ends]
            for side in (after, before):
                for piece in side:
                    if piece.billed:
                        break
                    yield piece.begin, piece.end

    def months(self) -> set[Month]:
        return {piece.month for piece in self.pieces}

    def charged(self, month: Month) -> int:
        return sum(
            charge.nano for charge in self.lease.charges if _month(int(charge.since.timestamp())) == month
        )

    # Failures

    def months_of_late_repairs(self, limit: int | None) -> set[Month]:
        """Months in which a failure lasted for longer than promised."""
        if limit is None:
            return set()
        late = {piece.month for piece in self._after(lambda piece: not piece.billed, limit)}
        if self.by_us and not (self.pieces and self.pieces[-1].begin in self.wanted):  # It never came back.
            late.add(_month(self._lost_since()))
        return late

    def _lost_since(self) -> int:
        since = self.end
        for piece in reversed(self.pieces):
            if piece.billed:
                break
            since = piece.begin
        return since

    def _after(self, fails: Any, limit: int) -> Iterable[_Piece]:
        """The parts of each failure that come after so many seconds of it. The customer's stops do not count in it."""
        lasted = 0
        for piece in self.pieces:
            if piece.stopped:
                continue
            if not fails(piece):
                lasted = 0
                continue
            lasted += piece.seconds
            if lasted > limit:
                begin = max(piece.begin, piece.end - (lasted - limit))
                yield _Piece(begin, piece.end, piece.billed, piece.stopped, piece.ready)

    def _broken_after(self, grace: int | None) -> "_Seconds":
        """Time in which a part of what was sold did not work, beyond the grace."""
        if grace is None:
            return _Seconds(())
        return _Seconds((piece.begin, piece.end) for piece in self._after(self._is_broken, grace))

    def _is_broken(self, piece: _Piece) -> bool:
        for use in self.lease.uses:
            if not (_down(use.since) <= piece.begin and (use.until is None or piece.end <= _down(use.until))):
                continue
            said = [
                verdict
                for verdict in self.lease.verdicts
                if verdict.machine == use.machine and _down(verdict.at) <= piece.begin
            ]
            if said:
                last = max(said, key=lambda verdict: (verdict.at, verdict.number))
                return last.verdict in _BROKEN and last.fault not in _WORKS
        return False

    # The start, and our work

    def month_of_late_start(self, limit: int | None) -> Month | None:
        created = _down(self.lease.created_at)
        until = self.end if self.ready is None else min(self.ready, self.end)
        if limit is None or until - created <= limit:
            return None
        return _month(created + limit if self.ready is None else self.ready)

    def work(self, notice: int | None, *, announced_in_time: bool) -> "_Seconds":
        if notice is None:
            return _Seconds(())
        spans = []
        for use in self.lease.uses:
            for work in self.lease.works:
                ahead = (work.begins_at - work.announced_at).total_seconds() >= notice
                if work.machine == use.machine and ahead is announced_in_time:
                    ends = [self.end if at is None else _down(at) for at in (work.until, use.until)]
                    spans.append((max(_down(work.begins_at), _down(use.since)), min(*ends, self.end)))
        return _Seconds(spans)

    def months_of_unannounced_work(self, notice: int | None) -> set[Month]:
        late = self.work(notice, announced_in_time=False)
        return {piece.month for piece in self.pieces if piece.promised and piece.begin in late}


class _Seconds:
    """Seconds that lie in any of some spans."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.spans = [(begin, end) for begin, end in spans if begin < end]

    def __contains__(self, second: int) -> bool:
        return any(begin <= second < end for begin, end in self.spans)


def _down(moment: datetime) -> int:
    return math.floor(moment.timestamp())


def _up(moment: datetime) -> int:
    return math.ceil(moment.timestamp())


def _month(second: int) -> Month:
    moment = datetime.fromtimestamp(second, UTC)
    return moment.year, moment.month


def _months_between(begin: int, end: int) -> Iterable[int]:
    day = datetime.fromtimestamp(begin, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while (day := day + timedelta(days=1)).timestamp() < end:
        if day.day == 1:
            yield int(day.timestamp())
