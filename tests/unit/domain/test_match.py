"""The three-way match: every difference between our meter, the supplier's record and the bill has a word."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.cost_record import Charged, CostRecord
from control_plane.domain.ids import LeaseId
from control_plane.domain.match import OPEN, Match, MatchedMachine, MatchWord, ordered
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.supplier_invoice import SupplierLine, parse
from tests.support.clock import START
from tests.unit.domain.test_margin import PRICE, TERMS, holder, record

HOUR = timedelta(hours=1)
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
HEADER = "machine,from,to,quantity,unit,amount,currency\n"
LINE = "i-1,2026-10-01T00:00:00Z,2026-10-02T00:00:00+00:00,24,hours,59.76,USD\n"
BY_TEN_MINUTES = BillingTerms(nano_per_hour=PRICE, stopped_nano_per_hour=None, increment_seconds=600)


def billed(hours: float, usd_per_hour: float = 8, unit: str = "hour") -> SupplierLine:
    amount = Nano(round(hours * usd_per_hour * NANO_PER_USD))
    return SupplierLine("ref-1", START, START + HOUR, round(hours * NANO_PER_USD), unit, amount)


def machine(
    *, terms: BillingTerms = TERMS, life: MachineLife | None = None, spot: bool = False
) -> CostRecord:
    """Held for nine of its ten hours, ready after one, and charged for seven."""
    ready = replace(holder(1, 0, 9), admitted_at=START + HOUR)
    made = record(ready, charged=(Charged(LeaseId(UUID(int=1)), Nano(70 * NANO_PER_USD), 7 * 3_600, 0),))
    return replace(made, terms=terms, life=life or made.life, spot=spot)


def matched(ours: CostRecord, *lines: SupplierLine) -> MatchedMachine:
    found = Match(START, START + 20 * HOUR, {"ref-1": lines} if lines else {})
    found.add(ours)
    found.finish()
    (only,) = found.machines
    return only


def words(found: MatchedMachine) -> dict[str, float]:
    return {difference.word.value: difference.amount_nano / PRICE for difference in found.differences}


def test_the_steps_lead_from_the_customers_time_to_the_suppliers_amount() -> None:
    found = matched(machine(), billed(10))
    assert (found.used_nano, found.expected_nano, found.theirs_nano) == (7 * PRICE, 10 * PRICE, 10 * PRICE)
    assert words(found) == {"before_ready": 1, "unsold_time": 1, "not_billed": 1}
    assert not found.is_open


def test_blocks_rounding_and_times_that_nobody_tells_are_explained() -> None:
    late = record(holder(1, 0, None), hours=9.9).life
    found = matched(machine(terms=BY_TEN_MINUTES, life=late), billed(10))
    assert words(found)["billed_by_block"] == pytest.approx(0.1)
    assert words(matched(machine(), billed(10.001)))["rounding"] == pytest.approx(0.001)
    life = replace(machine().life, ending_at=START + 9 * HOUR)
    found = matched(machine(life=life), billed(9.5))
    assert (words(found)["observed_times"], found.is_open) == (-0.5, False)
    moved = matched(machine(spot=True), billed(10, usd_per_hour=6))
    assert (words(moved)["spot_price"], moved.is_open) == (-2.5, False)


def test_what_somebody_has_to_ask_about_is_open() -> None:
    for lines, word, amount in (
        ([billed(10, usd_per_hour=10)], "price_differs", 2.5),
        ([billed(12)], "time_differs", 2),
        ([billed(12, unit="GB")], "amount_differs", 2),
        ([], "not_on_theirs", -10),
    ):
        found = matched(machine(), *lines)
        assert (words(found)[word], found.is_open) == (amount, True), word
    strange = Match(START, START + HOUR, {"ref-2": [billed(3)]})
    strange.finish()
    assert strange.total(MatchWord.NOT_ON_OUR_RECORDS) == 3 * PRICE
    assert ordered([matched(machine(), billed(10)), *strange.machines])[0].record is None


@given(
    st.lists(
        st.builds(billed, st.floats(0, 30), st.floats(0, 20), st.sampled_from(["hours", "GB"])), max_size=3
    ),
    st.sampled_from([1, 60, 600]),
    st.floats(0, 12),
    st.booleans(),
)
def test_the_steps_of_a_machine_add_up_to_the_nano_dollar(
    lines: list[SupplierLine], increment: int, hours: float, spot: bool
) -> None:
    ours = machine(
        terms=replace(BY_TEN_MINUTES, increment_seconds=increment), spot=spot, life=record(hours=hours).life
    )
    found = matched(ours, *lines)
    assert found.used_nano + sum(step.amount_nano for step in found.differences) == found.theirs_nano
    assert found.is_open == any(step.word in OPEN for step in found.differences)


def _parse(text: str) -> tuple[SupplierLine, ...] | Refused:
    return parse([(number, line.split(",")) for number, line in enumerate(text.splitlines(), 1)], OCTOBER)


def test_a_file_is_read_as_a_whole_or_refused_with_the_line_that_is_wrong() -> None:
    found = _parse(HEADER + LINE)
    assert not isinstance(found, Refused)
    (line,) = found
    assert (line.machine, line.amount_nano, line.seconds_nano) == (
        "i-1",
        59_760_000_000,
        86_400 * NANO_PER_USD,
    )
    for text, number in (
        ("", 1),
        ("machine,amount\n", 1),
        (HEADER, 2),
        (HEADER + LINE + "i-1,2026-10-01\n", 3),
        (HEADER + LINE.replace("2026-10-01T", "2026-09-30T"), 2),
        (HEADER + LINE.replace("T00:00:00Z", "T00:00:00"), 2),
        (HEADER + LINE.replace("24", "-24"), 2),
        (HEADER + LINE.replace("59.76", "59,76"), 2),
        (HEADER + LINE.replace("59.76", "9" * 12), 2),
        (HEADER + LINE.replace("i-1", "\x1b[31m"), 2),
        (HEADER + LINE.replace("59.76", "9000000000") * 2, 3),
    ):
        refused = _parse(text)
        assert isinstance(refused, Refused), text
        assert refused.code is RefusalCode.SUPPLIER_INVOICE_INVALID
        assert refused.why.startswith(f"Line {number} "), (text, refused.why)
    euro = _parse(HEADER + LINE.replace("USD", "EUR"))
    assert isinstance(euro, Refused)
    assert euro.code is RefusalCode.CURRENCY_NOT_SUPPORTED
