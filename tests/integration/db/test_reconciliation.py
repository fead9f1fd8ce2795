"""Reconciliation of a month: books that follow from what happened agree, and a wrong row in any source is found."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import credit_notes, exports, invoices, reconciliation_batches, reconciliations
from control_plane.db import ledger as ledger_rows
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.db.exports import DeliveredFile, ExportRun
from control_plane.db.reconciliation_batches import Batch, Difference
from control_plane.db.rows import read
from control_plane.domain import ledger
from control_plane.domain.credit_note import Correction, CreditNote, LineToCredit, correction
from control_plane.domain.export_run import FileName
from control_plane.domain.focus import decimal_text
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, on_wire
from control_plane.domain.invoice import UNCORRECTED, BillingDetails, Invoice, InvoiceLine, Seller, draft
from control_plane.domain.ledger import Approval
from control_plane.domain.money import NANO_PER_CENT, Nano, accrued
from control_plane.domain.period import MAIN_ISSUER, Period, PeriodState
from control_plane.domain.reconciliation import OF_CUSTOMERS, Amounts, LinkName, sides
from control_plane.world import uuid7
from reconciler.loops.money import fund_leases, meter_usage, rate_usage, reconcile_periods
from reconciler.world import World
from tests.integration.db.leased import Leased
from tests.support.clock import START, Clock
from tests.support.database import fresh_database, login_url
from tests.support.reconciliations import asked_for

pytestmark = pytest.mark.database
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
SECOND = 1_000_000
"""What the leases of these tests cost in nano-USD: 3.60 USD an hour."""


@dataclass
class Books:
    """Two customers: the lease of one ended after two and a half hours, that of the other one runs on."""

    db: Database
    owner: Database
    clock: Clock
    acme: OrganizationId
    lease_id: LeaseId
    invoiced: OrganizationId
    """The other customer, which has an invoice of the month."""
    export_id: UUID
    while_unrated: list[Difference]
    """The differences that were found while intervals waited for their charges."""

    @property
    def world(self) -> World:
        return World(db=self.db, now=self.clock.now, new_id=uuid7)

    async def reconcile(
        self, *, period: datetime = NOVEMBER, closed: bool = False, export_id: UUID | None = None
    ) -> UUID:
        asked_id = await asked_for(
            self.db, self.clock.now(), month=period, closed=closed, export_id=export_id
        )
        while (await reconcile_periods.activate(self.world)).more:
            pass
        return asked_id

    async def differences(self, reconciliation_id: UUID) -> list[Difference]:
        async with self.db.reading() as connection:
            return await reconciliation_batches.differences(
                connection, reconciliation_id, after=None, limit=100
            )

    async def of_customers(self, reconciliation_id: UUID) -> dict[OrganizationId, Amounts]:
        """What each customer came to."""
        async with self.db.reading() as connection:
            found = await reconciliation_batches.examined(
                connection, reconciliation_id, after=None, limit=100
            )
        return {customer.customer_id: customer.amounts for customer in found}

    async def totals(self, reconciliation_id: UUID) -> Mapping[LinkName, int]:
        """The links that differ in total, and by how much."""
        async with self.db.reading() as connection:
            (batch,) = await reconciliation_batches.batches(connection, [reconciliation_id])
        return {link.link: link.difference_nano for link in sides(batch.amounts) if link.difference_nano}

    @asynccontextmanager
    async def planted(self, *statements: str) -> AsyncIterator[None]:
        """Wrong rows, as whoever owns the database could make them, and then the right ones again."""
        tables = (
            "journal", "intervals", "charges", "postings", "export_files", "invoices", "invoice_lines", "credit_notes"
        )  # fmt: skip
        names = {"lease_id": self.lease_id, "acme": self.acme, "invoiced": self.invoiced}
        async with self.owner.transaction() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for table in tables:
                await connection.execute(text(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}"))
            for statement in statements:
                await connection.execute(text(statement), names)
        yield
        async with self.owner.transaction() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for table in tables:
                await connection.execute(text(f"DELETE FROM {table}"))
                overriding = "OVERRIDING SYSTEM VALUE" if table == "journal" else ""
                await connection.execute(text(f"INSERT INTO {table} {overriding} SELECT * FROM kept_{table}"))
                await connection.execute(text(f"DROP TABLE kept_{table}"))


@pytest.fixture(scope="module")
async def books(server_url: str, template: str) -> AsyncIterator[Books]:
    async with fresh_database(server_url, template) as url:
        owner = Database(url, role=None, pool_size=1, readers=1)
        db = Database(login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=3, readers=3)
        clock = Clock()
        leased = await Leased(db, clock).begin()
        claim, other = await leased.admitted(), await leased.admitted()
        made = Books(
            db, owner, clock, claim.organization_id, claim.lease_id, other.organization_id, uuid7(), []
        )
        for _ in range(5):
            clock.advance(1_800)
            await _use(made)
        await leased.release(claim.lease_id, claim.organization_id)
        await meter_usage.activate(made.world)
        made.while_unrated = await made.differences(await made.reconcile())
        await rate_usage.activate(made.world)
        made.export_id = await _export(made)
        clock.advance(1)  # The exports are of before the invoice.
        await _invoice(made)
        yield made
        await db.close()
        await owner.close()


async def _use(books: Books) -> None:
    """Their machines are listed, and what they used is funded, metered and charged."""
    async with books.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET sighted_at = :now"), {"now": books.clock.now()})
    for loop in (fund_leases, meter_usage, rate_usage):
        await loop.activate(books.world)


async def _invoice(books: Books) -> None:
    """Issue the invoice of the customer whose lease runs on, as if the month were closed."""
    organization_id, now = books.invoiced, books.clock.now()
    buyer = BillingDetails(
        legal_name="Heliotrope GmbH",
        address=("Idlerstr. 12",),
        country="DE",
        tax_id=None,
        tax_rate=1_900,
        reverse_charge=False,
    )
    async with books.owner.transaction() as connection:
        drafted, lines = draft(
            organization_id,
            Period(MAIN_ISSUER, NOVEMBER, PeriodState.CLOSED),
            seller=Seller("Neocloud Ltd", (), None),
            buyer=buyer,
            usage=await invoices.usage(connection, organization_id, NOVEMBER),
            unused_credits=Nano(0),
        )
        issued = drafted.issued(uuid7(), "INV-2026-000001", at=now, by="user_grace")
        assert issued.id is not None
        await invoices.insert(connection, issued, lines)
        tax = Nano(issued.tax_cents * NANO_PER_CENT)
        posted = ledger.invoice(
            organization_id, invoice_id=issued.id, tax=tax, adjustment=issued.adjustment_nano, at=now
        )
        assert posted is not None
        await ledger_rows.post(connection, [(uuid7(), posted)], now=now)
        await _correct(connection, issued, lines, now)


async def _correct(
    connection: Connection, invoice: Invoice, lines: Sequence[InvoiceLine], now: datetime
) -> None:
    """A credit note over a dollar of it, booked in the same month."""
    asked = [LineToCredit(1, 100)]
    found = correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=asked)
    assert isinstance(found, Correction)
    assert invoice.id is not None
    tax, decided = Nano(found.tax_cents * NANO_PER_CENT), Approval("user_grace", "ticket 4711")
    note = CreditNote(
        id=uuid7(),
        organization_id=invoice.organization_id,
        invoice_id=invoice.id,
        issuer=invoice.issuer,
        number="CN-2026-000001",
        credited_cents=found.credited_cents,
        net_cents=found.net_cents,
        tax_cents=found.tax_cents,
        credits_nano=found.credits_nano,
        to_wallet_nano=Nano(found.given_back_nano - tax),
        reason=decided.reason,
        issued_at=now,
        issued_by=decided.by,
    )
    await credit_notes.insert(connection, note, found.lines)
    posted = ledger.credit_note(
        note.organization_id,
        credit_note_id=note.id,
        credited=Nano(note.credited_cents * NANO_PER_CENT),
        to_wallet=note.to_wallet_nano,
        to_receivable=tax,
        tax=tax,
        at=now,
        approval=decided,
    )
    await ledger_rows.post(connection, [(uuid7(), posted)], now=now)


async def _export(books: Books) -> UUID:
    """A complete export of one customer, and one of all. Returns the id of the latter."""
    now = books.clock.now()
    run_id = uuid7()
    async with books.db.transaction() as connection:
        for covers_all, made_id in ((False, uuid7()), (True, run_id)):
            charged = await read(
                connection,
                text("SELECT sum(amount_nano)::bigint FROM charges WHERE :all OR organization_id = :acme"),
                int,
                all=covers_all,
                acme=books.acme,
            )
            run = ExportRun(
                id=made_id,
                organization_id=books.acme,
                covers_all=covers_all,
                period_start=NOVEMBER,
                final=False,
                seller="Neocloud Ltd",
                cut_at=now,
                created_at=now,
                created_by="user_grace",
                previous_id=None,
                previous_sha256=None,
            )
            await exports.insert_run(connection, run)
            for name in FileName:
                file = DeliveredFile(
                    run_id=made_id,
                    organization_id=books.acme,
                    name=name,
                    size=1,
                    sha256=bytes(32),
                    rows=1,
                    sums={"BilledCost": decimal_text(charged[0] * 1_000)},
                    price_books=(1,),
                    delivered_at=now,
                )
                await exports.insert_file(connection, file)
    return run_id


async def test_books_that_follow_from_what_happened_have_no_difference(books: Books) -> None:
    found = await books.reconcile(export_id=books.export_id)
    assert await books.totals(found) == {}
    assert await books.differences(found) == []
    async with books.db.reading() as connection:
        (batch,) = await reconciliation_batches.batches(connection, [found])
    assert batch.remaining == 0
    # 9,000 s of the lease that ended, and two full hours of the one that runs.
    assert batch.amounts.journal == batch.amounts.posted == (9_000 + 7_200) * SECOND
    assert batch.amounts.to_invoice == batch.amounts.invoiced == 7_200 * SECOND
    assert batch.amounts.not_invoiced == 9_000 * SECOND
    assert batch.amounts.invoice_totals == batch.amounts.invoice_postings == 8_570_000_000
    assert batch.amounts.credit_note_totals == batch.amounts.credit_note_postings == 1_190_000_000
    assert batch.amounts.in_own_export == 9_000 * SECOND
    assert batch.amounts.in_export == (9_000 + 7_200) * SECOND


async def test_both_sides_of_each_link_are_stored_of_every_customer_also_where_they_agree(
    books: Books,
) -> None:
    found = await books.reconcile(export_id=books.export_id)
    stored = await books.of_customers(found)
    assert {books.acme, books.invoiced} <= stored.keys()
    acme = {link.link: link for link in sides(stored[books.acme], OF_CUSTOMERS)}
    assert [(acme[name].before_nano, acme[name].after_nano) for name in acme] == [
        *[(9_000 * SECOND, 9_000 * SECOND)] * 4,
        *[(0, 0)] * 3,  # It has no invoice and no credit note.
        (9_000 * SECOND, 9_000 * SECOND),
    ]
    async with books.db.reading() as connection:
        (batch,) = await reconciliation_batches.batches(connection, [found])
    assert batch.customers == len(stored)
    total = Amounts()
    for amounts in stored.values():
        total = total.plus(amounts)
    assert replace(total, in_export=batch.amounts.in_export) == batch.amounts


async def test_what_waits_for_its_charge_is_no_difference_until_the_month_is_closed(books: Books) -> None:
    assert books.while_unrated == []


async def test_in_a_closed_month_nothing_is_left_out(books: Books) -> None:
    found = await books.reconcile(closed=True)
    left = datetime(2026, 12, 1, tzinfo=UTC) - (START + timedelta(hours=2))
    assert await books.totals(found) == {LinkName.METERED: -int(left.total_seconds()) * SECOND}


_FIRST = "lease_id = :lease_id AND number = 1"
_EARLIER = """
UPDATE journal SET at = at - interval '60 s' WHERE lease_id = :lease_id AND machine_id IS NULL AND state_after = 'ready'
"""
_LONGER = f"UPDATE intervals SET unit_seconds = unit_seconds + 60 WHERE {_FIRST}"
_SUM = """
UPDATE export_files f SET sums = '{"BilledCost": "9.000000001000"}' FROM export_runs r
WHERE r.id = f.run_id AND r.organization_id = :acme AND
"""


@pytest.mark.parametrize(
    ("link", "difference", "example", "statements"),
    [
        (LinkName.METERED, -60 * SECOND, "lease", (_EARLIER,)),
        (LinkName.RATED, -60 * SECOND, "lease", (_EARLIER, _LONGER)),
        (
            LinkName.CHARGED,
            -60 * SECOND,
            "lease",
            (
                _EARLIER,
                _LONGER,
                f"UPDATE charges SET unit_seconds = unit_seconds + 60 WHERE {_FIRST}",
            ),
        ),
        (
            LinkName.POSTED,
            7,
            "charge",
            (
                """
                UPDATE postings p SET amount_nano = p.amount_nano + 7 * sign(p.amount_nano)::bigint
                FROM transactions t JOIN charges c ON t.key = 'charge:' || replace(c.id::text, '-', '')
                WHERE p.transaction_id = t.id AND c.lease_id = :lease_id AND c.number = 1
                """,
            ),
        ),
        (LinkName.EXPORTED_TO_CUSTOMER, 1, None, (f"{_SUM} NOT r.covers_all",)),
    ],
)
async def test_a_wrong_row_makes_one_link_of_one_customer_differ_by_its_amount(
    books: Books, link: LinkName, difference: int, example: str | None, statements: tuple[str, ...]
) -> None:
    async with books.owner.reading() as connection:
        charge = await read(
            connection,
            text(f"SELECT id FROM charges WHERE {_FIRST}"),
            UUID,
            lease_id=books.lease_id,
        )
    examples = {
        "lease": (on_wire(Prefix.LEASE, books.lease_id),),
        "charge": (on_wire(Prefix.CHARGE, charge[0]),),
        None: (),
    }
    async with books.planted(*statements):
        found = await books.reconcile(export_id=books.export_id)
    assert await books.totals(found) == {link: difference}
    (only,) = await books.differences(found)
    assert (only.customer_id, only.link) == (books.acme, link)
    assert only.after_nano - only.before_nano == difference
    assert only.examples == examples[example]


@pytest.mark.parametrize(
    ("link", "difference", "statement"),
    [
        (
            LinkName.INVOICED,
            5,
            "UPDATE invoice_lines SET amount_nano = amount_nano + 5 WHERE organization_id = :invoiced",
        ),
        (
            LinkName.INVOICE_POSTED,
            -NANO_PER_CENT,
            "UPDATE invoices SET tax_cents = tax_cents + 1 WHERE organization_id = :invoiced",
        ),
        (
            LinkName.INVOICE_POSTED,
            7,
            """
            UPDATE postings p SET amount_nano = p.amount_nano + 7 * sign(p.amount_nano)::bigint
            FROM transactions t WHERE p.transaction_id = t.id AND t.kind = 'invoice'
            """,
        ),
        (
            LinkName.CREDIT_NOTE_POSTED,
            -NANO_PER_CENT,
            "UPDATE credit_notes SET net_cents = net_cents + 1, credited_cents = credited_cents + 1",
        ),
        (
            LinkName.CREDIT_NOTE_POSTED,
            -7,
            """
            UPDATE postings p SET amount_nano = p.amount_nano - 7 FROM transactions t, ledger_accounts a
            WHERE p.transaction_id = t.id AND t.kind = 'credit_note' AND a.id = p.account_id AND a.kind = 'wallet'
            """,
        ),
    ],
)
async def test_a_wrong_invoice_is_found_by_its_own_lines_and_by_the_ledger(
    books: Books, link: LinkName, difference: int, statement: str
) -> None:
    async with books.planted(statement):
        found = await books.reconcile()
    assert await books.totals(found) == {link: difference}
    (only,) = await books.differences(found)
    assert (only.customer_id, only.link) == (books.invoiced, link)


async def test_an_export_of_all_customers_with_another_sum_differs_in_total(books: Books) -> None:
    async with books.planted(f"{_SUM} r.covers_all"):
        found = await books.reconcile(export_id=books.export_id)
    assert await books.totals(found) == {LinkName.EXPORTED: 9 * 10**9 + 1 - (9_000 + 7_200) * SECOND}
    assert await books.differences(found) == []


async def test_a_charge_after_the_end_of_its_lease_differs_in_the_month_of_the_charge(books: Books) -> None:
    later = "started_at = started_at + interval '20 days', ended_at = ended_at + interval '20 days'"
    async with books.planted(
        f"UPDATE intervals SET {later} WHERE {_FIRST}",
        f"UPDATE charges SET {later}, period = '2026-12-01 00:00+00' WHERE {_FIRST}",
    ):
        found = await books.reconcile(period=datetime(2026, 12, 1, tzinfo=UTC))
    assert await books.totals(found) == {LinkName.METERED: 3_600 * SECOND, LinkName.POSTED: -3_600 * SECOND}


async def test_a_batch_that_another_replica_stored_is_dropped(books: Books) -> None:
    found = await books.reconcile()
    again = Batch(found, 1, None, 0, 9, Amounts(), books.clock.now())
    wrong = Difference(found, 1, books.acme, LinkName.RATED, Nano(1), Nano(2), ())
    async with books.db.transaction() as connection:
        await reconciliation_batches.record(
            connection, again, {books.acme: Amounts(journal=Nano(1))}, [wrong]
        )
    assert await books.differences(found) == []
    assert (await books.of_customers(found))[books.acme].journal == 9_000 * SECOND
    async with books.db.reading() as connection:
        assert await reconciliations.unfinished(connection) is None


async def test_the_database_prices_time_as_the_charges_were(books: Books) -> None:
    """The two are written apart, so that a mistake in one of them shows."""
    cases = [
        (price, seconds)
        for price in (0, 1, 1_800, 3_599, 2_490_000_000, 10**15)
        for seconds in (0, 1, 2, 3, 1_799, 1_800, 1_801, 5_400, 9_000, 28_800, 10**9)
    ]
    expression = reconciliations.accrued_sql("price", "seconds")
    statement = text(f"""
    SELECT {expression}::bigint FROM unnest(CAST(:prices AS bigint[]), CAST(:seconds AS bigint[]))
      WITH ORDINALITY AS cases(price, seconds, place) ORDER BY place
    """)
    cases = [case for case in cases if case[0] * case[1] // 3_600 < 2**63]
    async with books.db.reading() as connection:
        found = await read(
            connection,
            statement,
            int,
            prices=[case[0] for case in cases],
            seconds=[case[1] for case in cases],
        )
    assert found == [accrued(Nano(price), seconds) for price, seconds in cases]
