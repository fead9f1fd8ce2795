"""Reconciliation: what the journal says that a lease costs in a month, and which links of the books differ."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import ledger
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.invoice import LineKind, draft
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import NANO_PER_CENT, NOTHING, Nano
from control_plane.domain.reconciliation import (
    LINKS,
    OF_CUSTOMERS,
    Amounts,
    InvoiceFacts,
    LeaseFacts,
    LinkName,
    differences,
    invoice_amounts,
    journal_cost,
    sides,
)
from tests.unit.domain.test_invoice import ACME, BUYER, CLOSED, SELLER, USED

OCTOBER, NOVEMBER, DECEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11, 12))
READY = NOVEMBER + timedelta(days=3)
HOUR = timedelta(hours=1)
FACTS = LeaseFacts(
    lease_id=LeaseId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    units=2,
    nano_per_unit_hour=Nano(3_600),
    stopped_nano_per_unit_hour=Nano(1_800),
    switched_at=(),
    paused_at=(),
    committed_days=None,
    unused_unit_seconds=0,
    released_at=None,
    became_ready_at=READY,
    began_to_end_at=READY + 2 * HOUR,
    billed_until=READY + 2 * HOUR,
    metered_until=READY + 2 * HOUR,
    meter_closed=True,
    metered=Nano(0),
    unrated=Nano(0),
    rated=Nano(0),
    charged=Nano(0),
)
"""Two GPUs for two hours, at a nano-dollar a second each."""


def _cost(facts: LeaseFacts, *, closed: bool = True) -> int:
    return journal_cost(facts, NOVEMBER, DECEMBER, closed=closed)


def test_a_lease_costs_the_time_from_ready_to_its_end() -> None:
    assert _cost(FACTS) == 14_400
    assert _cost(replace(FACTS, became_ready_at=None)) == 0


def test_the_bill_stops_no_later_than_the_journal_says_and_perhaps_earlier() -> None:
    assert _cost(replace(FACTS, billed_until=READY + HOUR)) == 7_200
    assert _cost(replace(FACTS, began_to_end_at=READY + HOUR)) == 7_200


def test_only_the_part_of_a_lease_in_the_month_counts() -> None:
    before = replace(FACTS, became_ready_at=NOVEMBER - HOUR)
    assert _cost(replace(before, began_to_end_at=NOVEMBER + HOUR, billed_until=NOVEMBER + HOUR)) == 7_200
    assert _cost(replace(before, began_to_end_at=NOVEMBER, billed_until=NOVEMBER)) == 0
    after = replace(FACTS, became_ready_at=DECEMBER - HOUR, began_to_end_at=None, billed_until=None)
    assert _cost(after) == 7_200
    assert journal_cost(after, OCTOBER, NOVEMBER, closed=True) == 0


def test_stopped_and_paused_time_has_its_own_price_or_none() -> None:
    assert _cost(replace(FACTS, switched_at=(READY + HOUR,))) == 7_200 + 3_600
    assert _cost(replace(FACTS, paused_at=(READY + HOUR,))) == 7_200


def test_time_that_the_meter_has_not_reached_counts_once_the_month_is_closed() -> None:
    running = replace(
        FACTS, began_to_end_at=None, billed_until=None, metered_until=READY + HOUR, meter_closed=False
    )
    assert _cost(running, closed=False) == 7_200
    assert _cost(running) == (DECEMBER - READY).total_seconds() * 2
    assert _cost(replace(running, metered_until=None), closed=False) == 0


@given(st.lists(st.integers(min_value=0, max_value=10**15), min_size=11, max_size=11), st.integers(1, 10**9))
def test_each_link_differs_exactly_when_its_own_sides_do(values: list[int], more: int) -> None:
    journal, metered, unrated, *_ = values
    even = Amounts(
        journal=Nano(journal + unrated),
        metered=Nano(journal + unrated),
        unrated=Nano(unrated),
        rated=Nano(journal),
        charged=Nano(journal),
        booked=Nano(metered),
        posted=Nano(metered),
        billed_before_own_export=Nano(values[3]),
        in_own_export=Nano(values[3]),
        billed_before_export=Nano(values[4]),
        in_export=Nano(values[4]),
    )
    assert differences(even, LINKS) == ()
    for link, wrong in (
        (LinkName.METERED, Amounts(journal=Nano(more))),
        (LinkName.CHARGED, Amounts(charged=Nano(more))),
        (LinkName.POSTED, Amounts(posted=Nano(more))),
        (LinkName.INVOICED, Amounts(invoiced=Nano(more))),
        (LinkName.INVOICE_POSTED, Amounts(invoice_totals=Nano(more))),
        (LinkName.EXPORTED_TO_CUSTOMER, Amounts(in_own_export=Nano(more))),
        (LinkName.EXPORTED, Amounts(in_export=Nano(more))),
    ):
        (found,) = differences(even.plus(wrong), LINKS)
        assert (found.link, abs(found.difference_nano)) == (link, more)


def test_every_link_has_a_name_of_its_own_and_the_last_three_are_of_no_customer() -> None:
    assert [link.name for link in LINKS] == list(LinkName)
    assert [link.link for link in sides(Amounts())] == list(LinkName)
    assert {*LINKS} - {*OF_CUSTOMERS} == {*LINKS[-3:]}


@given(
    amounts=st.lists(st.integers(0, 10**13).map(Nano), min_size=1, max_size=4),
    credits_used=st.integers(0, 10**13),
    rate=st.integers(0, 5_000),
    balance=st.integers(-(10**14), 10**14).map(Nano),
)
def test_an_invoice_as_it_is_drafted_and_posted_agrees_with_the_books(
    amounts: list[Nano], credits_used: int, rate: int, balance: Nano
) -> None:
    invoice, lines = draft(
        ACME,
        CLOSED,
        seller=SELLER,
        buyer=replace(BUYER, tax_rate=rate),
        usage=[replace(USED, amount_nano=amount) for amount in amounts],
        unused_credits=Nano(credits_used),
        balance_at_end=balance,
        balance_now=balance,
    )
    posted = ledger.invoice(
        ACME,
        invoice_id=UUID(int=9),
        tax=Nano(invoice.tax_cents * NANO_PER_CENT),
        adjustment=invoice.adjustment_nano,
        on_account=Nano(invoice.on_account_cents * NANO_PER_CENT),
        at=CLOSED.month,
    )
    facts = InvoiceFacts(
        organization_id=ACME,
        usage=Nano(sum(line.amount_nano for line in lines if line.kind is LineKind.USAGE)),
        credits=Nano(sum(line.amount_nano for line in lines if line.kind is LineKind.CREDIT)),
        total=Nano(invoice.total_cents * NANO_PER_CENT),
        wallet=NOTHING if posted is None else posted.posted_to(AccountKind.WALLET),
        receivable=NOTHING if posted is None else posted.posted_to(AccountKind.RECEIVABLE),
    )
    if posted is not None:
        owed = Nano(-posted.posted_to(AccountKind.RECEIVABLE))
        assert owed == invoice.due_cents * NANO_PER_CENT
        assert posted.posted_to(AccountKind.WALLET) >= 0, "an invoice takes nothing from the balance"
        if balance < 0:
            assert balance + posted.posted_to(AccountKind.WALLET) < NANO_PER_CENT, (
                "nor gives it more than it lacks"
            )
    charged = Nano(sum(amounts))
    books = Amounts(booked=charged, posted=charged)
    assert differences(books.plus(invoice_amounts(facts, books))) == differences(books)


def test_a_customer_whose_invoice_is_not_issued_is_no_difference() -> None:
    books = Amounts(booked=Nano(5), posted=Nano(5))
    found = books.plus(invoice_amounts(None, books))
    assert (found.not_invoiced, differences(found)) == (5, ())
