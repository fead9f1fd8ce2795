"""One trace leads from the customer's request to the provider's call that buys the machine."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import httpx
import pytest

from control_plane.api.app import create_app
from control_plane.db.engine import Database
from control_plane.domain.ids import LeaseId, Prefix, off_wire
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano
from control_plane.domain.permission import Role
from control_plane.services import administration, leases
from control_plane.settings import Settings
from tests.support.clock import Clock
from tests.support.spans import Spans
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Traced:
    """A cloud whose spans are kept, with a customer at its API."""

    stage: Stage
    spans: Spans
    http: httpx.AsyncClient
    organization_id: UUID

    async def lease(self, headers: dict[str, str] | None = None, **body: object) -> Lease:
        given = {"sku": "h100x1", "ssh_key_ids": []} | body
        answer = await self.http.post("/v1/leases", json=given, headers=headers)
        assert answer.status_code == 202, answer.text
        return await self.shown(answer.json()["id"])

    async def shown(self, wire_id: str) -> Lease:
        lease_id = LeaseId(off_wire(Prefix.LEASE, wire_id))
        shown = await leases.get(self.stage.api, self.organization_id, lease_id)  # type: ignore[arg-type]
        assert isinstance(shown, leases.Shown)
        return shown.overview.lease


@pytest.fixture
async def traced(db: Database, api_db: Database, clock: Clock) -> AsyncIterator[Traced]:
    spans = Spans()
    stage = await set_stage(db, clock, api_db=api_db, tracer=spans.tracer)
    await stage.organization()  # Loads the price book.
    await stage.round()  # The offers are known.
    made = await administration.bootstrap(
        stage.api.__class__(db, now=clock.now), "acme", role=Role.CUSTOMER, credit=Nano(10**12), gpu_quota=64
    )
    assert isinstance(made, administration.FirstOrganization)
    app = create_app(stage.api, Settings(database_url="unused"))
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    authorization = {"Authorization": f"Bearer {made.issued.secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=authorization) as http:
        spans.clear()
        yield Traced(stage, spans, http, made.id)


async def test_the_call_that_buys_the_machine_is_in_the_trace_of_the_request(traced: Traced) -> None:
    lease = await traced.lease({"traceparent": CLIENT})
    await traced.stage.play_until(lease, "ready")

    launch = traced.spans.one("provider launch")
    assert traced.spans.path(launch)[1:] == [
        "POST /v1/leases",
        "transaction",
        "launch_machines",
        "provider launch",
    ]
