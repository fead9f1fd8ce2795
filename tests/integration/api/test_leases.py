"""Leases over HTTP, with the loops running: what a customer reads on the way, and page by page."""

import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_a_lease_from_the_order_to_the_end(api: Api, stage: Stage, acme: Tenant) -> None:
    key = (await acme.http.post("/v1/ssh-keys", json={"name": "laptop", "public_key": SSH_KEY})).json()
    assert key["public_key"] == SSH_KEY.rpartition(" ")[0]
    answer = await acme.http.post(
        "/v1/leases",
        json={"sku": "h100x1", "name": "train", "ssh_key_ids": [key["id"]], "price_usd_per_hour_max": "3.6"},
    )
    lease = answer.json()
    assert answer.headers["location"] == f"/v1/leases/{lease['id']}"
    assert lease["status"] == {
        "phase": "pending",
        "step": None,
        "steps_done": 0,
        "steps_total": 7,
        "message": "Choosing a machine.",
    }
    assert lease["request"]["price_per_hour_max"] == {"usd": "3.600000000", "nano": 3_600_000_000}

    await stage.play(60)
    ready = (await acme.http.get(answer.headers["location"])).json()
    assert ready["status"]["phase"] == "ready"
    assert ready["machine"]["provider"] == "fake"
    assert ready["machine"]["ssh_user"] == "ubuntu"
    assert ready["machine"]["host_key"].startswith("ssh-ed25519 ")

    released = await acme.http.post(f"/v1/leases/{lease['id']}/release")
    assert (released.status_code, released.json()["state"]) == (202, "ending")
    assert released.json()["billed_until"] is not None
    await stage.play(120)
    ended = (await acme.http.get(f"/v1/leases/{lease['id']}")).json()
    assert (ended["state"], ended["end_reason"]) == ("ended", "released")


async def test_why_shows_losers_and_hides_what_we_pay_from_customers(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    for tenant in (acme, operator):
        await tenant.http.post("/v1/quotes", json={"sku": "h100x1"})
        lease = await tenant.lease()
        await stage.play(60)
        why = (await tenant.http.get(f"/v1/leases/{lease}/explanation")).json()
        assert why["admission"]["event"] == "admitted"
        placement = why["placements"][-1]  # The first looks before any offer is known.
        assert placement["chosen"] == placement["candidates"][0]["key"]
        assert [one["state"] for one in why["attempts"]] == ["verified"]
        assert why["reports"][0]["gpus"][0]["memory_mib"] == 81_559
        costs = [one["cost_per_hour"] for one in placement["candidates"]]
        assert all(cost is None for cost in costs) is (tenant is acme)
        offers = (await tenant.http.get("/v1/offers?gpu_model=h100-sxm-80gb")).json()["items"]
        assert {offer["skus"][0] for offer in offers} == {"h100x1", "h100x8"}
        assert all((offer["cost_per_hour"] is None) is (tenant is acme) for offer in offers)
        assert all(offer["age_seconds"] >= 0 for offer in offers)


async def test_pages_lose_no_row_and_repeat_none_while_rows_come(acme: Tenant) -> None:
    before = [await acme.lease() for _ in range(11)]
    seen: list[str] = []
    cursor = ""
    for page in range(20):
        answer = (await acme.http.get(f"/v1/leases?limit=3{cursor}")).json()
        assert len(answer["items"]) <= 3
        seen += [lease["id"] for lease in answer["items"]]
        if answer["next_cursor"] is None:
            break
        cursor = f"&cursor={answer['next_cursor']}"
        await acme.lease(name=f"meanwhile {page}")
    assert seen == before[::-1]


async def test_a_full_last_page_has_no_next_one(acme: Tenant) -> None:
    for _ in range(4):
        await acme.lease()
    first = (await acme.http.get("/v1/leases?limit=2")).json()
    second = (await acme.http.get(f"/v1/leases?limit=2&cursor={first['next_cursor']}")).json()
    assert (len(second["items"]), second["next_cursor"]) == (2, None)


async def test_a_list_is_narrowed_by_states(acme: Tenant) -> None:
    kept, released = await acme.lease(), await acme.lease()
    await acme.http.post(f"/v1/leases/{released}/release")
    assert [one["id"] for one in (await acme.http.get("/v1/leases?state=placing")).json()["items"]] == [kept]
    both = (await acme.http.get("/v1/leases?state=placing&state=ending")).json()["items"]
    assert {one["id"] for one in both} == {kept, released}


async def test_the_journal_is_paged_oldest_first(api: Api, stage: Stage, acme: Tenant) -> None:
    lease = await acme.lease()
    await stage.play(60)
    whole = (await acme.http.get(f"/v1/leases/{lease}/journal")).json()["items"]
    assert [line["event"] for line in whole][:2] == ["admitted", "placed"]
    paged: list[object] = []
    cursor = ""
    while True:
        answer = (await acme.http.get(f"/v1/leases/{lease}/journal?limit=2{cursor}")).json()
        paged += answer["items"]
        if answer["next_cursor"] is None:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert paged == whole


async def test_a_cursor_of_another_list_is_not_one_of_this(acme: Tenant) -> None:
    for _ in range(2):
        await acme.lease()
    cursor = (await acme.http.get("/v1/leases?limit=1")).json()["next_cursor"]
    hold(await acme.http.get(f"/v1/usage?cursor={cursor}"), "invalid_cursor")


async def test_releasing_twice_is_once(acme: Tenant) -> None:
    lease = await acme.lease()
    first = (await acme.http.post(f"/v1/leases/{lease}/release")).json()
    again = (await acme.http.post(f"/v1/leases/{lease}/release")).json()
    assert again == first
    events = [line["event"] for line in (await acme.http.get(f"/v1/leases/{lease}/journal")).json()["items"]]
    assert events == ["admitted", "released"]
