"""Ledger accounts are rows: one wallet per organization, cash and revenue of our own, and postings name them."""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from control_plane.db import balance, ledger, ledger_entries
from control_plane.db import organizations as organizations_db
from control_plane.db.balance import BalanceEntry
from control_plane.db.engine import Database
from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.ledger import (
    OF_ORGANIZATIONS,
    OURS,
    AccountKind,
    Approval,
    LedgerAccount,
    Transaction,
    TransactionKind,
    credit,
    invoice,
    payment,
    refund,
    top_up,
    usage,
)
from control_plane.domain.money import Nano
from control_plane.domain.period import month_of
from control_plane.services import organizations
from control_plane.world import World, uuid7
from tests.support.clock import START, Clock
from tests.support.rows import rows
from tests.support.values import PAID

pytestmark = pytest.mark.database

_POSTINGS = text("""
SELECT a.kind, a.organization_id AS owner, p.organization_id AS tenant, p.amount_nano
FROM postings p JOIN ledger_accounts a ON a.id = p.account_id ORDER BY p.transaction_id, p.line
""")
_POSTED = text("SELECT posted_nano FROM standings WHERE organization_id = :id")


@pytest.fixture
def world(api_db: Database, clock: Clock) -> World:
    return World(api_db, now=clock.now)


async def _organization(world: World) -> OrganizationId:
    organization_id = OrganizationId(uuid7())
    async with world.db.transaction(organization_id) as connection:
        await organizations.create(connection, world, organization_id, f"org-{organization_id.hex}")
    return organization_id


async def _post(world: World, *transactions: Transaction, role: Database | None = None) -> int:
    tenant = transactions[0].organization_id if role is None else None
    async with (role or world.db).transaction(tenant) as connection:
        posted = await ledger.post(connection, [(uuid7(), one) for one in transactions], now=world.now())
    return len(posted)


async def _project(db: Database, organization_id: OrganizationId) -> ProjectId:
    async with db.reading() as connection:
        found = await rows(
            connection, text("SELECT id FROM projects WHERE organization_id = :id"), id=organization_id
        )
    return ProjectId(found[0].id)


async def _entries(
    world: World,
    organization_id: OrganizationId,
    *,
    period: datetime | None = None,
    kind: TransactionKind | None = None,
    before: int | None = None,
    limit: int,
) -> list[BalanceEntry]:
    async with world.db.reading(organization_id) as connection:
        return await balance.entries(
            connection, organization_id, period=period, kind=kind, before=before, limit=limit
        )


async def test_an_organization_has_a_wallet_and_sees_it_beside_our_own_accounts(world: World) -> None:
    acme, other = await _organization(world), await _organization(world)
    async with world.db.reading(acme) as connection:
        found = await ledger.accounts(connection, acme)
        assert not [one for one in await ledger.accounts(connection, other) if one.organization_id == other]
    assert {(one.kind, one.organization_id) for one in found} == {
        *((kind, acme) for kind in OF_ORGANIZATIONS),
        *((kind, None) for kind in OURS),
    }


async def test_postings_refer_to_accounts_and_add_up_by_kind(world: World, db: Database) -> None:
    acme = await _organization(world)
    assert await _post(world, top_up(acme, Nano(7), key="a", at=START, approval=PAID)) == 1
    async with world.db.reading(acme) as connection:
        assert [tuple(row) for row in await rows(connection, _POSTINGS)] == [
            ("cash", None, acme, -7),
            ("wallet", acme, acme, 7),
        ]
        assert await ledger.totals(connection, acme) == {AccountKind.CASH: -7, AccountKind.WALLET: 7}
    async with db.reading() as connection:
        assert (await rows(connection, _POSTED, id=acme))[0].posted_nano == 7


async def test_cached_balances_are_the_sums_of_the_postings(world: World, db: Database) -> None:
    acme, other = await _organization(world), await _organization(world)
    by = Approval("user_1", "ticket 4711")
    await _post(
        world,
        top_up(acme, Nano(100), key="a", at=START, approval=PAID),
        top_up(other, Nano(5), key="a", at=START, approval=PAID),
        refund(acme, Nano(30), key="a", at=START, approval=by),
        payment(acme, Nano(8), key="a", at=START, approval=by),
        role=db,
    )
    cached = text("SELECT posted_nano, receivable_nano FROM standings WHERE organization_id = :id")
    async with db.reading() as connection:
        for organization_id in (acme, other):
            sums = await ledger.totals(connection, organization_id)
            (standing,) = await rows(connection, cached, id=organization_id)
            assert standing.posted_nano == sums.get(AccountKind.WALLET, 0)
            assert standing.receivable_nano == sums.get(AccountKind.RECEIVABLE, 0)
        assert (await ledger.totals(connection, acme))[AccountKind.RECEIVABLE] == 8


