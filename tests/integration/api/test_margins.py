"""Margins over HTTP: what was charged, what providers bill, and nothing of it for customers."""

from typing import Any

import pytest
from sqlalchemy import text

from control_plane.domain.ids import Prefix, launch_key, on_wire
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.world import uuid7
from providers.base import Needed
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.support import pools
from tests.support.promises import put_terms_in_force
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
PATH = "/v1/finance/margin"
# The fake provider bills from the order on, in seconds.
_WAITED = text("""
SELECT m.id, CAST(floor(extract(epoch FROM coalesce(c.claimed_at, :now) - m.asked_at)) AS bigint) AS seconds
FROM machines m LEFT JOIN claims c ON c.machine_id = m.id WHERE m.purpose = 'pool'
""")
_CHARGED = text("SELECT sum(amount_nano)::bigint AS nano FROM charges")
_HOURLY = 2_190_000_000
"""What the fake provider bills for a machine with one GPU."""
_CHILD_HOURLY = 10_000_000
"""What it bills for a volume."""


async def _read(finance: Tenant, **params: str) -> Any:
    answer = await finance.http.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_month_adds_up_to_the_nano_dollar_by_whatever_it_is_read(
    stage: Stage, operator: Tenant
) -> None:
    first, second = await stage.organization(), await stage.organization()
    leases = [
        await stage.lease(owner, name=f"l{number}") for number, owner in enumerate((first, first, second))
    ]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(3_600, step=300)
    await stage.release(leases[0])
    await stage.play(120, step=20)
    async with stage.db.reading() as connection:
        [charged] = await rows(connection, _CHARGED)

    by_lease = await _read(operator, by="lease")
    total = by_lease["total"]
    assert (by_lease["machines"], total["revenue"]["nano"]) == (3, charged.nano)
    assert total["margin"]["nano"] == charged.nano - total["cost"]["nano"]
    assert 0 < total["cost"]["nano"] < 3 * 2 * _HOURLY
    assert [line["key"] is None for line in by_lease["lines"]] == [False, False, False, True]
    unsold = by_lease["lines"][-1]["amounts"]
    assert unsold["cost"] == unsold["unsold_cost"] == total["unsold_cost"]
    assert 0 < unsold["cost"]["nano"] < _HOURLY * 120 / 3_600, "from its release to the evidence of its end"

    for by, names in (
        ("provider", ["fake"]),
        ("sku", ["h100x1", "unsold time"]),
        ("organization", None),
    ):
        found = await _read(operator, by=by, month=by_lease["month"])
        assert found["total"] == total, by
        for amount in ("revenue", "cost", "unsold_cost", "margin"):
            assert sum(line["amounts"][amount]["nano"] for line in found["lines"]) == total[amount]["nano"]
        assert names is None or [line["name"] for line in found["lines"]] == names
    one = await _read(operator, by="lease", lines="1")
    assert (one["others_count"], len(one["lines"]), one["total"]) == (2, 2, total)
    parts = [one["others"], *(line["amounts"] for line in one["lines"])]
    assert sum(part["cost"]["nano"] for part in parts) == total["cost"]["nano"]


async def test_what_warm_pools_cost_belongs_to_the_service_level_that_asked_for_it(
    stage: Stage, operator: Tenant
) -> None:
    await put_terms_in_force(stage)
    organization = await stage.organization()
    claimed, waits = await pools.waiting(stage, 2)
    lease = await stage.lease(organization, CapacityRequest("h100x1", sla=SlaTier.GOLD))
    (spare,) = await pools.waiting(stage, reserved_for=lease.id)
    await stage.run("place_leases")
    assert [machine.id for machine in await stage.machines(lease)] == [spare]
    stage.clock.advance(1_800)
    other = await stage.lease(organization, CapacityRequest("h100x1", sla=SlaTier.SILVER))
    await stage.run("place_leases")
    assert [machine.id for machine in await stage.machines(other)] == [claimed]
    async with stage.db.reading() as connection:
        found = await rows(connection, _WAITED, now=stage.clock.now())
    seconds = {row.id: row.seconds for row in found}

    margin = await _read(operator, by="sla")
    idle = {part["sla"]: part["cost"]["nano"] for part in margin["idle"]}
    for level, machine in (("gold", spare), ("silver", claimed), (None, waits)):
        second = _HOURLY / 3_600
        assert idle[level] == pytest.approx(second * seconds[machine], abs=1.01 * second), level
    lines = {line["name"]: line["amounts"] for line in margin["lines"]}
    for level, name in (("gold", "gold"), ("silver", "silver"), (None, "warm pools")):
        assert lines[name]["idle_cost"]["nano"] == lines[name]["unsold_cost"]["nano"] == idle[level]
    total = margin["total"]
    assert total["idle_cost"]["nano"] == sum(idle.values()) == total["unsold_cost"]["nano"]

    by_sku = await _read(operator, by="sku")
    assert (by_sku["total"], by_sku["idle"]) == (total, margin["idle"])
    assert {line["name"] for line in by_sku["lines"]} == {
        "h100x1",
        "warm pools",
        "warm pools, gold",
        "warm pools, silver",
    }
    (by_provider,) = (await _read(operator, by="provider"))["lines"]
    assert by_provider["amounts"] == total


async def test_what_was_left_behind_is_a_line_of_its_own_and_says_whose_it_was(
    stage: Stage, operator: Tenant
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=90)
    (machine,) = await stage.machines(lease)
    stage.cloud.plant_child(machine.launch_key, "volume", Needed.WHILE_IT_EXISTS)
    stranger = launch_key(stage.world.installation, uuid7())
    stage.cloud.plant_child(stranger, "volume", Needed.WHILE_IT_EXISTS)
    await stage.release(lease)
    await stage.play(3_600, step=120)
    found = await _read(operator, by="lease")
    total = found["total"]
    assert found["left_behind_count"] == 2
    unrecorded, left = sorted(found["left_behind"], key=lambda each: each["cost"]["nano"], reverse=True)
    assert (unrecorded["machine_id"], unrecorded["lease"], unrecorded["until"]) == (None, None, None)
    assert left["machine_id"] == on_wire(Prefix.MACHINE, machine.id)
    assert left["lease_id"] == on_wire(Prefix.LEASE, lease.id)
    assert left["until"] is not None
    cost = total["left_behind_cost"]["nano"]
    assert cost == left["cost"]["nano"] + unrecorded["cost"]["nano"]
    assert unrecorded["cost"]["nano"] == pytest.approx(_CHILD_HOURLY, rel=0.05)
    assert _CHILD_HOURLY * 600 / 3_600 < left["cost"]["nano"] < _CHILD_HOURLY * 2_000 / 3_600
    assert found["lines"][-1]["name"] == "left behind"
    assert found["lines"][-1]["amounts"]["cost"]["nano"] == cost
    for by in ("provider", "sku", "organization", "sla"):
        other = await _read(operator, by=by)
        assert other["total"] == total
        assert sum(line["amounts"]["left_behind_cost"]["nano"] for line in other["lines"]) == cost
    assert (await _read(operator, lines="1"))["left_behind"] == [unrecorded]


async def test_a_month_that_has_not_begun_has_no_margin_and_one_without_machines_has_none(
    stage: Stage, operator: Tenant
) -> None:
    hold(await operator.http.get(PATH, params={"month": "2031-01"}), "period_in_future")
    empty = await _read(operator, month="2026-01")
    assert (empty["machines"], empty["lines"], empty["total"]["margin_percent"]) == (0, [], None)
