"""Reconciliations over HTTP: finance asks for one, sees how far it is, and reads which customers differ."""

import pytest

from control_plane.db import reconciliation_batches, reconciliations
from control_plane.db.reconciliation_batches import Batch, Difference
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.domain.reconciliation import OF_CUSTOMERS, Amounts, LinkName
from control_plane.world import uuid7
from reconciler.loops.money import reconcile_periods
from reconciler.world import World
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold

pytestmark = pytest.mark.database
PATH = "/v1/finance/reconciliations"


@pytest.fixture
async def finance(api: Api) -> Tenant:
    return await api.tenant("us", platform=True, credit=None)


async def test_a_month_is_reconciled_after_it_was_asked_for(api: Api, finance: Tenant) -> None:
    hold(await finance.http.post(PATH, json={"period": "2026-12"}), "period_in_future")
    asked = (await finance.http.post(PATH, json={"period": "2026-11"})).json()
    assert (asked["state"], asked["remaining"], asked["closed"]) == ("running", None, False)
    await reconcile_periods.activate(World(db=api.owner.db, now=api.clock.now, new_id=uuid7))
    found = (await finance.http.get(f"{PATH}/{asked['id']}")).json()
    assert (found["state"], found["customers"], found["remaining"]) == ("reconciled", 1, 0)
    assert [link["link"] for link in found["links"]] == [link.value for link in LinkName]
    assert (await finance.http.get(PATH)).json()["items"] == [found]
    hold(await finance.http.get(f"{PATH}/rec_{0:032x}"), "not_found")


async def _found(api: Api, reconciliation_id: str, *customers: OrganizationId) -> None:
    """Two customers differ, one by as much too much as the other one by too little."""
    asked = reconciliation_id.removeprefix("rec_")
    async with api.owner.db.transaction() as connection:
        (only,) = await reconciliations.page(connection, before=None, limit=1)
        assert only.id.hex == asked
        batch = Batch(
            only.id, 1, customers[-1], 2, 0, Amounts(booked=Nano(8), posted=Nano(8)), api.clock.now()
        )
        differences = [
            Difference(only.id, 1, customer, LinkName.POSTED, Nano(4), Nano(4 + by), (f"ch_{by}",))
            for customer, by in zip(customers, (1, -1), strict=True)
        ]
        examined = {
            found.customer_id: Amounts(booked=found.before_nano, posted=found.after_nano)
            for found in differences
        }
        await reconciliation_batches.record(connection, batch, examined, differences)


async def test_differences_name_the_customers_also_where_they_add_up_to_nothing(
    api: Api, finance: Tenant
) -> None:
    acme, globex = await api.tenant("acme"), await api.tenant("globex")
    asked = (await finance.http.post(PATH, json={"period": "2026-11"})).json()
    await _found(api, asked["id"], *sorted((acme.id, globex.id)))
    found = (await finance.http.get(f"{PATH}/{asked['id']}")).json()
    assert (found["state"], found["differing_customers"]) == ("different", 2)
    assert all(link["difference"]["nano"] == 0 for link in found["links"])
    first = (await finance.http.get(f"{PATH}/{asked['id']}/differences?limit=1")).json()
    following = f"{PATH}/{asked['id']}/differences?limit=1&cursor={first['next_cursor']}"
    second = (await finance.http.get(following)).json()
    assert second["next_cursor"] is None
    rows = first["items"] + second["items"]
    assert [row["difference"]["nano"] for row in rows] == [1, -1]
    assert {row["organization"] for row in rows} == {"acme", "globex"}
    assert [row["examples"] for row in rows] == [["ch_1"], ["ch_-1"]]


async def test_customers_have_both_sides_of_their_links_page_by_page(api: Api, finance: Tenant) -> None:
    acme, globex = await api.tenant("acme"), await api.tenant("globex")
    asked = (await finance.http.post(PATH, json={"period": "2026-11"})).json()
    await reconcile_periods.activate(World(db=api.owner.db, now=api.clock.now, new_id=uuid7))
    path = f"{PATH}/{asked['id']}/customers"
    first = (await finance.http.get(f"{path}?limit=2")).json()
    second = (await finance.http.get(f"{path}?limit=2&cursor={first['next_cursor']}")).json()
    assert second["next_cursor"] is None
    customers = first["items"] + second["items"]
    assert {customer["organization"] for customer in customers} == {"us", "acme", "globex"}
    ids = [on_wire(Prefix.ORGANIZATION, customer) for customer in sorted((finance.id, acme.id, globex.id))]
    assert [customer["organization_id"] for customer in customers] == ids
    for customer in customers:
        assert not customer["differs"]
        assert [link["link"] for link in customer["links"]] == [link.name for link in OF_CUSTOMERS]
    hold(await finance.http.get(f"{PATH}/rec_{0:032x}/customers"), "not_found")


async def test_a_customer_of_a_reconciliation_differs_where_a_link_does(api: Api, finance: Tenant) -> None:
    acme, globex = await api.tenant("acme"), await api.tenant("globex")
    asked = (await finance.http.post(PATH, json={"period": "2026-11"})).json()
    await _found(api, asked["id"], *sorted((acme.id, globex.id)))
    customers = (await finance.http.get(f"{PATH}/{asked['id']}/customers")).json()["items"]
    assert [customer["differs"] for customer in customers] == [True, True]
    posted = [link for customer in customers for link in customer["links"] if link["link"] == "posted"]
    assert [(link["before"]["nano"], link["after"]["nano"]) for link in posted] == [(4, 5), (4, 3)]
