"""Projects over HTTP: made, listed, named by leases, and found again on what leases cost."""

import csv
import io
import json

import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _create(tenant: Tenant, name: str) -> str:
    answer = await tenant.http.post("/v1/projects", json={"name": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def _leases(tenant: Tenant, project: str) -> list[str]:
    answer = await tenant.http.get(f"/v1/leases?project={project}")
    return [lease["id"] for lease in answer.json()["items"]]


async def test_projects_are_made_with_a_name_of_their_own_and_paged_oldest_first(acme: Tenant) -> None:
    made = [await _create(acme, name) for name in ("research", "serving", "A b.c@d:e+f-g")]
    assert all(project.startswith("prj_") for project in made)
    hold(await acme.http.post("/v1/projects", json={"name": "research"}), "name_taken")
    hold(await acme.http.post("/v1/projects", json={"name": "default"}), "name_taken")
    names: list[str] = []
    cursor = ""
    while True:
        page = (await acme.http.get(f"/v1/projects?limit=3{cursor}")).json()
        names += [project["name"] for project in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert names == ["default", "research", "serving", "A b.c@d:e+f-g"]


async def test_a_lease_belongs_to_the_project_that_it_names_or_to_the_default_one(acme: Tenant) -> None:
    research = await _create(acme, "research")
    unnamed, named = await acme.lease(), await acme.lease(project="research")
    shown = (await acme.http.get(f"/v1/leases/{named}")).json()
    assert (shown["project"], shown["project_id"]) == ("research", research)
    assert (await acme.http.get(f"/v1/leases/{unnamed}")).json()["project"] == "default"
    released = (await acme.http.post(f"/v1/leases/{named}/release")).json()
    assert (released["project"], released["project_id"]) == ("research", research)
    assert await _leases(acme, "research") == [named]
    assert await _leases(acme, "default") == [unnamed]
    assert await _leases(acme, "research&state=placing") == []


async def test_the_answer_to_a_new_lease_says_its_project(acme: Tenant) -> None:
    research = await _create(acme, "research")
    made = (
        await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [], "project": "research"})
    ).json()
    assert (made["project"], made["project_id"]) == ("research", research)


async def test_an_unknown_project_is_refused_and_not_an_empty_list(acme: Tenant) -> None:
    hold(await acme.http.get("/v1/leases?project=reserch"), "project_unknown")
    hold(
        await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [], "project": "reserch"}),
        "project_unknown",
    )
    assert (await acme.http.get("/v1/leases")).json()["items"] == []