async def test_a_batch_posts_each_key_once_whatever_is_in_it_twice(world: World, db: Database) -> None:
    acme, other = await _organization(world), await _organization(world)
    batch = [
        top_up(acme, Nano(7), key="a", at=START, approval=PAID),
        top_up(other, Nano(5), key="a", at=START, approval=PAID),
        top_up(acme, Nano(7), key="a", at=START, approval=PAID),
    ]
    assert await _post(world, *batch, role=db) == 2
    assert await _post(world, *batch, top_up(acme, Nano(1), key="b", at=START, approval=PAID), role=db) == 1
    async with db.reading() as connection:
        assert await ledger.totals(connection) == {AccountKind.CASH: -13, AccountKind.WALLET: 13}
        for organization_id, posted in ((acme, 8), (other, 5)):
            assert (await rows(connection, _POSTED, id=organization_id))[0].posted_nano == posted


async def test_each_of_a_batch_is_booked_in_its_month_and_posted_to_the_accounts_of_its_customer(
    world: World, db: Database
) -> None:
    acme, other = await _organization(world), await _organization(world)
    by, earlier = Approval("user_1", "ticket 4711"), START - timedelta(days=45)
    batch = [
        top_up(acme, Nano(1), key="a", at=START, approval=PAID),
        payment(other, Nano(2), key="a", at=earlier, approval=by),
        top_up(other, Nano(3), key="b", at=START, approval=PAID),
        payment(acme, Nano(4), key="b", at=earlier, approval=by),
        top_up(acme, Nano(5), key="c", at=earlier, approval=PAID),
    ]
    assert await _post(world, *batch, role=db) == len(batch)
    statement = text("""
    SELECT t.organization_id, t.period, a.kind, p.amount_nano FROM transactions t
    JOIN postings p ON p.transaction_id = t.id JOIN ledger_accounts a ON a.id = p.account_id
    WHERE a.organization_id = t.organization_id ORDER BY p.amount_nano
    """)
    async with db.reading() as connection:
        found = [tuple(row) for row in await rows(connection, statement)]
    assert found == [
        (acme, month_of(START), "wallet", 1),
        (other, month_of(earlier), "receivable", 2),
        (other, month_of(START), "wallet", 3),
        (acme, month_of(earlier), "receivable", 4),
        (acme, month_of(earlier), "wallet", 5),
    ]


async def test_each_entry_has_the_balance_after_it_whatever_page_it_is_on(world: World, db: Database) -> None:
    acme, other = await _organization(world), await _organization(world)
    by = Approval("user_1", "ticket 4711")
    project_id = await _project(db, acme)
    paid = top_up(acme, Nano(100), key="a", at=START, approval=PAID)
    # Two batches with another customer's between them, and a key that is known already.
    await _post(
        world,
        paid,
        top_up(other, Nano(7), key="a", at=START, approval=PAID),
        usage(acme, project_id, Nano(30), charge_id=uuid7(), at=START - timedelta(days=40)),
        credit(acme, Nano(5), key="b", at=START, approval=by),
        role=db,
    )
    tax = invoice(acme, invoice_id=uuid7(), tax=Nano(19), adjustment=Nano(-1), at=START)
    assert tax is not None
    await _post(world, paid, tax, role=db)
    await _post(world, payment(acme, Nano(19), key="c", at=START, approval=by))
    await _post(world, refund(acme, Nano(70), key="d", at=START, approval=by))

    whole = await _entries(world, acme, limit=50)
    assert [(entry.kind, entry.amount_nano, entry.balance_nano, entry.due_nano) for entry in whole] == [
        (TransactionKind.REFUND, -70, 6, 0),
        (TransactionKind.PAYMENT, 0, 76, 0),
        (TransactionKind.INVOICE, 1, 76, 19),
        (TransactionKind.CREDIT, 5, 75, 0),
        (TransactionKind.USAGE, -30, 70, 0),
        (TransactionKind.TOP_UP, 100, 100, 0),
    ]
    assert [entry.number for entry in whole] == [6, 5, 4, 3, 2, 1]
    paged = [await _entries(world, acme, before=number, limit=2) for number in (7, 5, 3)]
    assert [entry for page in paged for entry in page] == whole
    # The charge is of October, and is booked there although it was posted in November.
    november = [entry for entry in whole if entry.kind is not TransactionKind.USAGE]
    assert await _entries(world, acme, period=month_of(START), limit=50) == november
    for kind in TransactionKind:
        assert await _entries(world, acme, kind=kind, limit=50) == [
            entry for entry in whole if entry.kind is kind
        ]
    assert [entry.balance_nano for entry in await _entries(world, other, limit=50)] == [7]


