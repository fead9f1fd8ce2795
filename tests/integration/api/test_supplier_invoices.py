"""Suppliers' invoices over HTTP: what finance imports, and how it matches our records and the bills."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from control_plane.api.identifiers import read_id
from control_plane.db import ledger
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import Nano, usd
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import supplier_invoices
from control_plane.services.supplier_invoices import Deciding
from control_plane.world import uuid7
from providers.base import Needed
from reconciler.loops.housekeeping import prune_records
from reconciler.loops.money import reconcile_periods
from reconciler.world import World
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PATH, MATCH, MARGIN = "/v1/finance/supplier-invoices", "/v1/finance/match", "/v1/finance/margin"
UPLOADS = "/v1/finance/supplier-uploads"
HEADER = "machine,from,to,quantity,unit,amount,currency\n"


async def _read(finance: Tenant, path: str, **params: str) -> Any:
    answer = await finance.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _import(
    finance: Tenant, month: str, csv: str, provider: str = "fake", *, lines_per_part: int = 2
) -> Any:
    """Upload a file in parts and import it. Returns the first answer that refuses, or the last one."""
    answer = await finance.http.post(UPLOADS, json={"provider": provider, "period": month})
    if answer.status_code != 201:
        return answer
    upload, lines = answer.json()["id"], csv.splitlines(keepends=True)
    parts = ["".join(lines[start : start + lines_per_part]) for start in range(0, len(lines), lines_per_part)]
    for number, part in enumerate(parts, start=1):
        body = {"number": number, "first_line": answer.json()["lines"] + 1, "csv": part}
        answer = await finance.http.post(f"{UPLOADS}/{upload}/parts", json=body)
        if answer.status_code != 201:
            return answer
    return await finance.http.post(PATH, json={"upload_id": upload, "parts": len(parts)})


async def _decide(finance: Tenant, invoice: str, what: str, **body: str) -> Any:
    headers = {"Idempotency-Key": uuid7().hex}
    return await finance.http.post(f"{PATH}/{invoice}/{what}", json=body, headers=headers)


async def _posted(stage: Stage) -> tuple[int, int]:
    """What the ledger has as cost, and what it has as owed."""
    async with stage.db.reading() as connection:
        totals = await ledger.totals(connection)
    return -totals.get(AccountKind.PROVIDER_COST, Nano(0)), totals.get(AccountKind.PAYABLE, Nano(0))


async def _reconciled(finance: Tenant, stage: Stage, month: str) -> dict[str, Any]:
    asked = (await finance.http.post("/v1/finance/reconciliations", json={"period": month})).json()
    while (await reconcile_periods.activate(World(db=stage.db, now=stage.clock.now, new_id=uuid7))).more:
        pass
    return dict(await _read(finance, f"/v1/finance/reconciliations/{asked['id']}"))


async def test_a_month_matches_when_the_invoice_follows_from_the_rules_and_says_where_it_does_not(
    stage: Stage, operator: Tenant
) -> None:
    owner = await stage.organization()
    leases = [await stage.lease(owner, name=f"l{number}") for number in range(2)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(3_600, step=300)
    for lease in leases:
        await stage.release(lease)
    await stage.play(120, step=20)
    refs = [(await stage.machines(lease))[-1].provider_ref for lease in leases]
    margin = await _read(operator, MARGIN)
    month, cost = margin["month"], margin["total"]["cost"]["nano"]

    missing = await _read(operator, MATCH, month=month)
    assert (missing["matched"], missing["missing_invoices"], missing["machines_count"]) == (
        False,
        ["fake"],
        0,
    )

    def line(ref: str | None, nano: int) -> str:
        return f"{ref},{month}-20T12:00:00Z,{month}-20T13:00:00Z,1,piece,{usd(Nano(nano))},USD\n"

    half = cost // 2
    right = HEADER + line(refs[0], half) + line(refs[1], cost - half)
    imported = (await _import(operator, month, right)).json()
    assert (imported["lines"], imported["amount"]["nano"]) == (2, cost)
    assert (await _import(operator, month, right)).json() == imported, "the same file again"
    found = await _read(operator, MATCH, month=month, provider="fake")
    assert (found["matched"], found["open_count"], found["machines_count"]) == (True, 0, 2)
    assert found["billed"] == margin["total"]["revenue"]
    assert (found["expected"]["nano"], found["invoiced"]["nano"]) == (cost, cost)
    steps = {step["word"]: step["amount"]["nano"] for step in found["differences"]}
    assert found["used"]["nano"] + sum(steps.values()) == cost
    assert steps["before_ready"] > 0
    assert steps["unsold_time"] == margin["total"]["unsold_cost"]["nano"]

    posted = (await _decide(operator, imported["id"], "postings")).json()
    assert (posted["state"], posted["reason"]) == ("posted", "matched")
    assert (await _decide(operator, imported["id"], "postings")).json() == posted, "it is posted once"
    assert await _posted(stage) == (cost, cost)

    wrong = HEADER + line(refs[0], 3 * cost) + line("fake-lost", 5_000_000_000)
    other = (await _import(operator, month, wrong)).json()
    hold(await _decide(operator, imported["id"], "postings"), "supplier_invoice_replaced")
    hold(await _decide(operator, other["id"], "postings"), "supplier_invoice_differs")
    found = await _read(operator, MATCH, month=month)
    assert (found["matched"], found["open_count"], found["machines_count"]) == (False, 3, 3)
    words = {machine["reference"]: machine["differences"][-1]["word"] for machine in found["machines"]}
    assert words == {refs[0]: "amount_differs", refs[1]: "not_on_theirs", "fake-lost": "not_on_our_records"}
    listed = (await _read(operator, PATH))["items"]
    assert [one["amount"]["nano"] for one in listed] == [3 * cost + 5_000_000_000, cost]
    assert [one["state"] for one in listed] == ["imported", "posted"]

    # It is accepted all the same, and posts what it differs by; then the supplier takes it back.
    amount = 3 * cost + 5_000_000_000
    decided = (await _decide(operator, other["id"], "postings", reason="ticket 4711")).json()
    assert (decided["state"], decided["reason"]) == ("posted", "ticket 4711")
    assert await _posted(stage) == (amount, amount)
    await _hold_links(operator, stage, month, amount)
    voided = (await _decide(operator, other["id"], "voids", reason="withdrawn")).json()
    assert voided["state"] == "voided"
    assert await _posted(stage) == (0, 0)
    await _hold_links(operator, stage, month, 0)
    hold(await _decide(operator, other["id"], "postings"), "supplier_invoice_void")
    assert (await _read(operator, MATCH, month=month))["missing_invoices"] == ["fake"]
    again = (await _import(operator, month, wrong)).json()
    assert again["id"] != other["id"], "what is void can be imported again"
    entries = await _read(operator, "/v1/finance/entries", account="provider_cost")
    assert [entry["amount"]["nano"] for entry in entries["items"]] == [-amount, amount - cost, cost]
    assert {entry["kind"] for entry in entries["items"]} == {"supplier_invoice"}


async def _hold_links(finance: Tenant, stage: Stage, month: str, amount: int) -> None:
    """The month reconciles, with this cost."""
    found = await _reconciled(finance, stage, month)
    assert found["state"] == "reconciled", found
    links = {link["link"]: (link["before"]["nano"], link["after"]["nano"]) for link in found["links"]}
    assert links["supplier_posted"] == links["supplier_owed"] == (amount, amount)


async def test_a_volume_that_was_left_behind_is_matched_with_the_suppliers_line_for_it(
    stage: Stage, operator: Tenant
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    volume = stage.cloud.plant_child(machine.launch_key, "volume", Needed.WHILE_IT_EXISTS)
    await stage.release(lease)
    await stage.play(3_600, step=120)
    margin = await _read(operator, MARGIN)
    month, total = margin["month"], margin["total"]
    left = total["left_behind_cost"]["nano"]
    assert left > 0

    def line(ref: str | None, nano: int) -> str:
        return f"{ref},{month}-20T12:00:00Z,{month}-20T13:00:00Z,1,piece,{usd(Nano(nano))},USD\n"

    ours = HEADER + line(machine.provider_ref, total["cost"]["nano"] - left)
    assert (await _import(operator, month, ours + line(volume.ref, left))).status_code == 201
    found = await _read(operator, MATCH, month=month)
    assert (found["matched"], found["machines_count"], found["expected"]) == (True, 2, total["cost"])
    (matched,) = [each for each in found["machines"] if each["child_kind"]]
    assert (matched["reference"], matched["child_kind"]) == (volume.ref, "volume")
    assert matched["machine_id"] == on_wire(Prefix.MACHINE, machine.id)
    assert matched["differences"] == [{"word": "left_behind", "amount": {**total["left_behind_cost"]}}]

    # Much more than it can have cost, and nothing of what it must have.
    dear = ours + line(volume.ref, left + 5_000_000_000)
    assert (await _import(operator, month, dear)).status_code == 201
    found = await _read(operator, MATCH, month=month)
    assert (found["matched"], found["open_count"]) == (False, 1)
    assert found["machines"][0]["differences"][-1]["word"] == "amount_differs"


async def test_a_file_with_a_wrong_line_stores_nothing(operator: Tenant, stage: Stage) -> None:
    line = "i-1,2026-11-20T12:00:00Z,2026-11-20T13:00:00Z,1,hour,2.19,USD\n"
    for month, csv, provider, code in (
        ("2026-11", HEADER + line + line.replace("USD", "EUR"), "fake", "currency_not_supported"),
        ("2026-11", HEADER + line + line.replace("2.19", "a lot"), "fake", "supplier_invoice_invalid"),
        ("2026-11", HEADER + line + line.replace("i-1", '"i-1'), "fake", "supplier_invoice_invalid"),
        ("2026-11", HEADER + line, "nobody", "not_found"),
        ("2031-01", HEADER + line, "fake", "period_in_future"),
    ):
        hold(await _import(operator, month, csv, provider), code)
    assert (await _read(operator, PATH))["items"] == []


async def test_a_cost_of_a_closed_month_is_booked_in_the_open_one_and_says_which_it_corrects(
    operator: Tenant, stage: Stage
) -> None:
    await operator.http.post("/v1/finance/periods/2026-10/close")
    line = "i-1,2026-10-20T12:00:00Z,2026-10-20T13:00:00Z,1,hour,2.19,USD\n"
    imported = (await _import(operator, "2026-10", HEADER + line)).json()
    assert (await _decide(operator, imported["id"], "postings", reason="ticket")).status_code == 201
    (entry,) = (await _read(operator, "/v1/finance/entries", account="payable"))["items"]
    assert (entry["period"], entry["effective_at"]) == ("2026-11", "2026-10-31T23:59:59Z")
    assert (entry["amount"]["nano"], entry["reason"]) == (2_190_000_000, "fake, 2026-10, posted: ticket")


async def test_a_large_file_comes_in_parts_and_counts_when_all_of_them_are_there(
    operator: Tenant, stage: Stage
) -> None:
    lines = [
        f"i-{number},2026-11-20T12:00:00Z,2026-11-20T13:00:00Z,1,hour,2.19,USD\n" for number in range(3_000)
    ]
    begun = (await operator.http.post(UPLOADS, json={"provider": "fake", "period": "2026-11"})).json()
    parts = [
        HEADER + "".join(lines[:500]),
        *("".join(lines[start : start + 500]) for start in range(500, 3_000, 500)),
    ]
    for number in (1, 2, 3, 5, 6, 4, 4):
        first = 1 if number == 1 else 500 * (number - 1) + 2
        body = {"number": number, "first_line": first, "csv": parts[number - 1]}
        answer = await operator.http.post(f"{UPLOADS}/{begun['id']}/parts", json=body)
        assert answer.status_code == 201, answer.text
        if number == 6:
            early = {"upload_id": begun["id"], "parts": 6}
            hold(await operator.http.post(PATH, json=early), "upload_incomplete")
            assert (await _read(operator, PATH))["items"] == []
    assert (answer.json()["parts"], answer.json()["lines"]) == (6, 3_001)
    imported = (await operator.http.post(PATH, json={"upload_id": begun["id"], "parts": 6})).json()
    assert (imported["lines"], imported["amount"]["nano"]) == (3_000, 3_000 * 2_190_000_000)
    assert imported["sha256"] == hashlib.sha256((HEADER + "".join(lines)).encode()).hexdigest()
    hold(await operator.http.post(PATH, json={"upload_id": begun["id"], "parts": 6}), "not_found")
    found = await _read(operator, MATCH, month="2026-11")
    assert (found["machines_count"], found["invoiced"]["nano"]) == (3_000, imported["amount"]["nano"])


async def test_a_file_that_is_never_imported_is_dropped_after_a_day(operator: Tenant, stage: Stage) -> None:
    begun = (await operator.http.post(UPLOADS, json={"provider": "fake", "period": "2026-11"})).json()
    stage.clock.advance(25 * 3_600)
    await prune_records.activate(World(db=stage.db, now=stage.clock.now, new_id=uuid7))
    body = {"number": 1, "first_line": 1, "csv": HEADER}
    hold(await operator.http.post(f"{UPLOADS}/{begun['id']}/parts", json=body), "not_found")


async def test_the_match_of_a_post_is_read_by_its_own_transaction(stage: Stage, operator: Tenant) -> None:
    """On a second connection, the first one would idle, and PostgreSQL ends a transaction that idles for 30 s."""
    month = f"{stage.clock.now():%Y-%m}"
    line = f"i-unknown,{month}-01T00:00:00Z,{month}-01T01:00:00Z,1,piece,1.00,USD\n"
    imported = (await _import(operator, month, HEADER + line)).json()
    invoice_id = read_id(Prefix.SUPPLIER_INVOICE, imported["id"])
    no_second_connection: Any = None
    world = replace(stage.api, db=no_second_connection)
    deciding = Deciding(invoice_id, None, "user", operator.id)
    async with stage.api.db.transaction(operator.id) as connection:
        refused = await supplier_invoices.post(connection, world, deciding)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SUPPLIER_INVOICE_DIFFERS