async def test_another_organizations_project_is_unknown(
    acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    await _create(other, "secret")
    theirs = await other.lease(project="secret")
    for stranger in (acme, operator):
        hold(await stranger.http.get("/v1/leases?project=secret"), "project_unknown")
        order = {"sku": "h100x1", "ssh_key_ids": [], "project": "secret"}
        hold(await stranger.http.post("/v1/leases", json=order), "project_unknown")
        names = [one["name"] for one in (await stranger.http.get("/v1/projects")).json()["items"]]
        assert names == ["default"]
    # A project of the same name is another project.
    await _create(acme, "secret")
    assert await _leases(acme, "secret") == []
    assert await _leases(other, "secret") == [theirs]


async def test_usage_and_the_bill_say_project_and_machine(api: Api, stage: Stage, acme: Tenant) -> None:
    research = await _create(acme, "research")
    for project in ("default", "research"):
        await acme.lease(project=project, name=f"of {project}", labels={"team": 'vision, "eu"'})
    await stage.play(60)
    await stage.play(3_700, step=119)
    leases = {lease["id"]: lease for lease in (await acme.http.get("/v1/leases")).json()["items"]}

    rows = (await acme.http.get("/v1/usage")).json()["items"]
    assert {row["lease_name"]: row["project"] for row in rows} == {
        "of default": "default",
        "of research": "research",
    }
    for row in rows:
        lease = leases[row["lease_id"]]
        assert (row["project"], row["project_id"]) == (lease["project"], lease["project_id"])
        assert row["machine_id"] == lease["machine"]["machine_id"]
        assert (row["provider"], row["region"]) == (lease["machine"]["provider"], lease["machine"]["region"])
        assert (row["purchase"], row["price_book"]) == ("on_demand", 1)
        assert row["labels"] == {"team": 'vision, "eu"'}

    text = (await acme.http.get("/v1/usage.csv")).text
    known = ("project", "project_id", "machine_id", "provider", "region", "purchase", "price_book")
    assert text.splitlines()[0].endswith(
        ",amount_nano_usd,"
        + ",".join((*known, "labels", "node_pool", "unit", "stopped"))
        + ",gpu_model,gpu_count,organization_id,currency,sla,unused"
    )
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [{name: line[name] for name in known} for line in lines] == [
        {name: str(row[name]) for name in known} for row in rows
    ]
    assert [json.loads(line["labels"]) for line in lines] == [row["labels"] for row in rows]
    bill = (await acme.http.get("/v1/bill")).json()["lines"]
    assert {line["name"]: line["project"] for line in bill} == {
        "of default": "default",
        "of research": "research",
    }
    assert {line["project_id"] for line in bill if line["project"] == "research"} == {research}


async def test_a_project_is_named_by_its_name_or_its_id_everywhere(
    acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    research = await _create(acme, "research")
    lease = await acme.lease(project=research)
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["project"] == "research"
    for word in (research, "research"):
        assert await _leases(acme, word) == [lease], word
        assert (await acme.http.get(f"/v1/projects/{word}")).json()["id"] == research, word
    for word in ("reserch", "prj_", "prj_7", f"prj_{'0' * 32}", research.upper(), "prj_" + "g" * 32):
        for path in ("leases", "usage", "usage.csv", "bill"):
            answer = await acme.http.get(f"/v1/{path}", params={"project": word})
            hold(answer, "project_unknown")
            assert [error["field"] for error in answer.json()["errors"]] == ["project"], (path, word)
        order = {"sku": "h100x1", "project": word, "ssh_key_ids": []}
        hold(await acme.http.post("/v1/leases", json=order), "project_unknown")
        hold(await acme.http.get(f"/v1/projects/{word}"), "not_found")
        hold(await acme.http.post(f"/v1/projects/{word}/rename", json={"name": "new"}), "not_found")
    for stranger in (other, operator):
        hold(await stranger.http.get(f"/v1/leases?project={research}"), "project_unknown")
        hold(await stranger.http.get(f"/v1/bill?project={research}"), "project_unknown")
        hold(await stranger.http.get(f"/v1/projects/{research}"), "not_found")
        hold(await stranger.http.post(f"/v1/projects/{research}/rename", json={"name": "x"}), "not_found")


async def test_no_project_is_called_like_an_id(acme: Tenant) -> None:
    research = await _create(acme, "research")
    for name in ("prj_", "prj_research", research):
        hold(await acme.http.post("/v1/projects", json={"name": name}), "name_reserved")
        hold(await acme.http.post("/v1/projects/research/rename", json={"name": name}), "name_reserved")
    await _create(acme, "prjs")


async def test_a_renamed_project_keeps_its_id_and_its_leases_and_its_old_name_is_free(acme: Tenant) -> None:
    research = await _create(acme, "research")
    lease = await acme.lease(project="research")
    for word, name in (("research", "training"), (research, "tuning"), (research, "tuning")):
        renamed = await acme.http.post(f"/v1/projects/{word}/rename", json={"name": name})
        assert (renamed.status_code, renamed.json()["id"], renamed.json()["name"]) == (200, research, name)
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["project"] == "tuning"
    assert await _leases(acme, "tuning") == [lease]
    hold(await acme.http.get("/v1/leases?project=research"), "project_unknown")
    await _create(acme, "research")
    hold(await acme.http.post("/v1/projects/tuning/rename", json={"name": "research"}), "name_taken")
    assert (await acme.http.get(f"/v1/projects/{research}")).json()["name"] == "tuning"


async def test_the_default_project_keeps_its_name(acme: Tenant) -> None:
    answer = await acme.http.post("/v1/projects/default/rename", json={"name": "misc"})
    hold(answer, "name_reserved")
    await acme.lease()


async def test_usage_and_the_bill_of_one_project_and_the_subtotals_of_all(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    research = await _create(acme, "research")
    for project in ("default", "research"):
        await acme.lease(project=project, name=f"of {project}")
    await stage.play(60)
    await stage.play(3_700, step=119)
    whole = (await acme.http.get("/v1/bill")).json()
    assert [total["project"] for total in whole["projects"]] == ["default", "research"]
    for field in ("amount", "unrated"):
        assert sum(total[field]["nano"] for total in whole["projects"]) == whole[field]["nano"], field
    for word in ("research", research):
        usage = (await acme.http.get("/v1/usage", params={"project": word})).json()["items"]
        assert {row["lease_name"] for row in usage} == {"of research"}, word
        text = (await acme.http.get("/v1/usage.csv", params={"project": word})).text
        lines = list(csv.DictReader(io.StringIO(text)))
        assert [(line["charge_id"], line["interval"]) for line in lines] == [
            (row["id"], str(row["interval"])) for row in usage
        ], word
        bill = (await acme.http.get("/v1/bill", params={"project": word})).json()
        assert [line["name"] for line in bill["lines"]] == ["of research"], word
        assert bill["projects"] == [whole["projects"][1]], word
        assert bill["amount"] == whole["projects"][1]["amount"], word
        assert bill["balance"] == whole["balance"], "the wallet is the organization's"
