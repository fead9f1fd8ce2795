"""The three-way match of a month: our meter of each machine's life, its supplier's record, and the customers' bill.

    customers' time --before ready, unsold, not billed, blocks--> what we expect --times, price ...--> what they bill
    nothing --left behind--> what we expect of a volume that outlived its machine --times, price ...--> what they bill

The time for which customers are billed is priced as the supplier prices it. Each step from there to the supplier's
amount has a word and an amount, so that the steps of a machine add up to the difference, to the nano-dollar. Words that
follow from the supplier's own rules, or from what nobody tells us, are explained; the others are open: somebody has to
ask the supplier, or to look for the machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from control_plane.domain.child_cost import ChildCost
from control_plane.domain.cost_record import CostRecord
from control_plane.domain.money import NANO_PER_CENT, NOTHING, Nano, accrued
from control_plane.domain.provider_cost import BillingTerms, MachineLife, bounds_between, cost_between
from control_plane.domain.supplier_invoice import BilledMachine


class MatchWord(StrEnum):
    """Why two records of a machine differ."""

    BEFORE_READY = "before_ready"
    """A lease held the machine, and its customer could not use it yet."""
    UNSOLD_TIME = "unsold_time"
    """No lease held the machine."""
    NOT_BILLED = "not_billed"
    """A lease held the machine, and the customer was not billed: its bill was paused, or the charge has yet to come."""
    LEFT_BEHIND = "left_behind"
    """Something that a launch made beside its machine, such as a volume, outlived it."""
    BILLED_BY_BLOCK = "billed_by_block"
    """The supplier rounds up, or bills a minimum."""
    OBSERVED_TIMES = "observed_times"
    """The supplier's begin and end lie within what we saw of them."""
    ROUNDING = "rounding"
    """Less than a cent for each line."""
    SPOT_PRICE = "spot_price"
    """The price of spot capacity moved."""
    PRICE_DIFFERS = "price_differs"
    """The supplier bills another price than the one at which the machine was ordered."""
    TIME_DIFFERS = "time_differs"
    """The supplier bills another time than the machine can have existed."""
    AMOUNT_DIFFERS = "amount_differs"
    """The supplier bills another amount, and its lines do not say for how much time."""
    NOT_ON_OUR_RECORDS = "not_on_our_records"
    """The supplier bills a machine, or something beside one, that no record of the month has."""
    NOT_ON_THEIRS = "not_on_theirs"
    """The supplier does not bill a machine that we expect it to bill."""


OPEN = frozenset(
    {
        MatchWord.PRICE_DIFFERS,
        MatchWord.TIME_DIFFERS,
        MatchWord.AMOUNT_DIFFERS,
        MatchWord.NOT_ON_OUR_RECORDS,
        MatchWord.NOT_ON_THEIRS,
    }
)
"""The words that need somebody's decision."""


@dataclass(frozen=True, slots=True)
class Difference:
    word: MatchWord
    amount_nano: Nano
    """By how much it makes the supplier's amount more."""


@dataclass(frozen=True, slots=True)
class MatchedMachine:
    reference: str
    """The supplier's reference; the id of the machine where it has none."""
    record: CostRecord | None
    """Ours; None when the supplier alone has one, and for what was left behind."""
    billed_nano: Nano
    """What customers were charged for its time."""
    used_nano: Nano
    """What that time costs at the supplier's price."""
    expected_nano: Nano
    """What we expect the supplier to bill."""
    theirs_nano: Nano
    """What it bills."""
    differences: tuple[Difference, ...]
    """The steps from `used_nano` to `theirs_nano`."""
    child: ChildCost | None = None
    """Our record of what was left behind; None for a machine."""

    @property
    def is_open(self) -> bool:
        return any(difference.word in OPEN for difference in self.differences)


@dataclass(slots=True)
class Match:
    """The match of a supplier's month, added up machine by machine."""

    since: datetime
    until: datetime
    billed: Mapping[str, BilledMachine]
    """What the supplier bills, by its reference of the machine."""
    machines: list[MatchedMachine] = field(default_factory=list[MatchedMachine])
    _met: set[str] = field(default_factory=set[str])

    def add(self, record: CostRecord) -> None:
        """Hold one of our machines against what the supplier bills for it."""
        reference = record.provider_ref
        met = reference is None or reference in self._met
        billed = _NOT_BILLED if met else self.billed.get(reference or "", _NOT_BILLED)
        if reference is not None:
            self._met.add(reference)
        self.machines.append(_matched(record, billed, self.since, self.until))

    def add_child(self, child: ChildCost) -> None:
        """Hold something that outlived its machine against what the supplier bills for it."""
        expected = child.cost(self.since, self.until)
        met = child.ref in self._met
        billed = _NOT_BILLED if met else self.billed.get(child.ref, _NOT_BILLED)
        if not expected and not billed.lines:
            return
        self._met.add(child.ref)
        bought = _Bought(child.terms, child.life, spot=False)
        steps = (
            Difference(MatchWord.LEFT_BEHIND, expected),
            *_theirs(bought, billed, self.since, self.until),
        )
        self.machines.append(
            MatchedMachine(
                reference=child.ref,
                record=None,
                billed_nano=NOTHING,
                used_nano=NOTHING,
                expected_nano=expected,
                theirs_nano=billed.amount_nano,
                differences=tuple(step for step in steps if step.amount_nano),
                child=child,
            )
        )

    def finish(self) -> None:
        """Add what the supplier bills and no record has."""
        for reference, billed in self.billed.items():
            if reference not in self._met:
                amount = billed.amount_nano
                found = (Difference(MatchWord.NOT_ON_OUR_RECORDS, amount),)
                self.machines.append(
                    MatchedMachine(reference, None, NOTHING, NOTHING, NOTHING, amount, found)
                )

    def total(self, word: MatchWord) -> Nano:
        """The sum of a word's differences."""
        return _sum(
            difference.amount_nano
            for machine in self.machines
            for difference in machine.differences
            if difference.word is word
        )


