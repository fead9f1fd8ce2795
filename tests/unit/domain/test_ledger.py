"""The ledger: transactions that balance, and accounts that are ours or a customer's."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import ledger
from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.ledger import (
    OURS,
    AccountKind,
    LedgerAccount,
    Posting,
    Transaction,
    TransactionKind,
)
from control_plane.domain.money import NANO_MAX, Nano

ORGANIZATION = OrganizationId(UUID(int=1))
OTHER = OrganizationId(UUID(int=2))
PROJECT = ProjectId(UUID(int=4))


@given(st.integers(1, NANO_MAX).map(Nano))
def test_a_top_up_raises_the_wallet_and_balances(amount: Nano) -> None:
    transaction = ledger.top_up(ORGANIZATION, amount, key="k")
    assert sum(posting.amount_nano for posting in transaction.postings) == 0
    assert Posting(AccountKind.WALLET, amount) in transaction.postings


@given(st.integers(1, NANO_MAX).map(Nano))
def test_usage_moves_from_the_wallet_to_revenue_and_balances(amount: Nano) -> None:
    transaction = ledger.usage(ORGANIZATION, PROJECT, amount, charge_id=UUID(int=3))
    assert set(transaction.postings) == {
        Posting(AccountKind.WALLET, Nano(-amount)),
        Posting(AccountKind.REVENUE, amount),
    }


@pytest.mark.parametrize("amount", [0, -1])
def test_nothing_is_topped_up_or_used_by_nothing_or_less(amount: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        ledger.top_up(ORGANIZATION, Nano(amount), key="k")
    with pytest.raises(ValueError, match="positive"):
        ledger.usage(ORGANIZATION, PROJECT, Nano(amount), charge_id=UUID(int=3))


@given(st.lists(st.integers(-NANO_MAX, NANO_MAX).filter(bool), max_size=5))
def test_a_transaction_exists_exactly_when_it_balances(amounts: list[int]) -> None:
    postings = tuple(Posting(AccountKind.WALLET, Nano(amount)) for amount in amounts)
    if sum(amounts):
        with pytest.raises(ValueError, match="does not balance"):
            Transaction("k", TransactionKind.TOP_UP, ORGANIZATION, None, postings)
    else:
        assert Transaction("k", TransactionKind.TOP_UP, ORGANIZATION, None, postings).postings == postings


@pytest.mark.parametrize("amount", [0, NANO_MAX + 1])
def test_a_posting_of_nothing_or_beyond_64_bits_is_refused(amount: int) -> None:
    postings = (Posting(AccountKind.WALLET, Nano(amount)), Posting(AccountKind.CASH, Nano(-amount)))
    with pytest.raises(ValueError, match="zero or beyond"):
        Transaction("k", TransactionKind.TOP_UP, ORGANIZATION, None, postings)


def test_two_organizations_may_use_the_same_key_for_their_top_ups() -> None:
    first = ledger.top_up(ORGANIZATION, Nano(1), key="invoice-7")
    second = ledger.top_up(OTHER, Nano(1), key="invoice-7")
    assert first.key != second.key
    assert first.key == ledger.top_up(ORGANIZATION, Nano(1), key="invoice-7").key


def test_a_charge_is_posted_to_its_project_and_a_top_up_to_none() -> None:
    assert ledger.usage(ORGANIZATION, PROJECT, Nano(1), charge_id=UUID(int=3)).project_id == PROJECT
    assert ledger.top_up(ORGANIZATION, Nano(1), key="k").project_id is None


@given(st.integers(1, NANO_MAX).map(Nano))
def test_a_wallet_gains_what_is_paid_in_and_loses_what_is_used(amount: Nano) -> None:
    assert ledger.top_up(ORGANIZATION, amount, key="k").wallet_nano == amount
    assert ledger.usage(ORGANIZATION, PROJECT, amount, charge_id=UUID(int=3)).wallet_nano == -amount


@pytest.mark.parametrize("kind", AccountKind)
def test_an_account_is_ours_or_somebodys_by_its_kind(kind: AccountKind) -> None:
    right, wrong = (None, ORGANIZATION) if kind in OURS else (ORGANIZATION, None)
    at = datetime(2026, 11, 20, tzinfo=UTC)
    assert LedgerAccount(LedgerAccountId(UUID(int=9)), right, kind, at).organization_id == right
    with pytest.raises(ValueError, match="account of our own"):
        LedgerAccount(LedgerAccountId(UUID(int=9)), wrong, kind, at)
