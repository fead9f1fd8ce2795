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
from control_plane.domain.supplier_invoice import (
    BYTES_MAX,
    LINES_MAX,
    BilledMachine,
    SupplierLine,
    UploadedPart,
    parse,
    size_refusal,
    upload_refusal,
)
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


def together(*lines: SupplierLine) -> BilledMachine:
    found = BilledMachine()
    for line in lines:
        found.add(line)
    return found


def matched(ours: CostRecord, *lines: SupplierLine) -> MatchedMachine:
    found = Match(START, START + 20 * HOUR, {"ref-1": together(*lines)} if lines else {})
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
    strange = Match(START, START + HOUR, {"ref-2": together(billed(3))})
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
    rows = [(number, line.split(",")) for number, line in enumerate(text.splitlines(), 1)]
    return parse(rows, OCTOBER, first=True)


def test_a_part_is_read_as_a_whole_or_refused_with_the_line_that_is_wrong() -> None:
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
        (HEADER + LINE + "i-1,2026-10-01\n", 3),
        (HEADER + LINE.replace("2026-10-01T", "2026-09-30T"), 2),
        (HEADER + LINE.replace("T00:00:00Z", "T00:00:00"), 2),
        (HEADER + LINE.replace("24", "-24"), 2),
        (HEADER + LINE.replace("59.76", "59,76"), 2),
        (HEADER + LINE.replace("59.76", "9" * 12), 2),
        (HEADER + LINE.replace("i-1", "\x1b[31m"), 2),
    ):
        refused = _parse(text)
        assert isinstance(refused, Refused), text
        assert refused.code is RefusalCode.SUPPLIER_INVOICE_INVALID
        assert refused.why.startswith(f"Line {number} "), (text, refused.why)
    euro = _parse(HEADER + LINE.replace("USD", "EUR"))
    assert isinstance(euro, Refused)
    assert euro.code is RefusalCode.CURRENCY_NOT_SUPPORTED


def test_only_the_first_part_has_a_header_and_later_ones_name_their_own_lines() -> None:
    fields = LINE.rstrip().split(",")
    assert parse([(701, fields)], OCTOBER, first=False) == _parse(HEADER + LINE)
    wrong = parse([(700, fields), (701, [*fields[:-1], "usd"])], OCTOBER, first=False)
    assert isinstance(wrong, Refused)
    assert wrong.why.startswith("Line 701 ")


def _part(
    number: int, first_line: int, lines: int = 700, size: int = 59_000, amount: int = 1
) -> UploadedPart:
    return UploadedPart(number, first_line, lines, size, Nano(amount))


def test_parts_are_a_file_when_each_begins_where_the_one_before_ends() -> None:
    whole = [_part(1, 1), _part(2, 701), _part(3, 1_401, lines=5)]
    assert upload_refusal(whole, 3) is None
    for parts, count, why in (
        (whole, 4, "3 of 4 parts are there."),
        (whole[:2], 1, "2 of 1 parts are there."),
        ([whole[0], whole[2]], 2, "Part 2 has to begin with line 701 of the file."),
        ([_part(1, 2)], 1, "Part 1 has to begin with line 1 of the file."),
        ([_part(1, 1), _part(2, 700)], 2, "Part 2 has to begin with line 701 of the file."),
        ([], 1, "0 of 1 parts are there."),
        ([_part(1, 1, lines=1)], 1, "Line 2 of the file is missing: an invoice has a line at least."),
    ):
        refused = upload_refusal(parts, count)
        assert isinstance(refused, Refused), why
        assert refused.why == why


def test_a_file_that_is_too_large_is_not_taken() -> None:
    assert size_refusal([_part(1, 1, lines=LINES_MAX, size=BYTES_MAX)]) is None
    for parts in (
        [_part(1, 1, lines=LINES_MAX), _part(2, 1, lines=1)],
        [_part(1, 1, size=BYTES_MAX), _part(2, 1, size=1)],
        [_part(1, 1, amount=2**63 - 1), _part(2, 1, amount=1)],
    ):
        assert size_refusal(parts) is not None
        assert size_refusal(parts[:1]) is None
