"""Leases over HTTP, with the loops running: what a customer reads on the way, and page by page."""

import pytest

from providers.fake import Fault
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold
from tests.support.cases import case
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
        "state": "placing",
        "step": None,
        "steps_done": 0,
        "steps_total": 7,
        "message": "Choosing a machine.",
        "waiting": None,
        "unconfirmed": None,
    }
    assert lease["request"]["price_usd_per_hour_max"] == "3.600000000"

    await stage.play(60)
    ready = (await acme.http.get(answer.headers["location"])).json()
    assert ready["status"]["state"] == "ready"
    assert ready["machine"]["provider"] == "fake"
    assert ready["machine"]["ssh_user"] == "ubuntu"
    assert ready["machine"]["host_key"].startswith("ssh-ed25519 ")

    released = await acme.http.post(f"/v1/leases/{lease['id']}/release")
    assert (released.status_code, released.json()["state"]) == (202, "ending")
    assert released.json()["billed_until"] is not None
    await stage.play(120)
    ended = (await acme.http.get(f"/v1/leases/{lease['id']}")).json()
    assert (ended["state"], ended["end_reason"]) == ("ended", "released")


async def test_customers_read_our_sentence_and_a_code_and_operators_what_the_provider_said(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant
) -> None:
    planted = "injected fault"  # What the fake provider says.
    for tenant in (acme, operator):
        stage.clock.advance(
            3_600
        )  # What was refused to the one is not ordered for the other for some minutes.
        stage.cloud.faults.script(
            "launch",
            Fault.THROTTLED,
            Fault.NO_CAPACITY,
            Fault.QUOTA_REACHED,
            Fault.ORDER_REFUSED,
            Fault.LOST_AFTER_EFFECT,
        )
        lease = await tenant.lease()
        await stage.play(900, step=20)  # A quota that is used up closes the region for five minutes.
        why = (await tenant.http.get(f"/v1/leases/{lease}/explanation")).json()
        failed = {
            attempt["fail_reason"]: (attempt["fail_why"], (attempt["provider_words"] or "").partition(":")[0])
            for attempt in why["attempts"]
            if attempt["fail_reason"]
        }
        words = planted if tenant is operator else ""
        assert failed == {
            "no_capacity": ("the provider has no capacity left", words),
            "quota_reached": ("the provider's quota for us is used up", words),
            "order_refused": ("the provider refused the order", words),
        }
        for path in ("", "/journal", "/explanation"):
            shown = (await tenant.http.get(f"/v1/leases/{lease}{path}")).text
            hidden = tenant is acme or path != "/explanation"
            assert (planted in shown) is not hidden, path
            for raw in ("too many requests", "answer to the launch"):
                assert raw not in shown, path


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


async def test_what_a_lease_was_asked_for_is_shown_and_its_labels_can_be_replaced(acme: Tenant) -> None:
    key = (await acme.http.post("/v1/ssh-keys", json={"name": "laptop", "public_key": SSH_KEY})).json()
    order = {
        "sku": "h100x1",
        "ssh_key_ids": [key["id"]],
        "labels": {"team": "vision", "run": ""},
        "wait_timeout_seconds": 60,
        "auto_release": {"after_seconds": 3_600, "spend_usd": "12.5"},
    }
    lease = (await acme.http.post("/v1/leases", json=order)).json()
    assert lease["ssh_keys"] == [{"id": key["id"], "name": "laptop", "fingerprint": key["fingerprint"]}]
    assert lease["labels"] == order["labels"]
    assert lease["wait_timeout_seconds"] == 60
    spend = {"usd": "12.500000000", "nano": 12_500_000_000}
    assert lease["auto_release"] == {"after_seconds": 3_600, "spend": spend}
    assert lease["release_at"] is None

    path = f"/v1/leases/{lease['id']}"
    replaced = await acme.http.put(f"{path}/labels", json={"labels": {"team": "speech"}})
    assert (replaced.status_code, replaced.json()["labels"]) == (200, {"team": "speech"})
    assert (await acme.http.get(path)).json()["labels"] == {"team": "speech"}
    for query, found in (
        ("label=team=speech", 1),
        ("label=team=vision", 0),
        ("label=team=speech&label=run=", 0),
        ("waiting=true", 0),
        ("waiting=false", 1),
    ):
        page = (await acme.http.get(f"/v1/leases?{query}")).json()["items"]
        assert len(page) == found, query


async def test_labels_and_limits_outside_of_their_bounds_are_refused(acme: Tenant) -> None:
    for body in (
        {"labels": {"Team": "a"}},
        {"labels": {"": "a"}},
        {"labels": {"team-": "a"}},
        {"labels": {"a" * 64: "a"}},
        {"labels": {"team": "a" * 64}},
        {"labels": {"team": "a\nb"}},
        {"labels": {"team": 7}},
        {"labels": {f"k{number}": "" for number in range(33)}},
        {"wait_timeout_seconds": -1},
        {"wait_timeout_seconds": 604_801},
        {"auto_release": {"after_seconds": 59}},
        {"auto_release": {"spend_usd": "0"}},
        {"auto_release": {"idle_seconds": 60}},
    ):
        with case(body):
            answer = await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []} | body)
            hold(answer, "invalid_request")
            (field,) = body
            assert answer.json()["errors"][0]["field"].startswith(field)


async def test_the_name_of_a_live_lease_is_refused_with_the_lease_that_has_it(acme: Tenant) -> None:
    lease = await acme.lease(name="train")
    order = {"sku": "h100x1", "ssh_key_ids": [], "name": "train"}
    answer = await acme.http.post("/v1/leases", json=order)
    hold(answer, "name_taken")
    assert lease in answer.json()["detail"]
    await acme.http.post(f"/v1/leases/{lease}/release")
    assert (await acme.http.post("/v1/leases", json=order)).status_code == 202
