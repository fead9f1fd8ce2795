"""The demo's last month: planted leases are metered, priced, closed, invoiced, matched and reconciled for real."""

from typing import Any

import pytest

from control_plane.db import accounts
from control_plane.domain.ids import AccountName, Prefix, on_wire
from control_plane.services import administration
from demo import past_month
from demo.past_month import CUSTOMER, SUPPLIER
from demo.prices import price_book
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import BUYER
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _made(operator: Tenant, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = await operator.http.post(f"/v1/finance/{path}", json=body, headers={"Idempotency-Key": path})
    assert answer.is_success, answer.text
    return answer.json()


async def _all(operator: Tenant, path: str) -> list[Any]:
    """All pages of a listing of finance."""
    items, cursor = [], ""
    while cursor is not None:
        page = (await operator.http.get(f"/v1/finance/{path}?limit=10{cursor}")).json()
        items += page["items"]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    return items


async def test_the_month_before_is_closed_invoiced_matched_and_reconciled(
    api: Api, stage: Stage, operator: Tenant, database_url: str
) -> None:
    heliotrope = await api.tenant(CUSTOMER)
    await administration.load_price_book(api.owner, price_book())
    async with api.owner.db.transaction() as connection:
        await accounts.register(connection, AccountName(SUPPLIER), SUPPLIER, now=api.clock.now())
    leases = past_month.leases_before(api.clock.now())
    month = past_month.month_name(leases)
    await past_month.write(database_url, leases)
    await stage.play(60, step=20)
    bill = (await heliotrope.http.get(f"/v1/bill?month={month}")).json()
    used = sum(int((lease.released_at - lease.ready_at).total_seconds()) for lease in leases)
    assert bill["unrated"]["nano"] == 0
    assert bill["amount"]["nano"] > 0, bill

    assert (await _made(operator, f"periods/{month}/close"))["state"] == "closed"
    organization = on_wire(Prefix.ORGANIZATION, heliotrope.id)
    await operator.http.put(f"/v1/finance/billing-details/{organization}", json=BUYER)
    (invoice,) = (await _made(operator, "invoices", {"period": month, "organization_id": organization}))[
        "items"
    ]
    assert invoice["usage"]["nano"] == bill["amount"]["nano"]
    assert sum(line["unit_seconds"] or 0 for line in invoice["lines"]) == used
    for line in invoice["lines"]:
        of_line = f"invoices/{invoice['id']}/lines/{line['number']}/charges"
        charges = await _all(operator, of_line)
        assert sum(charge["unit_seconds"] for charge in charges) == (line["unit_seconds"] or 0)
        if line["kind"] == "usage":
            assert sum(charge["amount"]["nano"] for charge in charges) == line["exact"]["nano"]

    file = past_month.supplier_invoice(leases)
    upload = (await _made(operator, "supplier-uploads", {"provider": SUPPLIER, "period": month}))["id"]
    await _made(operator, f"supplier-uploads/{upload}/parts", {"number": 1, "first_line": 1, "csv": file})
    imported = await _made(operator, "supplier-invoices", {"upload_id": upload, "parts": 1})
    match = (await operator.http.get(f"/v1/finance/match?month={month}&provider={SUPPLIER}")).json()
    assert (match["matched"], match["open_count"], match["machines_count"]) == (True, 0, 3), match
    words = {step["word"] for step in match["differences"]}
    assert words == {"before_ready", "unsold_time", "billed_by_block", "rounding"}
    posted = await _made(operator, f"supplier-invoices/{imported['id']}/postings", {})
    assert posted["state"] == "posted"

    asked = await _made(operator, "reconciliations", {"period": month})
    await stage.play(30, step=2)
    found = (await operator.http.get(f"/v1/finance/reconciliations/{asked['id']}")).json()
    assert (found["remaining"], found["differing_customers"]) == (0, 0), found
    assert found["not_invoiced"]["nano"] == 0
    links = {link["link"]: link["after"]["nano"] for link in found["links"]}
    assert links["supplier_posted"] == links["supplier_owed"] == match["invoiced"]["nano"] > 0
