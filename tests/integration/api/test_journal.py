"""The journal names who asked for something, in which role, and with which request."""

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import Api, Tenant
from tests.support.rows import rows

pytestmark = pytest.mark.database
_LINES = text("""
SELECT actor_kind, actor, request_id, event FROM journal WHERE organization_id = :id ORDER BY number
""")


async def test_a_line_can_be_found_by_the_request_that_caused_it(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    for tenant, kind in ((acme, "customer"), (operator, "operator")):
        made = await tenant.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []})
        released = await tenant.http.post(f"/v1/leases/{made.json()['id']}/release")
        own = {"Authorization": f"Bearer {tenant.secret_for('POST', '/v1/leases')}"}
        subject = (await tenant.http.get("/v1/me", headers=own)).json()["subject"]
        async with api.owner.db.reading() as connection:
            lines = await rows(connection, _LINES, id=tenant.id)
        assert [tuple(line) for line in lines] == [
            (kind, subject, made.headers["x-request-id"], "admitted"),
            (kind, subject, released.headers["x-request-id"], "released"),
        ]
