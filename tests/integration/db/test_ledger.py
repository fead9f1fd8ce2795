"""Ledger accounts are rows: one wallet per organization, cash and revenue of our own, and postings name them."""

from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from control_plane.db import ledger
from control_plane.db.engine import Database
from control_plane.domain.ids import LedgerAccountId, OrganizationId
from control_plane.domain.ledger import (
    OF_ORGANIZATIONS,
    OURS,
    AccountKind,
    Approval,
    LedgerAccount,
    Transaction,
    payment,
    refund,
    top_up,
)
from control_plane.domain.money import Nano
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


async def test_nothing_is_posted_to_an_account_that_does_not_exist(db: Database, clock: Clock) -> None:
    organization_id = OrganizationId(uuid7())
    async with db.transaction() as connection:
        insert = text("INSERT INTO organizations (id, name, created_at) VALUES (:id, 'walletless', :now)")
        await connection.execute(insert, {"id": organization_id, "now": clock.now()})
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
