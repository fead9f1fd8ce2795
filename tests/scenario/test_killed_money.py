"""Processes that are killed with SIGKILL while they close a month, invoice it, export it or import a supplier's invoice.

Whoever asked asks again, as the command line does after an answer was lost. What is there then is what an undisturbed
run leaves: the same invoices without a gap in their numbers, the same bytes of exports, the same sums in the ledger.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database, Role
from tests.integration.api.conftest import Ticking, serve
from tests.integration.api.endpoints import BUYER
from tests.support.clock import START
from tests.support.database import fresh_database
from tests.support.killed import CSV, CSV_LINES_PER_PART, Life, Nursery, nursery
from tests.support.rows import rows
from tests.support.stage import set_stage

pytestmark = pytest.mark.database
DAY = 86_400
POINTS = 6
"""So many of the points of each task are tried, before and after the message in turn. Set it high to try all."""
TASKS = ("close", "issue", "export", "import")
_SEEN = {
    "periods": "SELECT month, state FROM periods ORDER BY month",
    "period_events": "SELECT month, event FROM period_events ORDER BY at, event",
    "numbers": "SELECT series, year, last FROM document_numbers ORDER BY series, year",
    "invoices": """
        SELECT number, organization_id, usage_nano, credits_nano, adjustment_nano, subtotal_cents, tax_cents, paid_cents
        FROM invoices ORDER BY number
    """,
    "invoice_lines": """
        SELECT v.number AS invoice, l.number, l.kind, l.sku, l.unit_seconds, l.amount_nano, l.cents
        FROM invoice_lines l JOIN invoices v ON v.id = l.invoice_id ORDER BY 1, 2
    """,
    "ledger": """
        SELECT p.organization_id, a.kind, sum(p.amount_nano)::text AS amount, count(*) AS postings
        FROM postings p JOIN ledger_accounts a ON a.id = p.account_id GROUP BY 1, 2 ORDER BY 1, 2
    """,
    "standings": """
        SELECT organization_id, posted_nano, receivable_nano, held_nano, transaction_count FROM standings ORDER BY 1
    """,
    "imports": """
        SELECT i.provider, i.month, i.sha256, i.line_count, i.amount_nano,
               (SELECT sum(jsonb_array_length(p.lines)) FROM supplier_invoice_parts p WHERE p.invoice_id = i.id) AS lines
        FROM supplier_invoices i ORDER BY i.imported_at
    """,
}


@dataclass(frozen=True, slots=True)
class Month:
    """November, of which two customers used something: open, closed, and invoiced."""

    server_url: str
    databases: dict[str, str]
    """The names of the databases in which each task begins."""
    key: str
    born: Nursery

    def run(self, task: str, url: str, **options: Any) -> Life:
        return self.born.run(task, url=url, key=self.key, seconds=12 * DAY, once=f"{task}-once", **options)


@pytest.fixture(scope="module")
def born() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


@pytest.fixture(scope="module")
async def month(server_url: str, template: str, born: Nursery) -> AsyncIterator[Month]:
    async with AsyncExitStack() as stack:
        used = await stack.enter_async_context(fresh_database(server_url, template))
        key = await _use(used)
        made = Month(server_url, {"close": _name(used), "import": _name(used)}, key, born)
        closed = await stack.enter_async_context(fresh_database(server_url, _name(used)))
        assert made.run("close", closed).answer["state"] == "closed"
        invoiced = await stack.enter_async_context(fresh_database(server_url, _name(closed)))
        assert len(made.run("issue", invoiced).answer["items"]) == 3
        made.databases.update(issue=_name(closed), export=_name(invoiced))
        yield made


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


async def _use(url: str) -> str:
    """Returns the API key of finance. No connection stays open, so that the database can be copied."""
    db = Database(url, role=Role.RECONCILER, pool_size=5, readers=3)
    api_db = Database(url, role=Role.API, pool_size=5, readers=3)
    clock = Ticking()
    api = await serve(db, api_db, clock)
    stage = await set_stage(db, clock, api_db=api_db)
    customers = [await api.tenant(name) for name in ("acme", "globex", "initech")]
    finance = await api.tenant("platform", platform=True)
    leases = [await customer.lease() for customer in customers]
    await stage.play(90, step=5)
    await stage.play(3_600, step=600)
    for customer, lease in zip(customers, leases, strict=True):
        await customer.http.post(f"/v1/leases/{lease}/release")
        path = f"/v1/finance/billing-details/org_{customer.id.hex}"
        assert (await finance.http.put(path, json=BUYER)).status_code == 200
    await stage.play(120, step=20)
    assert clock.now() < START.replace(day=30)
    key = finance.secret_for("POST", "/v1/finance/periods")
    for each in (api_db, db):
        await each.close()
    return key


async def _seen(url: str) -> dict[str, list[list[str]]]:
    db = Database(url, role=None, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            return {
                what: [[str(value) for value in row] for row in await rows(connection, text(statement))]
                for what, statement in _SEEN.items()
            }
    finally:
        await db.close()


def _points(last: int) -> Sequence[tuple[int, bool]]:
    """Points that are spread over all of them, with the last ones, which commit and answer."""
    chosen = sorted({*range(1, last + 1, max(1, last // POINTS)), last - 1, last})
    return [(point, bool(place % 2) or point == last) for place, point in enumerate(chosen)]


@pytest.mark.parametrize("task", TASKS)
async def test_what_was_killed_and_is_asked_for_again_leaves_what_an_undisturbed_run_leaves(
    month: Month, task: str
) -> None:
    async with fresh_database(month.server_url, month.databases[task]) as url:
        whole = month.run(task, url)
        expected = await _seen(url)
    assert whole.points > 10, "there is something to kill"
    assert sum(int(row[2]) for row in expected["ledger"]) == 0
    for at, after in _points(whole.points):
        where = f"{task}, {'after' if after else 'before'} message {at} of {whole.points}"
        async with fresh_database(month.server_url, month.databases[task]) as url:
            killed = month.run(task, url, at=at, after=after)
            assert killed.killed, where
            again = month.run(task, url)
            assert _comparable(task, again.answer) == _comparable(task, whole.answer), where
            assert await _seen(url) == expected, where


def _comparable(task: str, answer: Any) -> Any:
    """An answer without what differs in every run: ids and times."""
    if task == "close":
        return {name: value for name, value in answer.items() if not name.endswith("_at")}
    if task == "issue":
        return [(item["number"], item["organization_id"], item["total"]) for item in answer["items"]]
    if task == "import":
        return answer["sha256"], answer["lines"], answer["amount"]
    manifest = json.loads(answer[2])
    named = ("rows", "sums", "status", "period", "files", "price_books")
    return [hashlib.sha256(file.encode()).hexdigest() for file in answer[:2]], [
        manifest[name] for name in named
    ]


def test_the_import_has_several_parts() -> None:
    assert len(CSV.splitlines()) > 2 * CSV_LINES_PER_PART
