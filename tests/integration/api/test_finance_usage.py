"""What all customers used, as finance reads it: the same as each customer reads of itself."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from control_plane.db.engine import Database, Role
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services import billing
from tests.integration.api.conftest import Tenant, Ticking, serve
from tests.integration.api.problems import hold
from tests.support.database import fresh_database
from tests.support.stage import set_stage

pytestmark = pytest.mark.database
PATH = "/v1/finance/usage"
GROUPINGS = ("organization", "project", "lease", "sku", "day", "label&label_key=team")


@dataclass
class Books:
    finance: Tenant
    customers: dict[str, Tenant]

    async def all(self, query: str = "", *, limit: int = 50) -> dict[str, dict[str, Any]]:
        """The usage of every customer, by its name, from all pages."""
        found: dict[str, dict[str, Any]] = {}
        cursor = ""
        while True:
            page = (await self.finance.http.get(f"{PATH}?limit={limit}{query}{cursor}")).json()
            assert len(page["items"]) <= limit
            found |= {customer["organization"]: customer for customer in page["items"]}
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"


@pytest.fixture(scope="module")
async def books(server_url: str, template: str) -> AsyncIterator[Books]:
    """Two customers that used something, and one that used nothing. The tests only read."""
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=Role.RECONCILER, pool_size=5, readers=3)
        api_db = Database(url, role=Role.API, pool_size=5, readers=3)
        clock = Ticking()
        api = await serve(db, api_db, clock)
        stage = await set_stage(db, clock, api_db=api_db)
        finance = await api.tenant("us", platform=True)
        customers = {name: await api.tenant(name) for name in ("acme", "globex", "idle")}
        await customers["acme"].lease(name="first", labels={"team": "vision"})
        await customers["acme"].lease(name="second")
        await customers["globex"].lease(name="theirs")
        await stage.play(60)
        await stage.play(2 * 3_600, step=300)
        yield Books(finance, customers)
        await api_db.close()
        await db.close()


async def test_finance_reads_of_each_customer_what_it_reads_of_itself(books: Books) -> None:
    for by in GROUPINGS:
        found = await books.all(f"&by={by}")
        assert found.keys() == {"us", "acme", "globex", "idle"}
        for name, customer in books.customers.items():
            own = (await customer.http.get(f"/v1/usage/sums?by={by}")).json()
            assert found[name]["usage"] == own, by
            assert found[name]["organization_id"] == on_wire(Prefix.ORGANIZATION, customer.id)
            assert (own["amount"]["nano"] > 0) == (name != "idle")
    acme = (await books.all("&by=organization"))["acme"]
    (together,) = acme["usage"]["groups"]
    assert (together["id"], together["name"]) == (acme["organization_id"], "acme")
    assert together["amount"] == acme["usage"]["amount"]
    labels = (await books.all("&by=label&label_key=team"))["acme"]["usage"]["groups"]
    assert {group["name"] for group in labels} == {"vision", None}


async def test_pages_have_every_customer_once(books: Books) -> None:
    assert await books.all(limit=1) == await books.all()


@pytest.mark.parametrize("bound", ["CHARGES_PER_PAGE", "GROUPS_PER_PAGE"])
async def test_a_page_ends_early_behind_a_customer_with_very_many_charges_or_groups(
    books: Books, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    whole = await books.all()
    monkeypatch.setattr(billing, bound, 1)
    page = (await books.finance.http.get(PATH)).json()
    used = [customer["organization"] for customer in page["items"] if customer["usage"]["groups"]]
    assert (used, page["next_cursor"] is None) == (["acme"], False)
    assert await books.all() == whole


async def test_one_customer_and_another_month_can_be_asked_for(books: Books) -> None:
    globex = on_wire(Prefix.ORGANIZATION, books.customers["globex"].id)
    assert (await books.all(f"&organization={globex}")).keys() == {"globex"}
    assert {one["usage"]["amount"]["nano"] for one in (await books.all("&month=2026-10")).values()} == {0}
    hold(await books.finance.http.get(f"{PATH}?organization=org_{0:032x}"), "not_found")
    hold(await books.finance.http.get(f"{PATH}?by=label"), "invalid_parameter")
    hold(await books.finance.http.get(f"{PATH}?label_key=team"), "invalid_parameter")
