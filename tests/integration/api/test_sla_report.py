"""The report of a month over HTTP: what was kept, what was broken, and the availability attained."""

import pytest

from tests.integration.api.conftest import Tenant
from tests.support.promises import put_terms_in_force
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_a_month_without_a_breach_says_what_was_kept_and_a_breach_is_weighed_by_its_time(
    stage: Stage, acme: Tenant, other: Tenant, operator: Tenant
) -> None:
    await stage.organization()
    await put_terms_in_force(stage)
    assert (await acme.http.get("/v1/sla-report")).json()["tiers"] == []
    await acme.lease(sla="gold")
    await stage.play(120, step=10)
    (failing,) = stage.cloud.machines.values()
    await other.lease(sla="gold")
    await stage.play(1_200, step=60)

    (kept,) = (await acme.http.get("/v1/sla-report")).json()["tiers"]
    assert [kept[name] for name in ("sla", "leases", "kept", "breaches", "breached_leases")] == [
        *("gold", 1, 4, 0),
        0,
    ]
    assert (kept["available_percent"], kept["down_seconds"]) == ("100.00", 0)
    assert kept["promised_seconds"] > 0

    failing.failed = True
    await stage.play(1_200, step=60)
    failing.failed = False
    await stage.play(1_200, step=60)
    (mine,) = (await acme.http.get("/v1/sla-report")).json()["tiers"]
    assert (mine["kept"], mine["breaches"], mine["breached_leases"]) == (3, 1, 1)
    assert float(mine["available_percent"]) < 90
    (theirs,) = (await other.http.get("/v1/sla-report")).json()["tiers"]
    assert (theirs["leases"], theirs["kept"], theirs["breaches"]) == (1, 4, 0)

    (both,) = (await operator.http.get("/v1/finance/sla-report")).json()["tiers"]
    assert (both["leases"], both["kept"], both["breaches"]) == (2, 7, 1)
    for seconds in ("promised_seconds", "down_seconds"):
        assert both[seconds] == mine[seconds] + theirs[seconds]
    attained = [float(tier["available_percent"]) for tier in (mine, both, theirs)]
    assert attained == sorted(attained)
    assert len({*attained}) == 3