_NOT_BILLED = BilledMachine()


@dataclass(frozen=True, slots=True)
class _Bought:
    """What a supplier bills us for."""

    terms: BillingTerms
    life: MachineLife
    spot: bool


def _matched(record: CostRecord, billed: BilledMachine, since: datetime, until: datetime) -> MatchedMachine:
    used = _used(record)
    expected = record.cost(since, until)
    theirs = billed.amount_nano
    bought = _Bought(record.terms, record.life, record.spot)
    steps = (*_ours(record, used, since, until), *_theirs(bought, billed, since, until))
    return MatchedMachine(
        reference=record.provider_ref or record.id.hex,
        record=record,
        billed_nano=_sum(charged.amount_nano for charged in record.charged),
        used_nano=used,
        expected_nano=expected,
        theirs_nano=theirs,
        differences=tuple(step for step in steps if step.amount_nano),
    )


def _used(record: CostRecord) -> Nano:
    """What the customers' billed time costs at the supplier's price. A slot costs its share of the machine."""
    terms, holders = record.terms, {holder.lease_id: holder for holder in record.holders}
    stopped = terms.nano_per_hour if terms.stopped_nano_per_hour is None else terms.stopped_nano_per_hour
    total = 0
    for charged in record.charged:
        cost = accrued(terms.nano_per_hour, charged.on_seconds) + accrued(stopped, charged.stopped_seconds)
        holder = holders[charged.lease_id]
        total += cost if holder.slot is None else cost * holder.units // max(record.gpu_count, holder.units)
    return Nano(total)


def _ours(record: CostRecord, used: Nano, since: datetime, until: datetime) -> Iterator[Difference]:
    """The steps from the customers' time to what we expect."""
    by_second = replace(record, terms=replace(record.terms, increment_seconds=1, minimum_seconds=0))
    waited, unsold = 0, 0
    for begin, end, held_by in record.stretches(since, until):
        cost = by_second.cost(begin, end)
        if not held_by:
            unsold += cost
        elif all(holder.admitted_at is None or holder.admitted_at > begin for holder in held_by):
            waited += cost
    exact = by_second.cost(since, until)
    yield Difference(MatchWord.BEFORE_READY, Nano(waited))
    yield Difference(MatchWord.UNSOLD_TIME, Nano(unsold))
    yield Difference(MatchWord.NOT_BILLED, Nano(exact - used - waited - unsold))
    yield Difference(MatchWord.BILLED_BY_BLOCK, Nano(record.cost(since, until) - exact))


def _theirs(bought: _Bought, billed: BilledMachine, since: datetime, until: datetime) -> Iterator[Difference]:
    """The steps from what we expect to what the supplier bills."""
    terms, life = bought.terms, bought.life
    expected, theirs = cost_between(terms, life, since, until), billed.amount_nano
    bounds = bounds_between(terms, life, since, until)
    cents = NANO_PER_CENT * billed.lines
    if not billed.lines:
        # A machine that may have cost nothing by its rules need not be on the invoice.
        word = MatchWord.NOT_ON_THEIRS if bounds.least_nano > 0 else MatchWord.OBSERVED_TIMES
        yield Difference(word, Nano(-expected))
        return
    if abs(theirs - expected) <= cents:
        yield Difference(MatchWord.ROUNDING, Nano(theirs - expected))
        return
    seconds = billed.seconds
    one_price = terms.stopped_nano_per_hour is None or not life.stops
    if seconds is None or not one_price:
        priced, unlike = theirs, MatchWord.AMOUNT_DIFFERS
    else:
        priced, unlike = accrued(terms.nano_per_hour, seconds), MatchWord.TIME_DIFFERS
    within = bounds.least_nano - cents <= priced <= bounds.most_nano + cents
    yield Difference(MatchWord.OBSERVED_TIMES if within else unlike, Nano(priced - expected))
    if abs(theirs - priced) <= cents:
        yield Difference(MatchWord.ROUNDING, Nano(theirs - priced))
    else:
        word = MatchWord.SPOT_PRICE if bought.spot else MatchWord.PRICE_DIFFERS
        yield Difference(word, Nano(theirs - priced))


def _sum(amounts: Iterable[Nano]) -> Nano:
    return Nano(sum(amounts))


def ordered(machines: Iterable[MatchedMachine]) -> list[MatchedMachine]:
    """Those that somebody has to look at first; among them, the largest difference first."""
    return sorted(
        machines,
        key=lambda machine: (
            not machine.is_open,
            -abs(machine.theirs_nano - machine.expected_nano),
            machine.reference,
        ),
    )