async def test_what_finance_reads_of_all_customers_answers_no_customer(world: World) -> None:
    acme, other = await _organization(world), await _organization(world)
    for organization_id in (acme, other):
        await _post(world, top_up(organization_id, Nano(7), key="a", at=START, approval=PAID))
    async with world.db.reading(acme) as connection:
        for account in AccountKind:
            for owner in (None, acme, other):
                found = await ledger_entries.entries(
                    connection, account, organization_id=owner, period=None, before=None, limit=9
                )
                assert found == [], (account, owner)
        assert await ledger_entries.wallets(connection, after=None, limit=9) == []


@pytest.mark.usefixtures("database_url")  # Its tables were never analysed, by which the planner would go.
async def test_a_page_of_entries_is_found_by_an_index(world: World, db: Database) -> None:
    acme = await _organization(world)
    values = {"organization_id": acme, "before": 10, "limit": 2, "period": month_of(START)}
    async with db.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        await connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        await connection.execute(text("SET LOCAL enable_sort = off"))
        for (of_month, kind), statement in balance.PAGES.items():
            plan = text(f"EXPLAIN {statement.text}")
            given = {
                name: value for name, value in values.items() if name != "period" or f":{name}" in plan.text
            }
            lines = "\n".join(row[0] for row in await rows(connection, plan, **given))
            index = (
                "ix_transactions_organization_id_kind"
                if kind not in (None, TransactionKind.USAGE)
                else "ix_transactions_organization_id_period_number"
                if of_month
                else "uq_transactions_organization_id_number"
            )
            assert f"Index Scan Backward using {index} on transactions" in lines, (of_month, kind, lines)


async def test_two_who_post_at_once_get_numbers_one_after_the_other(world: World) -> None:
    acme = await _organization(world)

    async def pay(key: str) -> None:
        async with world.db.transaction(acme) as connection:
            await organizations_db.lock_standings(connection, [acme])
            await ledger.post(
                connection,
                [(uuid7(), top_up(acme, Nano(1), key=key, at=START, approval=PAID))],
                now=world.now(),
            )

    await asyncio.gather(*(pay(str(n // 2)) for n in range(8)))
    found = await _entries(world, acme, limit=50)
    assert [(entry.number, entry.balance_nano) for entry in found] == [(4, 4), (3, 3), (2, 2), (1, 1)]


async def test_nothing_is_posted_to_an_account_that_does_not_exist(db: Database, clock: Clock) -> None:
    organization_id = OrganizationId(uuid7())
    async with db.transaction() as connection:
        insert = text("INSERT INTO organizations (id, name, created_at) VALUES (:id, 'walletless', :now)")
        await connection.execute(insert, {"id": organization_id, "now": clock.now()})
        standing = text("INSERT INTO standings (organization_id) VALUES (:id)")
        await connection.execute(standing, {"id": organization_id})
    world = World(db, now=clock.now)
    with pytest.raises(IntegrityError, match="account_id"):
        await _post(world, top_up(organization_id, Nano(1), key="a", at=START, approval=PAID), role=db)


async def test_an_organization_has_one_account_of_a_kind_and_there_is_one_of_ours(
    world: World, db: Database, clock: Clock
) -> None:
    acme = await _organization(world)
    for owner, kind in ((acme, AccountKind.WALLET), (None, AccountKind.CASH), (None, AccountKind.REVENUE)):
        another = LedgerAccount(LedgerAccountId(uuid7()), owner, kind, clock.now())
        with pytest.raises(IntegrityError, match="uq_ledger_accounts"):
            async with db.transaction() as connection:
                await ledger.open_account(connection, another)


async def test_a_customer_opens_no_account_of_ours_nor_of_another_organization(
    world: World, clock: Clock
) -> None:
    acme, other = await _organization(world), await _organization(world)
    insert = text("""
    INSERT INTO ledger_accounts (id, organization_id, kind, created_at) VALUES (:id, :owner, :kind, :now)
    """)
    for owner, kind in ((None, AccountKind.CASH), (other, AccountKind.WALLET)):
        values = {"id": UUID(int=1), "owner": owner, "kind": kind.value, "now": clock.now()}
        with pytest.raises(DBAPIError, match="row-level security"):
            async with world.db.transaction(acme) as connection:
                await connection.execute(insert, values)
