"""GPU proofs over HTTP: on the lease, in the explanation, page by page, one with its evidence; for operators all."""

import pytest

from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.leases import explanation_view
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import LeaseId, Prefix, off_wire
from control_plane.domain.permission import Permission
from control_plane.domain.role_permissions import OWNER
from control_plane.services import catalogue, lease_overviews
from tests.integration.api.conftest import Api, ProofOf, Tenant
from tests.integration.api.problems import hold
from tests.support.challenger import EMULATED, FAILED, PASSED, Answer
from tests.support.stage import PROVEN, Stage

pytestmark = pytest.mark.database


@pytest.fixture
async def proven_sku(api: Api, stage: Stage) -> str:
    async with api.owner.db.transaction() as connection:
        await catalogue.load_price_book(connection, api.owner, [PROVEN])
    return PROVEN.sku.name


async def test_a_sku_says_what_it_demands(api: Api, acme: Tenant, proven_sku: str) -> None:
    items = (await acme.http.get("/v1/skus")).json()["items"]
    assert {one["name"]: one["proof"] for one in items} == {
        "h100x1": "listed",
        "h100x8": "listed",
        proven_sku: "proven",
    }


async def test_a_proof_is_on_its_lease_in_its_explanation_and_by_itself(
    api: Api, stage: Stage, acme: Tenant, proven_sku: str
) -> None:
    lease = await acme.lease(sku=proven_sku)
    before = (await acme.http.get(f"/v1/leases/{lease}")).json()["proof"]
    assert before == {"demanded": "proven", "tier": "listed", "id": None, "outcome": None, "at": None}

    await stage.play(60)
    shown = (await acme.http.get(f"/v1/leases/{lease}")).json()
    assert shown["status"]["step"] == "certificates_accepted"
    on_lease = shown["proof"]
    assert (on_lease["tier"], on_lease["outcome"]) == ("proven", "passed")
    detail = (await acme.http.get(f"/v1/proofs/{on_lease['id']}")).json()
    assert (detail["lease_id"], detail["occasion"], detail["outcome"]) == (lease, "start", "passed")
    assert detail["at"] == on_lease["at"]
    [gpu] = detail["gpus"]
    assert gpu["proven_bytes"] == 72 * 2**30
    assert gpu["sold_bytes"] == 81_559 * 2**20
    [rate] = detail["rates"]
    assert (rate["phase"], rate["per_second"]) == ("walk", 2**41)
    assert detail["evidence"]["roots"] == ["00ff"]
    [listed] = (await acme.http.get(f"/v1/leases/{lease}/proofs")).json()["items"]
    assert listed | {"evidence": detail["evidence"]} == detail
    assert (await acme.http.get(f"/v1/leases/{lease}/explanation")).json()["proofs"] == [listed]


async def test_an_explanation_shows_proofs_only_to_those_who_may_read_them(
    api: Api, acme: Tenant, proof_of: ProofOf
) -> None:
    lease = await acme.lease()
    await proof_of(acme, lease)
    found = await lease_overviews.explain(
        api.owner, acme.id, LeaseId(off_wire(Prefix.LEASE, lease)), reach=EVERYWHERE
    )
    assert isinstance(found, lease_overviews.Explanation)
    for permissions, shown in ((OWNER, 1), (OWNER - {Permission.PROOFS_READ}, 0)):
        assert len(explanation_view(found, Disclosure.of(permissions)).proofs) == shown


async def test_the_bounds_of_a_rate_come_out_of_the_evidence(
    api: Api, acme: Tenant, proof_of: ProofOf
) -> None:
    rates = [{"gpu": gpu, "phase": "walk", "seconds": 2.0, "work": 8.0} for gpu in (0, 1)]
    bounds = {"walk": [[0.5, 3.25, 2.0], [0.0, None, 0.0]]}
    proof = await proof_of(acme, await acme.lease(), rates=rates, evidence={"bounds": bounds})
    shown = (await acme.http.get(f"/v1/proofs/{proof}")).json()["rates"]
    assert [(one["least_seconds"], one["most_seconds"]) for one in shown] == [(0.5, 3.25), (0.0, None)]


async def test_a_lease_that_was_refused_says_why_in_its_proofs(
    api: Api, stage: Stage, acme: Tenant, proven_sku: str
) -> None:
    stage.challenger.otherwise = EMULATED
    lease = await acme.lease(sku=proven_sku)
    await stage.play(120)
    proofs = (await acme.http.get(f"/v1/leases/{lease}/proofs")).json()["items"]
    assert {one["outcome"] for one in proofs} == {"emulated"}
    why = (await acme.http.get(f"/v1/leases/{lease}/explanation")).json()
    assert {one["fail_reason"] for one in why["attempts"] if one["fail_reason"]} == {"proof_emulated"}


async def test_the_proofs_of_a_lease_are_paged_newest_first(
    api: Api, acme: Tenant, proof_of: ProofOf
) -> None:
    lease = await acme.lease()
    made = [await proof_of(acme, lease, number) for number in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        answer = (await acme.http.get(f"/v1/leases/{lease}/proofs?limit=2{cursor}")).json()
        seen += [one["id"] for one in answer["items"]]
        if answer["next_cursor"] is None:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert seen == made[::-1]
    taken = (await acme.http.get("/v1/leases?limit=1")).json()["next_cursor"]
    if taken:
        hold(await acme.http.get(f"/v1/leases/{lease}/proofs?cursor={taken}"), "invalid_cursor")


async def test_an_operator_reads_every_providers_record_and_whose_machines_they_were_in_none(
    api: Api, stage: Stage, acme: Tenant, other: Tenant, operator: Tenant, proven_sku: str
) -> None:
    for tenant, answer in ((acme, PASSED), (other, Answer(FAILED.outcome))):
        stage.challenger.otherwise = answer
        await tenant.lease(sku=proven_sku)
        await stage.play(40)
    items = (await operator.http.get("/v1/operator/proofs")).json()["items"]
    assert {one["outcome"] for one in items} == {"passed", "failed"}
    assert [one["at"] for one in items] == sorted((one["at"] for one in items), reverse=True)
    assert any(one["ended"] for one in items if one["outcome"] == "failed")
    text = str(items)
    assert acme.id.hex not in text
    assert other.id.hex not in text
    failed = (await operator.http.get("/v1/operator/proofs?outcome=failed&account=fake")).json()["items"]
    assert failed == [one for one in items if one["outcome"] == "failed"]
    assert (await operator.http.get("/v1/operator/proofs?account=nobody")).json()["items"] == []
    page = (await operator.http.get("/v1/operator/proofs?limit=1")).json()
    rest = (await operator.http.get(f"/v1/operator/proofs?cursor={page['next_cursor']}")).json()
    assert page["items"] + rest["items"] == items


async def test_proofs_against_an_offer_are_shown_to_operators_only(
    api: Api, stage: Stage, acme: Tenant, operator: Tenant, proven_sku: str
) -> None:
    stage.challenger.otherwise = FAILED
    for tenant in (acme, acme, acme, operator):
        await tenant.lease(sku=proven_sku)
        await stage.play(40)
    for tenant in (acme, operator):
        quote = (await tenant.http.post("/v1/quotes", json={"sku": proven_sku})).json()
        against = [one for one in quote["rejected"] if one["code"] == "proof_record"]
        assert against
        for one in against:
            assert bool(one["proofs"]) is (tenant is operator)
            assert "pf_" not in one["why"]
