"""What a customer of an interruptible lease and an operator read and decide over HTTP while it yields its machine."""

import pytest

from tests.integration.api.conftest import Tenant
from tests.integration.api.problems import hold
from tests.scenario.test_preemption import BOOK_WITH_IT
from tests.support.promises import put_terms_in_force
from tests.support.stage import Stage

pytestmark = pytest.mark.database
SWITCH = "/v1/operator/preemption-switch"
LIST = "/v1/operator/preemptions"
DECISIONS = "/v1/operator/preemption-decisions"


async def _sold(stage: Stage) -> None:
    """Interruptible leases have a price, and service levels have terms."""
    stage.book = BOOK_WITH_IT
    await stage.organization()
    await put_terms_in_force(stage)


async def test_an_operator_arms_it_and_both_customers_read_what_happens_to_them(
    stage: Stage, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    await _sold(stage)
    await stage.run("refresh_offers")
    yields = await acme.lease(purchase="interruptible", name="yields")
    await stage.play(300, step=10)
    for place in stage.cloud.stock:
        stage.cloud.stock[place] = 0
    await stage.play(600, step=60)
    in_need = await other.lease(sla="gold", name="in-need")
    await stage.play(330, step=10)

    dry = (await operator.http.get(DECISIONS, params={"for_lease_id": in_need})).json()["items"][0]
    assert (dry["decision"], dry["lease_id"], dry["tier"]) == ("would_notify", yields, "gold")
    assert [(each["lease_id"], each["kept"]) for each in dry["considered"]] == [(yields, None)]
    assert (await operator.http.get(SWITCH)).json()["armed"] is False
    hold(await acme.http.post(SWITCH, json={"armed": True, "reason": "mine"}), "permission_denied")
    hold(await acme.http.get(LIST), "permission_denied")

    armed = await operator.http.post(SWITCH, json={"armed": True, "reason": "looked"})
    assert (armed.status_code, armed.json()["armed"], armed.json()["reason"]) == (200, True, "looked")
    await stage.play(20, step=10)
    (preemption,) = (await operator.http.get(LIST)).json()["items"]
    assert (preemption["state"], preemption["lease_id"], preemption["for_lease_id"]) == (
        *("notified", yields),
        in_need,
    )
    shown = (await acme.http.get(f"/v1/leases/{yields}")).json()
    assert shown["taken_back_at"] == preemption["interrupt_at"]
    (notice,) = (await acme.http.get(f"/v1/leases/{yields}/notices")).json()["items"]
    assert (notice["kind"], notice["planned_at"]) == ("preemption_planned", preemption["interrupt_at"])

    await stage.play(600, step=10)
    ended = (await acme.http.get(f"/v1/leases/{yields}")).json()
    assert (ended["end_reason"], ended["taken_back_at"]) == ("preempted", None)
    assert (await other.http.get(f"/v1/leases/{in_need}")).json()["state"] == "ready"
    explained = (await other.http.get(f"/v1/leases/{in_need}/explanation")).text
    assert "The machine of an interruptible lease is taken back for this one" in explained
    assert yields not in explained, "nobody learns whose machine it was"
    of_acme = (await acme.http.get(f"/v1/leases/{yields}/explanation")).text
    assert "this one is taken back at" in of_acme
    assert in_need not in of_acme

    assert (await operator.http.get(LIST)).json()["items"] == []
    (over,) = (await operator.http.get(LIST, params={"closed": "true"})).json()["items"]
    assert over["state"] == "served"
    hold(await operator.http.get(DECISIONS, params={"for_lease_id": "le_1"}), "invalid_parameter")
