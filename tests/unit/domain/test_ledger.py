"""The ledger: transactions that balance, and accounts that are ours or a customer's."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import ledger
from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.ledger import (
    APPROVED,
    OURS,
    TERMS,
    AccountKind,
    Approval,
    LedgerAccount,
    Owner,
    Posting,
    Side,
    Transaction,
    TransactionKind,
)
from control_plane.domain.money import NANO_MAX, Nano

ORGANIZATION = OrganizationId(UUID(int=1))
OTHER = OrganizationId(UUID(int=2))
PROJECT = ProjectId(UUID(int=4))
AT = datetime(2026, 11, 20, tzinfo=UTC)
APPROVAL = Approval("user_1", "ticket 4711")


@given(st.integers(1, NANO_MAX).map(Nano))
def test_a_top_up_raises_the_wallet_and_balances(amount: Nano) -> None:
    transaction = ledger.top_up(ORGANIZATION, amount, key="k", at=AT, approval=APPROVAL)
    assert sum(posting.amount_nano for posting in transaction.postings) == 0
    assert Posting(AccountKind.WALLET, amount) in transaction.postings


@given(st.integers(1, NANO_MAX).map(Nano))
def test_usage_moves_from_the_wallet_to_revenue_and_balances(amount: Nano) -> None:
    transaction = ledger.usage(ORGANIZATION, PROJECT, amount, charge_id=UUID(int=3), at=AT)
    assert set(transaction.postings) == {
        Posting(AccountKind.WALLET, Nano(-amount)),
        Posting(AccountKind.REVENUE, amount),
    }


@pytest.mark.parametrize("amount", [0, -1])
def test_nothing_is_topped_up_or_used_by_nothing_or_less(amount: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        ledger.top_up(ORGANIZATION, Nano(amount), key="k", at=AT, approval=APPROVAL)
    with pytest.raises(ValueError, match="positive"):
        ledger.usage(ORGANIZATION, PROJECT, Nano(amount), charge_id=UUID(int=3), at=AT)


@given(st.lists(st.integers(-NANO_MAX, NANO_MAX).filter(bool), max_size=5))
def test_a_transaction_exists_exactly_when_it_balances(amounts: list[int]) -> None:
    postings = tuple(Posting(kind, Nano(amount)) for kind, amount in zip(AccountKind, amounts, strict=False))
    if sum(amounts):
        with pytest.raises(ValueError, match="does not balance"):
            Transaction("k", TransactionKind.USAGE, ORGANIZATION, None, AT, postings)
    else:
        assert Transaction("k", TransactionKind.USAGE, ORGANIZATION, None, AT, postings).postings == postings


def test_a_transaction_posts_to_an_account_once() -> None:
    postings = tuple(Posting(AccountKind.WALLET, Nano(amount)) for amount in (5, -5))
    with pytest.raises(ValueError, match="two postings to an account"):
        Transaction("k", TransactionKind.USAGE, ORGANIZATION, None, AT, postings)


@pytest.mark.parametrize("amount", [0, NANO_MAX + 1])
def test_a_posting_of_nothing_or_beyond_64_bits_is_refused(amount: int) -> None:
    postings = (Posting(AccountKind.WALLET, Nano(amount)), Posting(AccountKind.CASH, Nano(-amount)))
    with pytest.raises(ValueError, match="zero or beyond"):
        Transaction("k", TransactionKind.USAGE, ORGANIZATION, None, AT, postings)


def test_two_organizations_may_use_the_same_key_for_their_top_ups() -> None:
    first = ledger.top_up(ORGANIZATION, Nano(1), key="invoice-7", at=AT, approval=APPROVAL)
    second = ledger.top_up(OTHER, Nano(1), key="invoice-7", at=AT, approval=APPROVAL)
    assert first.key != second.key
    assert first.key == ledger.top_up(ORGANIZATION, Nano(1), key="invoice-7", at=AT, approval=APPROVAL).key


def test_a_charge_is_posted_to_its_project_and_a_top_up_to_none() -> None:
    assert ledger.usage(ORGANIZATION, PROJECT, Nano(1), charge_id=UUID(int=3), at=AT).project_id == PROJECT
    assert ledger.top_up(ORGANIZATION, Nano(1), key="k", at=AT, approval=APPROVAL).project_id is None


@given(st.integers(1, NANO_MAX).map(Nano))
def test_a_wallet_gains_what_is_paid_in_and_loses_what_is_used(amount: Nano) -> None:
    assert (
        ledger.top_up(ORGANIZATION, amount, key="k", at=AT, approval=APPROVAL).posted_to(AccountKind.WALLET)
        == amount
    )
    used = ledger.usage(ORGANIZATION, PROJECT, amount, charge_id=UUID(int=3), at=AT)
    assert used.posted_to(AccountKind.WALLET) == -amount


@pytest.mark.parametrize("kind", AccountKind)
def test_an_account_is_ours_or_somebodys_by_its_kind(kind: AccountKind) -> None:
    right, wrong = (None, ORGANIZATION) if kind in OURS else (ORGANIZATION, None)
    assert LedgerAccount(LedgerAccountId(UUID(int=9)), right, kind, AT).organization_id == right
    with pytest.raises(ValueError, match="account of our own"):
        LedgerAccount(LedgerAccountId(UUID(int=9)), wrong, kind, AT)


def test_every_kind_of_account_has_terms_and_customers_have_a_wallet_and_a_receivable() -> None:
    assert TERMS.keys() == set(AccountKind)
    owned = {kind for kind, terms in TERMS.items() if terms.owner is Owner.ORGANIZATION}
    assert owned == {AccountKind.WALLET, AccountKind.RECEIVABLE}


def test_a_balance_is_positive_on_the_normal_side_of_its_kind() -> None:
    assert TERMS[AccountKind.WALLET].normal_side is Side.CREDIT
    assert ledger.balance(AccountKind.WALLET, Nano(7)) == 7
    assert TERMS[AccountKind.CASH].normal_side is Side.DEBIT
    assert ledger.balance(AccountKind.CASH, Nano(-7)) == 7


def test_what_a_person_decides_moves_money_between_these_accounts() -> None:
    moves = {
        ledger.top_up: (AccountKind.CASH, AccountKind.WALLET),
        ledger.refund: (AccountKind.WALLET, AccountKind.CASH),
        ledger.credit: (AccountKind.CREDITS, AccountKind.WALLET),
        ledger.payment: (AccountKind.CASH, AccountKind.RECEIVABLE),
    }
    for make, (debit, credit) in moves.items():
        made = make(ORGANIZATION, Nano(5), key="k", at=AT, approval=APPROVAL)
        assert made.postings == (Posting(debit, Nano(-5)), Posting(credit, Nano(5)))
        assert (made.kind in APPROVED, made.approval) == (True, APPROVAL)


@pytest.mark.parametrize("kind", TransactionKind)
def test_who_decided_is_named_exactly_where_a_person_decides(kind: TransactionKind) -> None:
    postings = (Posting(AccountKind.WALLET, Nano(1)), Posting(AccountKind.CASH, Nano(-1)))
    right, wrong = (APPROVAL, None) if kind in APPROVED else (None, APPROVAL)
    assert Transaction("k", kind, ORGANIZATION, None, AT, postings, right).approval == right
    with pytest.raises(ValueError, match="approval"):
        Transaction("k", kind, ORGANIZATION, None, AT, postings, wrong)
