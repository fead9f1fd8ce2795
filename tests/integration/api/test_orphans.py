"""Orphans over HTTP."""

import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def test_an_operator_sees_machines_that_no_record_claims(
    api: Api, stage: Stage, operator: Tenant
) -> None:
    stage.plant()
    await stage.play(10)
    orphans = (await operator.http.get("/v1/operator/orphans")).json()["items"]
    assert [orphan["account"] for orphan in orphans] == ["fake"]
    assert orphans[0]["launch_key"] in stage.planted
