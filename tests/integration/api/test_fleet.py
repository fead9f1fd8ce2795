"""The fleet and the liabilities over the API: every machine of everybody, and nothing of it for customers."""

import math
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from control_plane.db import fleet
from control_plane.db.engine import Database
from control_plane.db.fleet import FleetFilter
from control_plane.domain.child import Needed
from control_plane.domain.ids import launch_key
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano, accrued
from control_plane.domain.power_action import PowerAction
from control_plane.domain.request import CapacityRequest
from control_plane.world import uuid7
from data_plane.simulation.collector import FakeCollector
from providers.faults import Fault
from tests.integration.api.conftest import Api, Tenant
from tests.support.power import asked
from tests.support.stage import Stage

pytestmark = pytest.mark.database
MACHINES, TOTALS, LIABILITIES = (
    "/v1/operator/fleet/machines",
    "/v1/operator/fleet",
    "/v1/operator/liabilities",
)
HOURLY = Nano(2_190_000_000)
"""What the fake provider charges for a machine with one GPU."""
VOLUME_NANO_PER_HOUR = Nano(10_000_000)


async def _get(operator: Tenant, path: str, **params: str) -> Any:
    answer = await operator.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _health(operator: Tenant, **params: str) -> dict[str, str]:
    """The verdict or, without one, the state of each machine, and what stands beside it."""
    items = (await _get(operator, MACHINES, **params))["items"]
    return {
        machine["id"]: " ".join(
            [
                machine["verdict"] or machine["state"],
                *(word for word in ("silent", "stopped") if machine[word]),
            ]
        )
        for machine in items
    }


async def _id(stage: Stage, lease: Lease) -> str:
    return f"mc_{(await stage.machines(lease))[-1].id.hex}"


