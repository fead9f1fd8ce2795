"""Queries on the ledger: its accounts, transactions and postings, and the standing's cached balance."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.ledger import AccountKind, LedgerAccount, Transaction, TransactionKind
from control_plane.domain.money import Nano

_OPEN = text("""
INSERT INTO ledger_accounts (id, organization_id, kind, created_at) VALUES (:id, :organization_id, :kind, :created_at)
""")
_ACCOUNTS = text("""
SELECT id, organization_id, kind, created_at FROM ledger_accounts
WHERE organization_id IS NULL OR organization_id = :organization_id ORDER BY organization_id, kind
""")


async def open_account(connection: Connection, account: LedgerAccount) -> None:
    """Store an account. An organization has at most one of each kind."""
    await write(
        connection,
        _OPEN,
        id=account.id,
        organization_id=account.organization_id,
        kind=account.kind.value,
        created_at=account.created_at,
    )


async def accounts(connection: Connection, organization_id: OrganizationId) -> list[LedgerAccount]:
    """The accounts that postings of this organization can refer to: its own, and ours."""
    return await read(connection, _ACCOUNTS, LedgerAccount, organization_id=organization_id)


@dataclass(frozen=True, slots=True)
class _NewTransaction:
    id: UUID
    key: str
    kind: TransactionKind
    organization_id: OrganizationId
    project_id: ProjectId | None
    effective_at: datetime
    month: int
    """The number of its month among those that are posted together."""
    approved_by: str | None
    reason: str | None
    wallet_nano: Nano
    receivable_nano: Nano
    position: int
    """Its place among those that are posted together."""


@dataclass(frozen=True, slots=True)
class _Month:
    number: int
    organization_id: OrganizationId
    moment: datetime
    """Any moment of it."""


@dataclass(frozen=True, slots=True)
class _Account:
    number: int
    organization_id: OrganizationId
    kind: AccountKind


@dataclass(frozen=True, slots=True)
class _Line:
    transaction_id: UUID
    line: int
    account: int
    """The number of its account among those that are posted to together."""
    amount_nano: Nano


# A posting whose account does not exist fails, because its account id is null. It is never skipped. Nor is a
# transaction of an organization without a standing: its number is null. The standing is locked, so nobody else posts
# for it meanwhile: a known key is seen, and numbers and balances follow those of the last transaction.
# Keys are looked up one by one: in a join, PostgreSQL may read all that there are for every statement. Months and
# accounts are few, and each is looked up once: the caller numbers them, and rows name their number. PostgreSQL reads a
# small table of accounts whole for a look-up, which took a quarter of the time when each line had one.
# A balance that is due to be looked at keeps its time, so that the row is updated without a write to its indexes.
_POST = text(f"""
WITH fresh AS MATERIALIZED (
  SELECT transactions.*, row_number() OVER so_far AS place, sum(wallet_nano) OVER so_far AS wallet,
         sum(receivable_nano) OVER so_far AS receivable
  FROM {Recordset(_NewTransaction, "transactions")}
  WHERE (SELECT known.id FROM transactions known WHERE known.organization_id = transactions.organization_id
         AND known.key = transactions.key) IS NULL
  WINDOW so_far AS (PARTITION BY organization_id ORDER BY position)
), made AS (
  INSERT INTO transactions (id, organization_id, project_id, key, kind, effective_at, period, approved_by, reason,
                            recorded_at, number, wallet_after_nano, receivable_after_nano)
  SELECT id, organization_id, project_id, key, kind, effective_at,
         (SELECT array_agg(booking_period(organization_id, moment) ORDER BY number)
          FROM {Recordset(_Month, "months")})[month],
         approved_by, reason, :now, transaction_count + place, posted_nano + wallet,
         standings.receivable_nano + receivable
  FROM fresh LEFT JOIN standings USING (organization_id)
  RETURNING id, organization_id, project_id
), posted AS (
  INSERT INTO postings (transaction_id, line, organization_id, project_id, account_id, amount_nano)
  SELECT made.id, lines.line, made.organization_id, made.project_id,
         (SELECT array_agg(coalesce(
            (SELECT a.id FROM ledger_accounts a
             WHERE a.organization_id = accounts.organization_id AND a.kind = accounts.kind),
            (SELECT a.id FROM ledger_accounts a WHERE a.organization_id IS NULL AND a.kind = accounts.kind)
          ) ORDER BY number) FROM {Recordset(_Account, "accounts")})[lines.account],
         lines.amount_nano
  FROM {Recordset(_Line, "lines")} JOIN made ON made.id = lines.transaction_id
), balances AS (
  UPDATE standings SET posted_nano = posted_nano + added.wallet_nano,
                       receivable_nano = standings.receivable_nano + added.receivable_nano,
                       balance_due_at = CASE WHEN added.wallet_nano > 0 THEN least(balance_due_at, :now)
                                             ELSE coalesce(balance_due_at, :now) END,
                       transaction_count = transaction_count + added.transactions
  FROM (SELECT organization_id, count(*) AS transactions, sum(wallet_nano)::bigint AS wallet_nano,
               sum(receivable_nano)::bigint AS receivable_nano
        FROM fresh GROUP BY organization_id) added
  WHERE standings.organization_id = added.organization_id
)
SELECT id FROM made
""")


async def post(
    connection: Connection, transactions: Sequence[tuple[UUID, Transaction]], *, now: datetime
) -> frozenset[UUID]:
    """Post transactions under these ids, once per key: a known key has no effect.

    Each is booked in the period of its effective time, or in the first later one that is not closed.

    Each also gets the next number of its organization, and the balances after it. So the caller holds the locks of the
    standings: whoever posts without them may fail on a number that is taken. Returns the ids that were posted.
    """
    if not transactions:
        return frozenset()
    first = dict[tuple[OrganizationId, str], tuple[UUID, Transaction]]()
    for transaction_id, transaction in transactions:
        first.setdefault((transaction.organization_id, transaction.key), (transaction_id, transaction))
    months, accounts = (
        dict[tuple[OrganizationId, int, int], _Month](),
        dict[tuple[UUID, AccountKind], _Account](),
    )
    heads, lines = list[_NewTransaction](), list[_Line]()
    for position, (transaction_id, transaction) in enumerate(first.values()):
        organization_id, at = transaction.organization_id, transaction.effective_at.astimezone(UTC)
        of_month = organization_id, at.year, at.month
        if of_month not in months:
            months[of_month] = _Month(len(months) + 1, organization_id, at)
        heads.append(
            _NewTransaction(
                transaction_id,
                transaction.key,
                transaction.kind,
                organization_id,
                transaction.project_id,
                at,
                months[of_month].number,
                None if transaction.approval is None else transaction.approval.by,
                None if transaction.approval is None else transaction.approval.reason,
                transaction.posted_to(AccountKind.WALLET),
                transaction.posted_to(AccountKind.RECEIVABLE),
                position,
            )
        )
        for number, posting in enumerate(transaction.postings, start=1):
            of_account = organization_id, posting.kind
            if of_account not in accounts:
                accounts[of_account] = _Account(len(accounts) + 1, organization_id, posting.kind)
            lines.append(_Line(transaction_id, number, accounts[of_account].number, posting.amount_nano))
    values = {
        "transactions": Recordset.document(heads),
        "months": Recordset.document([*months.values()]),
        "accounts": Recordset.document([*accounts.values()]),
        "lines": Recordset.document(lines),
        "now": now,
    }
    return frozenset(await read(connection, _POST, UUID, **values))


@dataclass(frozen=True, slots=True)
class PostedTransaction:
    """A transaction that somebody decided on, as it was posted."""

    id: UUID
    organization_id: OrganizationId
    kind: TransactionKind
    effective_at: datetime
    period: datetime
    """The first instant of the month in which it is booked."""
    approved_by: str
    reason: str


_GET = text("""
SELECT id, organization_id, kind, effective_at, period, approved_by, reason FROM transactions WHERE id = :id
""")
_OWED = text("SELECT -receivable_nano FROM standings WHERE organization_id = :organization_id")
_BALANCES = text("SELECT kind, amount_nano FROM ledger_balances()")


async def decided(connection: Connection, transaction_id: UUID) -> PostedTransaction:
    """A transaction that somebody decided on. Raises LookupError when there is none with this id."""
    found = await read_one(connection, _GET, PostedTransaction, id=transaction_id)
    if found is None:
        raise LookupError(f"transaction {transaction_id} does not exist")
    return found


async def owed(connection: Connection, organization_id: OrganizationId) -> Nano:
    """What an organization owes us by its invoices. The caller holds the standing's lock."""
    return Nano(await read_one(connection, _OWED, int, organization_id=organization_id) or 0)


async def balances(connection: Connection) -> dict[AccountKind, Nano]:
    """The sum of the postings per kind of account, over all organizations: credit positive.

    Empty unless the connection acts for the platform's organization.
    """
    return {total.kind: total.amount_nano for total in await read(connection, _BALANCES, _Total)}


_TOTALS = text("""
SELECT a.kind, sum(p.amount_nano)::bigint AS amount_nano
FROM postings p JOIN ledger_accounts a ON a.id = p.account_id
WHERE CAST(:organization_id AS uuid) IS NULL OR p.organization_id = :organization_id GROUP BY a.kind
""")


@dataclass(frozen=True, slots=True)
class _Total:
    kind: AccountKind
    amount_nano: Nano


async def totals(
    connection: Connection, organization_id: OrganizationId | None = None
) -> dict[AccountKind, Nano]:
    """The sum of the postings per kind of account, for one organization's money or for all."""
    found = await read(connection, _TOTALS, _Total, organization_id=organization_id)
    return {total.kind: total.amount_nano for total in found}
