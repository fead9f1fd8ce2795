"""Finance over HTTP: periods are closed and reopened, and what somebody decides on is posted once and in its bounds."""

import csv
import io

import pytest

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.role import Role
from control_plane.domain.scope import PLATFORM
from control_plane.services import api_keys, organizations
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.laws import check
from tests.support.stage import Stage

pytestmark = pytest.mark.database
OCTOBER = "/v1/finance/periods/2026-10"
NOVEMBER = "/v1/finance/periods/2026-11"
TICKET = {"reason": "ticket 4711"}


@pytest.fixture
async def finance(api: Api) -> Tenant:
    return await api.tenant("us", platform=True, credit=None)


async def _another_of_finance(api: Api, finance: Tenant) -> str:
    """The API key of one more service account with the platform's role finance."""
    async with api.owner.db.transaction(finance.id) as connection:
        account = await organizations.create_first_account(
            connection, api.owner, finance.id, "grace", role=Role.FINANCE, scope=PLATFORM
        )
        issued = await api_keys.issue(connection, api.owner, finance.id, account.subject, name="grace's")
    return issued.secret


async def test_a_month_is_closed_once_it_is_over_and_is_listed_with_its_state(
    api: Api, finance: Tenant
) -> None:
    hold(await finance.http.post(f"{NOVEMBER}/close"), "period_not_over")
    (listed,) = (await finance.http.get("/v1/finance/periods")).json()["items"]
    assert (listed["month"], listed["state"], listed["missing"]) == ("2026-11", "open", [])
    api.clock.advance(11 * 86_400)
    closed = (await finance.http.post(f"{NOVEMBER}/close")).json()
    assert (closed["state"], closed["missing"]) == ("closed", [])
    assert closed["changed_by"].startswith("sa_")
    hold(await finance.http.post(f"{NOVEMBER}/close"), "period_closed")
    months = (await finance.http.get("/v1/finance/periods?limit=1")).json()
    assert [period["month"] for period in months["items"]] == ["2026-12"]
    following = f"/v1/finance/periods?limit=1&cursor={months['next_cursor']}"
    assert (await finance.http.get(following)).json()["items"] == [closed]


async def test_a_closed_month_is_reopened_by_two_people(api: Api, finance: Tenant) -> None:
    hold(await finance.http.post(f"{OCTOBER}/reopen", json=TICKET), "period_not_closed")
    await finance.http.post(f"{OCTOBER}/close")
    asked = (await finance.http.post(f"{OCTOBER}/reopen", json=TICKET)).json()
    assert (asked["state"], asked["reopening"]["reason"]) == ("closed", "ticket 4711")
    hold(await finance.http.post(f"{OCTOBER}/reopen", json=TICKET), "own_request")
    grace = api.client(await _another_of_finance(api, finance))
    agreed = (await grace.post(f"{OCTOBER}/reopen", json={"reason": "agreed"})).json()
    assert (agreed["state"], agreed["reopening"]) == ("closing", None)
    assert (await finance.http.post(f"{OCTOBER}/close")).json()["state"] == "closed"


async def test_other_texts_are_no_period(finance: Tenant) -> None:
    for month in ("2026-13", "november", "0000-01"):
        hold(await finance.http.post(f"/v1/finance/periods/{month}/close"), "not_found")


async def test_what_finance_posts_changes_the_balance_once_per_key(api: Api, finance: Tenant) -> None:
    acme = await api.tenant("acme", credit="100")
    path = "/v1/finance/transactions"
    body = {"organization_id": f"org_{acme.id.hex}", **TICKET}
    for kind, usd in (("top_up", "5"), ("credit", "24.90"), ("refund", "105")):
        for _ in range(2):
            answer = await finance.http.post(
                path, json=body | {"kind": kind, "amount_usd": usd}, headers={"Idempotency-Key": kind}
            )
            assert answer.status_code == 201, answer.text
            posted = answer.json()
            assert (posted["kind"], posted["period"], posted["reason"]) == (kind, "2026-11", "ticket 4711")
    organization = (await acme.http.get("/v1/organization")).json()
    assert organization["balance"]["usd"] == "24.900000000"
    accounts = (await finance.http.get("/v1/finance/accounts")).json()["items"]
    assert {account["kind"]: account["balance"]["usd"] for account in accounts} == {
        "wallet": "24.900000000",
        "receivable": "0.000000000",
        "cash": "0.000000000",
        "revenue": "0.000000000",
        "credits": "24.900000000",
        "tax_payable": "0.000000000",
        "rounding": "0.000000000",
        "provider_cost": "0.000000000",
        "payable": "0.000000000",
    }
    await check(api.owner.db)


