"""Suppliers' invoices over HTTP: what finance imports, and how it matches our records and the bills."""

from typing import Any

import pytest

from control_plane.domain.money import Nano, usd
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PATH, MATCH, MARGIN = "/v1/finance/supplier-invoices", "/v1/finance/match", "/v1/finance/margin"
HEADER = "machine,from,to,quantity,unit,amount,currency\n"


async def _read(finance: Tenant, path: str, **params: str) -> Any:
    answer = await finance.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _import(finance: Tenant, month: str, csv: str, provider: str = "fake") -> Any:
    return await finance.http.post(PATH, json={"provider": provider, "period": month, "csv": csv})


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

    wrong = HEADER + line(refs[0], 3 * cost) + line("fake-lost", 5_000_000_000)
    await _import(operator, month, wrong)
    found = await _read(operator, MATCH, month=month)
    assert (found["matched"], found["open_count"], found["machines_count"]) == (False, 3, 3)
    words = {machine["reference"]: machine["differences"][-1]["word"] for machine in found["machines"]}
    assert words == {refs[0]: "amount_differs", refs[1]: "not_on_theirs", "fake-lost": "not_on_our_records"}
    listed = (await _read(operator, PATH))["items"]
    assert [one["amount"]["nano"] for one in listed] == [3 * cost + 5_000_000_000, cost]


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
