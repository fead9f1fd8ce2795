"""Projects over HTTP: made, listed, named by leases, and found again on what leases cost."""

import csv
import io

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
    made = (await acme.http.post("/v1/leases", json={"sku": "h100x1", "project": "research"})).json()
    assert (made["project"], made["project_id"]) == ("research", research)


async def test_an_unknown_project_is_refused_and_not_an_empty_list(acme: Tenant) -> None:
    hold(await acme.http.get("/v1/leases?project=reserch"), "project_unknown")
    hold(await acme.http.post("/v1/leases", json={"sku": "h100x1", "project": "reserch"}), "project_unknown")
    assert (await acme.http.get("/v1/leases")).json()["items"] == []


async def test_another_organizations_project_is_unknown(
    acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    await _create(other, "secret")
    theirs = await other.lease(project="secret")
    for stranger in (acme, operator):
        hold(await stranger.http.get("/v1/leases?project=secret"), "project_unknown")
        order = {"sku": "h100x1", "project": "secret"}
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
        await acme.lease(project=project, name=f"of {project}")
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

    text = (await acme.http.get("/v1/usage.csv")).text
    known = ("project", "project_id", "machine_id", "provider", "region", "purchase", "price_book")
    assert text.splitlines()[0].endswith(",amount_nano_usd," + ",".join(known))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [{name: line[name] for name in known} for line in lines] == [
        {name: str(row[name]) for name in known} for row in rows
    ]
    bill = (await acme.http.get("/v1/bill")).json()["lines"]
    assert {line["name"]: line["project"] for line in bill} == {
        "of default": "default",
        "of research": "research",
    }
    assert {line["project_id"] for line in bill if line["project"] == "research"} == {research}
