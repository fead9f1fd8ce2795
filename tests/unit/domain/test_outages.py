"""Who pays after an outage: whatever runs, stalls and comes back, in any order, no charge overdraws a balance."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from control_plane.domain import metering
from control_plane.domain.funding import HOLD, End, Funding, Renew, StopTimes, decide, first_look, next_look
from control_plane.domain.metering import Interval, Meter, Use, used_until
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.rating import charge
from control_plane.domain.tariff import Tariff
from tests.support.tariff import a_tariff

NOON = datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)


@dataclass
class _Lease:
    """A lease with its meter, its hold, and its queue of unrated intervals."""

    ready_at: datetime
    gpus: int
    price: Nano
    held: int
    due_at: datetime
    posted: int = 0
    billed_until: datetime | None = None
    metered_until: datetime | None = None
    intervals: int = 0
    closed: bool = False
    unrated: list[Interval] = field(default_factory=list[Interval])

    @property
    def tariff(self) -> Tariff:
        return a_tariff(self.ready_at, self.gpus, self.price)

    def use(self, now: datetime) -> Use:
        """What is known about its use while its machine is on every list."""
        return Use(
            ready_at=self.ready_at,
            billed_until=self.billed_until,
            evidence_at=now,
            suspect_since=None,
            units=self.gpus,
            nano_per_unit_hour=self.price,
            stopped_nano_per_unit_hour=self.price,
            set_aside_nano=Nano(self.posted + self.held),
            release_at=None,
        )

    def cost(self, until: datetime) -> Nano:
        return self.tariff.cost_until(until)

    def end(self, now: datetime) -> None:
        if self.billed_until is None:
            set_aside = Nano(self.posted + self.held)
            ending = metering.ending(self.tariff, set_aside, now)
            self.billed_until = ending.billed_until
            self.held = self.cost(self.billed_until) - self.posted


@dataclass
class _Wallet:
    """One organization, with the three loops of money. Each of their steps happens wholly or not at all."""

    balance: int
    leases: list[_Lease]
    now: datetime = NOON

    @property
    def available(self) -> int:
        return self.balance - sum(lease.held for lease in self.leases)

    def meter(self) -> None:
        for lease in self.leases:
            if lease.closed:
                continue
            meter = Meter(lease.tariff, lease.metered_until, lease.intervals)
            for interval in metering.due_intervals(meter, used_until(lease.use(self.now), self.now)):
                lease.unrated.append(interval)
                lease.metered_until, lease.intervals = interval.ended_at, interval.number
                lease.closed = interval.final

    def rate(self) -> None:
        for lease in self.leases:
            for interval in lease.unrated:
                amount = charge(lease.price, interval.unit_seconds_before, interval.unit_seconds)
                assert amount <= lease.held, "a charge exceeds what was set aside for it"
                lease.held -= amount
                lease.posted += amount
                self.balance -= amount
            lease.unrated.clear()

    def fund(self) -> None:
        for lease in sorted(self.leases, key=lambda lease: lease.due_at):
            if lease.billed_until is None and lease.due_at <= self.now:
                self._fund(lease)

    def _fund(self, lease: _Lease) -> None:
        owed = lease.cost(used_until(lease.use(self.now), self.now).at_most)
        funding = Funding(
            lease.price,
            lease.gpus,
            Nano(lease.held),
            Nano(owed - lease.posted),
            Nano(self.available),
            warned=True,
        )
        match decide(funding, StopTimes()):
            case Renew(more_nano=more):
                lease.held += more
            case End():
                lease.end(self.now)
                return
            case _:
                pass
        lease.due_at = next_look(funding, self.now)


def _wallet(price: Nano, gpus: list[int], extra_hours: float) -> _Wallet:
    """An organization that was admitted with a hold for each lease, and has a little more."""
    seconds = int(HOLD.total_seconds())
    leases = [_Lease(NOON, n, price, accrued(price, n * seconds), first_look(NOON)) for n in gpus]
    held = sum(lease.held for lease in leases)
    return _Wallet(held + int(held * extra_hours), leases)


STEPS = st.one_of(
    st.sampled_from(["meter", "rate", "fund"]),
    st.integers(1, 4 * 3_600).map(lambda seconds: timedelta(seconds=seconds, milliseconds=seconds % 1_000)),
    st.integers(0, 2),
)
"""A loop runs, time passes without any loop, or a customer releases a lease."""


@settings(max_examples=300)
@given(
    price=st.integers(1, 20 * NANO_PER_USD).map(Nano),
    gpus=st.lists(st.sampled_from([1, 2, 8]), min_size=1, max_size=3),
    extra_hours=st.floats(0, 6),
    steps=st.lists(STEPS, max_size=40),
)
@example(
    price=Nano(3_600), gpus=[1], extra_hours=0.0, steps=[timedelta(hours=3), "meter", "rate", "fund"]
).via("the outage that once left a balance of -5.49 USD")
def test_no_outage_release_or_order_of_loops_takes_a_balance_below_zero(
    price: Nano, gpus: list[int], extra_hours: float, steps: list[str | timedelta | int]
) -> None:
    wallet = _wallet(price, gpus, extra_hours)
    paid_in = wallet.balance
    for step in [*steps, timedelta(days=2), "fund", timedelta(minutes=1), 0, 1, 2, "meter", "rate"]:
        match step:
            case timedelta():
                wallet.now += step
            case int():
                if step < len(wallet.leases):
                    wallet.leases[step].end(wallet.now)
            case loop:
                {"meter": wallet.meter, "rate": wallet.rate, "fund": wallet.fund}[loop]()
        assert wallet.balance >= 0, "a charge overdraws the balance"
        assert wallet.available >= 0, "more is set aside than there is"
    for lease in wallet.leases:
        assert lease.billed_until is not None
        assert lease.posted == lease.cost(lease.billed_until), "the charges add up to the whole (law 7)"
        assert lease.held == 0, "nothing stays set aside"
    assert paid_in - wallet.balance == sum(lease.posted for lease in wallet.leases)
