"""Repairs over HTTP: what operators read of each, and what they can send to the provider of the machine."""

import pytest

from control_plane.domain.lease import Lease
from data_plane.documents.sample import Gpu, Xid
from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.scenario.test_health import machine_of, reports
from tests.support.faults import GOOD, LOST, shows
from tests.support.ready import ready_leases
from tests.support.stage import Stage

pytestmark = pytest.mark.database
REPAIRS = "/v1/operator/repairs"


async def _gpu_fell_off(stage: Stage, lease: Lease) -> str:
    """The only GPU of a lease's machine is lost, which we see ourselves. Returns the id of the machine."""
    machine = await machine_of(stage, lease)
    shows(stage, machine, LOST)
    xid = Xid("xid", 79, GOOD.bus_id, int(stage.clock.now().timestamp()) - 1)
    await reports(stage, lease, Gpu(0, bus_id=GOOD.bus_id, lost=True), xids=(xid,))
    await stage.play(60, step=5)
    return f"mc_{machine.id.hex}"


async def test_a_repair_has_a_text_for_the_provider_that_names_the_machine_and_the_evidence(
    stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine_id = await _gpu_fell_off(stage, lease)
    machine = await machine_of(stage, lease)
    (listed,) = (await operator.http.get(REPAIRS)).json()["items"]
    assert (listed["machine_id"], listed["closed_at"]) == (machine_id, None)

    answer = await operator.http.get(f"{REPAIRS}/{listed['id']}")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert shown["repair"] == listed
    assert shown["provider_ref"] == machine.provider_ref
    assert shown["account"] == machine.account
    (uuid,) = shown["gpu_uuids"]
    codes = {(fault["fault"], fault["gpu"], fault["gpu_uuid"], fault["xid"]) for fault in shown["faults"]}
    assert codes >= {("gpu_lost", 0, uuid, None), ("machine_error", 0, uuid, 79)}
    assert shown["changes"][0]["verdict_before"] == "healthy"
    assert any("next step: replace" in done["what"] for done in shown["done"])

    text = "\n".join(shown["ticket"])
    said = [machine.provider_ref, machine.account, uuid, "XID 79", "next step: replace", listed["id"]]
    assert [word for word in said if str(word) not in text] == []
    for private in (machine_id, f"le_{lease.id.hex}", f"org_{lease.organization_id.hex}", lease.name):
        assert private not in text

    hold(await acme.http.get(f"{REPAIRS}/{listed['id']}"), "permission_denied")
    hold(await operator.http.get(f"{REPAIRS}/rp_{'0' * 31}7"), "not_found")
    hold(await operator.http.get(f"{REPAIRS}/{machine_id}"), "not_found")


async def test_a_closed_repair_keeps_why_it_was_opened_and_is_found_by_its_machine(
    stage: Stage, operator: Tenant
) -> None:
    first, second = await ready_leases(stage, 2, seconds=60)
    machine = await machine_of(stage, first)
    await reports(stage, first, Gpu(0, rows_failed=True))
    await stage.run("judge_health")
    await stage.play(60, step=5)
    await _gpu_fell_off(stage, second)

    assert len((await operator.http.get(REPAIRS, params={"closed": "true"})).json()["items"]) == 2
    params = {"closed": "true", "machine": f"mc_{machine.id.hex}"}
    (closed,) = (await operator.http.get(REPAIRS, params=params)).json()["items"]
    assert (closed["outcome"], closed["verdict"]) == ("recovered", "healthy")
    assert closed["opened_verdict"] == "degraded"
    assert "as the machine itself says" in closed["opened_why"]
    assert (await operator.http.get(REPAIRS, params={"machine": f"mc_{machine.id.hex}"})).json()[
        "items"
    ] == []

    shown = (await operator.http.get(f"{REPAIRS}/{closed['id']}")).json()
    assert [change["verdict"] for change in shown["changes"]] == ["degraded", "healthy"]
    assert [fault["fault"] for fault in shown["faults"]] == ["memory_broken"]
    assert any(line.startswith("Closed") for line in shown["ticket"])


async def test_a_machine_that_is_out_is_not_silently_kept_out_for_another_reason_or_time(
    stage: Stage, operator: Tenant
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    out = f"/v1/operator/machines/mc_{machine.id.hex}/maintenance"
    fan = {"why": "fan", "planned_at": "2026-12-01T06:00:00Z"}
    first = await operator.http.post(out, json=fan)
    assert first.status_code == 201, first.text
    assert (await operator.http.post(out, json=fan)).json() == first.json()
    for other in ({**fan, "planned_at": "2026-12-02T06:00:00Z"}, {**fan, "why": "a disk"}, {"why": "fan"}):
        refused = await operator.http.post(out, json=other)
        hold(refused, "state_conflict")
        assert "It is out already for work at 2026-12-01 06:00 UTC (fan)" in refused.json()["detail"]
    await operator.http.post(f"/v1/operator/machines/mc_{machine.id.hex}/return")
    assert (await operator.http.post(out, json={"why": "a disk"})).status_code == 201