async def test_finance_reads_the_entries_of_an_account_page_by_page_and_every_wallet(
    api: Api, finance: Tenant
) -> None:
    acme, other = await api.tenant("acme", credit="100"), await api.tenant("other", credit="7")
    for kind, usd in (("credit", "24.90"), ("refund", "5")):
        body = {"organization_id": f"org_{acme.id.hex}", "kind": kind, "amount_usd": usd} | TICKET
        headers = {"Idempotency-Key": kind}
        await finance.http.post("/v1/finance/transactions", json=body, headers=headers)

    async def entries(query: str) -> list[tuple[str, str, str]]:
        found = []
        cursor = ""
        while True:
            page = (await finance.http.get(f"/v1/finance/entries?limit=2&{query}{cursor}")).json()
            found += page["items"]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        return [
            (entry["organization"], entry["kind"], entry["amount"]["usd"].split(".")[0]) for entry in found
        ]

    assert await entries("account=cash") == [
        ("acme", "refund", "-5"),
        ("other", "top_up", "7"),
        ("acme", "top_up", "100"),
    ]
    whole = [
        ("acme", "refund", "-5"),
        ("acme", "credit", "24"),
        ("other", "top_up", "7"),
        ("acme", "top_up", "100"),
    ]
    assert await entries("month=2026-11") == whole
    assert await entries("month=2026-10") == []
    of_acme = f"organization=org_{acme.id.hex}"
    assert await entries(of_acme) == [entry for entry in whole if entry[0] == "acme"]
    assert await entries(f"account=credits&{of_acme}") == [("acme", "credit", "24")]
    assert await entries(f"account=credits&organization=org_{other.id.hex}") == []
    assert await entries(f"organization=org_{'0' * 32}") == []
    (given,) = (await finance.http.get("/v1/finance/entries?account=credits")).json()["items"]
    assert given["reason"] == "ticket 4711"
    assert given["approved_by"].startswith("sa_")

    first = (await finance.http.get("/v1/finance/wallets?limit=1")).json()
    second = (await finance.http.get(f"/v1/finance/wallets?cursor={first['next_cursor']}")).json()
    wallets = [*first["items"], *second["items"]]
    assert {wallet["organization"]: wallet["balance"]["usd"] for wallet in wallets} == {
        "acme": "119.900000000",
        "other": "7.000000000",
    }
    accounts = (await finance.http.get("/v1/finance/accounts")).json()["items"]
    (liability,) = [account["balance"]["nano"] for account in accounts if account["kind"] == "wallet"]
    assert sum(wallet["balance"]["nano"] for wallet in wallets) == liability


async def test_nothing_is_paid_back_that_is_not_there_and_nothing_is_overpaid(
    api: Api, finance: Tenant
) -> None:
    acme = await api.tenant("acme", credit="100")
    await acme.lease()
    for kind, usd, code in (
        ("refund", "100", "balance_too_low"),
        ("payment", "0.01", "overpayment"),
        ("credit", "0", "invalid_request"),
        ("usage", "5", "invalid_request"),
    ):
        body = {"organization_id": f"org_{acme.id.hex}", "kind": kind, "amount_usd": usd} | TICKET
        path, key = "/v1/finance/transactions", {"Idempotency-Key": f"{kind} {usd}"}
        hold(await finance.http.post(path, json=body, headers=key), code)
    nobody = {"organization_id": f"org_{'0' * 32}", "kind": "credit", "amount_usd": "5"} | TICKET
    hold(await finance.http.post(path, json=nobody, headers=key), "not_found")
    await check(api.owner.db)


async def test_the_csv_of_a_balance_and_of_usage_holds_no_formula_whatever_reasons_and_labels_say(
    acme: Tenant, operator: Tenant, stage: Stage
) -> None:
    formula = '=HYPERLINK("https://a.example","open")'
    body = {"organization_id": on_wire(Prefix.ORGANIZATION, acme.id), "kind": "credit", "amount_usd": "1"}
    headers = {"Idempotency-Key": "formula"}
    given = await operator.http.post(
        "/v1/finance/transactions", json=body | {"reason": formula}, headers=headers
    )
    assert given.status_code == 201, given.text
    await acme.lease(labels={"team": formula})
    await stage.play(60)
    await stage.play(3_700, step=600)
    read = [
        list(csv.DictReader(io.StringIO((await acme.http.get(path)).text)))
        for path in ("/v1/balance/entries.csv", "/v1/usage.csv")
    ]
    entries, charges = read
    assert [row["reason"] for row in entries if row["kind"] == "credit"] == [f"'{formula}"]
    assert {row["amount_usd"][0] for row in entries if row["kind"] == "usage"} == {"-"}, "a number stays one"
    assert charges, "something was used"
    assert all(row["labels"].startswith("{") and formula not in row["lease_name"] for row in charges)
