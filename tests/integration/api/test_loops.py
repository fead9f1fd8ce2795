"""Loop reports over HTTP: a loop that has not reported for too long is late."""

import pytest

from control_plane.db import loops
from tests.integration.api.conftest import Api, Tenant

pytestmark = pytest.mark.database


async def test_an_operator_sees_the_last_report_of_every_loop_and_which_are_late(
    api: Api, operator: Tenant
) -> None:
    now = api.clock.now()
    async with api.owner.db.transaction() as connection:
        for looked_at in (1, 2):
            await loops.record(
                connection,
                loop="place_leases",
                account="",
                replica="one",
                started_at=now,
                finished_at=now,
                every_seconds=1,
                late_after_seconds=30,
                looked_at=looked_at,
                acted_on=1,
                errors=["it failed"],
                notes=[],
            )

    async def shown() -> dict[str, object]:
        [report] = (await operator.http.get("/v1/operator/loops")).json()["items"]
        return {name: report[name] for name in ("loop", "looked_at", "activations", "errors", "late")}

    report = {"loop": "place_leases", "looked_at": 2, "activations": 2, "errors": ["it failed"]}
    assert await shown() == report | {"late": False}
    api.clock.advance(32)
    assert await shown() == report | {"late": True}