async def test_every_machine_shows_its_health_its_holder_and_its_cost_and_is_counted(
    api: Api, stage: Stage, operator: Tenant, api_db: Database
) -> None:
    first, second = await stage.organization(), await stage.organization()
    leases = [
        await stage.lease(owner, name=f"l{n}") for n, owner in enumerate((first, first, second, second))
    ]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(60, step=10)
    good, missing, silent, ending = leases
    refs = {lease.id: (await stage.machines(lease))[-1] for lease in leases}
    hidden, collector = refs[missing.id].provider_ref, stage.world.collector
    assert hidden is not None
    assert isinstance(collector, FakeCollector)
    stage.cloud.hide(hidden)
    collector.silent.add(refs[silent.id].address or "")
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    await stage.release(ending)
    starting = await stage.lease(first, CapacityRequest("h100x1"))
    await stage.play(330, step=30, without=["bootstrap_machines"])

    health = await _health(operator)
    expected = zip(
        (good, missing, silent, ending, starting),
        (
            ("healthy", {}),
            ("lost", {"verdict": "lost"}),
            ("healthy silent", {"silent": "true"}),
            ("terminating", {"state": "terminating"}),
            ("bootstrapping", {"state": "bootstrapping"}),
        ),
        strict=True,
    )
    for lease, (words, only) in expected:
        assert health[await _id(stage, lease)] == words, words
        if only:
            assert list(await _health(operator, **only)) == [await _id(stage, lease)]
    assert set(await _health(operator, verdict="healthy")) == {
        await _id(stage, good),
        await _id(stage, silent),
    }
    assert list(health) == sorted(health, reverse=True), "newest first"
    id_of_good = await _id(stage, good)
    healthy = (await _get(operator, MACHINES, verdict="healthy"))["items"]
    held = next(machine for machine in healthy if machine["id"] == id_of_good)
    assert (held["organization_id"], held["lease_id"], held["lease"], held["project"]) == (
        f"org_{first.hex}",
        f"le_{good.id.hex}",
        "l0",
        "default",
    )
    assert (held["cost_per_hour"]["nano"], held["gpu_count"], held["state"]) == (HOURLY, 1, "verified")
    ordered_at = refs[good.id].asked_at
    assert ordered_at is not None
    seconds = math.ceil((stage.clock.now() - ordered_at).total_seconds())
    assert held["cost"]["nano"] == accrued(HOURLY, seconds)
    (free,) = (await _get(operator, MACHINES, state="terminating"))["items"]
    assert (free["organization"], free["lease_id"], free["verdict"]) == (None, None, None)

    for params, count in (
        ({}, 5),
        ({"organization": f"org_{second.hex}"}, 1),
        ({"organization": f"org_{first.hex}"}, 3),
        ({"project": f"prj_{good.project_id.hex}"}, 3),
        ({"provider": "fake", "region": "eu", "gpu_model": "h100-sxm-80gb", "account": "fake"}, 5),
        ({"provider": "other"}, 0),
        ({"region": "us"}, 0),
        ({"region": "eu-central"}, 5),
        ({"gpu_model": "b200-sxm-180gb"}, 0),
    ):
        assert len(await _health(operator, **params)) == count, params
        assert (await _get(operator, TOTALS, **params))["total"]["all"]["machines"] == count, params
    pages: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await _get(operator, MACHINES, limit="2", **cursor)
        pages += [machine["id"] for machine in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert pages == list(health)

    totals = await _get(operator, TOTALS)
    (line,) = totals["lines"]
    assert (line["provider"], line["gpu_model"]) == ("fake", "h100-sxm-80gb")
    counts = {word: line[word]["machines"] for word in ("all", "delivered", "healthy", "reserved", "active")}
    assert counts == {"all": 5, "delivered": 4, "healthy": 1, "reserved": 4, "active": 3}
    assert line["active"]["gpus"] == 3
    assert totals["total"]["cost_per_hour"]["nano"] == 5 * HOURLY

    await asked(stage, silent, PowerAction.STOP)
    await stage.play(60, step=10, without=["bootstrap_machines"])
    assert (await _health(operator, verdict="healthy"))[await _id(stage, silent)] == "healthy stopped"
    assert await _health(operator, silent="true") == {}
    assert (await _get(operator, TOTALS))["total"]["healthy"]["machines"] == 2, (
        "it is as its customer wants it"
    )

    for tenant in (first, UUID(int=1)):
        async with api_db.reading(tenant) as connection:
            now = stage.clock.now()
            assert await fleet.page(connection, FleetFilter(), after=None, limit=9, now=now) == [], (
                "not theirs"
            )
            assert await fleet.totals(connection, FleetFilter(), now=now) == []
    fails = refs[good.id].provider_ref
    assert fails is not None
    for failed, word, native in ((True, "lost", "failed"), (False, "healthy", "running")):
        stage.cloud.machines[fails].failed = failed
        stage.clock.advance(2)
        for loop in ("observe_machines", "judge_health"):
            await stage.run(loop)
        shown = {
            machine["id"]: machine for machine in (await _get(operator, MACHINES, verdict=word))["items"]
        }
        assert shown[await _id(stage, good)]["native_status"] == native
    stage.cloud.show(hidden)
    stage.cloud.faults.clear()
    await stage.finish()
    assert await _health(operator) == {}


async def test_what_costs_money_for_nobody_is_listed_until_it_is_gone_with_its_dollars(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    kept, released = [await stage.lease(await stage.organization()) for _ in range(2)]
    for lease in (kept, released):
        await stage.play_until(lease, "ready", seconds_max=90)
    assert (await _get(operator, LIABILITIES))["items"] == []
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    await stage.release(released)
    let_go = stage.clock.now()
    orphan = stage.plant_unrecorded(is_sold=False)
    await stage.play(3_600, step=300)
    listed = await _get(operator, LIABILITIES)
    (machine, stray) = listed["items"]
    assert (machine["kind"], machine["machine_id"]) == ("machine", await _id(stage, released))
    assert machine["cost"]["nano"] == accrued(HOURLY, int((stage.clock.now() - let_go).total_seconds()))
    assert machine["tries"] > 0
    assert machine["why"].startswith("The provider refused to terminate it")
    assert (stray["kind"], stray["provider_ref"], stray["cost"]) == ("orphan", orphan.provider_ref, None)
    assert (listed["count"], listed["unpriced"], listed["cost"]) == (2, 1, machine["cost"])
    first = await _get(operator, LIABILITIES, limit="1")
    second = await _get(operator, LIABILITIES, limit="1", cursor=first["next_cursor"])
    assert [*first["items"], *second["items"]] == listed["items"]
    refused = await operator.http.post(f"{LIABILITIES}/{machine['id']}/end", json={"why": "4711"})
    assert (refused.status_code, refused.json()["code"]) == (409, "liability_terminating")
    assert "The provider refused to terminate it" in refused.json()["detail"]
    decided = await operator.http.post(f"{LIABILITIES}/{stray['id']}/end", json={"why": "4711"})
    assert (decided.status_code, decided.json()["decision"]["why"]) == (202, "4711")
    stage.cloud.faults.clear()
    await stage.play(900, step=60)
    assert orphan.ended_at is not None
    assert await _get(operator, LIABILITIES) == {
        "items": [],
        "count": 0,
        "unpriced": 0,
        "cost_per_hour": {"usd": "0.000000000", "nano": 0},
        "cost": {"usd": "0.000000000", "nano": 0},
        "next_cursor": None,
    }
    await stage.finish()


async def test_what_a_launch_left_is_a_liability_with_its_dollars_and_failures_until_it_is_gone(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    stage.cloud.settings = replace(stage.cloud.settings, makes_children=True)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(180, step=60)
    assert (await _get(operator, LIABILITIES))["items"] == [], "the machine needs its volume"
    await stage.release(lease)
    for _ in range(16):
        stage.cloud.faults.script("children", Fault.NONE, Fault.ORDER_REFUSED)
        await stage.play(60, step=60)
    (volume,) = (await _get(operator, LIABILITIES))["items"]
    assert (volume["kind"], volume["child_kind"], volume["machine_id"]) == (
        "child",
        "volume",
        await _id(stage, lease),
    )
    assert volume["cost_per_hour"]["nano"] == VOLUME_NANO_PER_HOUR
    assert 0 < volume["cost"]["nano"] < VOLUME_NANO_PER_HOUR
    assert volume["tries"] >= 2
    assert volume["why"].endswith("The last try failed: OrderRefused: the volume is in use")
    unknown = launch_key(stage.world.installation, uuid7())
    stage.cloud.plant_child(unknown, "volume", Needed.WHILE_IT_EXISTS)
    stage.cloud.faults.clear()
    await stage.play(180, step=60)
    (strange,) = (await _get(operator, LIABILITIES))["items"]
    assert (strange["machine_id"], strange["tries"]) == (None, 0)
    assert strange["why"].startswith("No record of this account has its launch key")
    path = f"{LIABILITIES}/{strange['id']}"
    answer = await operator.http.post(f"{path}/end", json={"why": "ticket 4711"})
    assert answer.status_code == 202, answer.text
    ended = answer.json()
    assert (ended["id"], ended["decision"]["why"]) == (strange["id"], "ticket 4711")
    assert (await operator.http.get(path)).json() == ended
    await stage.play(180, step=60)
    assert (await _get(operator, LIABILITIES))["items"] == []
    gone = await operator.http.get(path)
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert (await operator.http.post(f"{path}/end", json={"why": "again"})).status_code == 404
    await stage.finish()
