"""One trace leads from the customer's request to the provider's call that buys the machine."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from unittest.mock import ANY

import httpx
import pytest
from opentelemetry.trace import StatusCode

from control_plane.api.app import create_app
from control_plane.db.engine import Database
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, off_wire, on_wire
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano
from control_plane.services import administration, lease_overviews
from control_plane.settings import Settings
from data_plane.access.port import HostKey, StepFailed, Target
from providers.fake import Call
from providers.faults import Fault
from tests.support.cases import case
from tests.support.clock import Clock
from tests.support.spans import Spans, attributes, trace_id
from tests.support.stage import Stage, set_stage
from tracing.attributes import Attribute

pytestmark = pytest.mark.database
PLANTED = "planted-secret"
_CUSTOMERS_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKxMl87Za3QXYaFgOgXdOvjavJHRIu2QZHFWOtM5Aiqe planted-secret"
)
_PUBLIC = "ssh-ed25519 " + "7" * 64
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Traced:
    """A cloud whose spans are kept, with a customer at its API."""

    stage: Stage
    spans: Spans
    http: httpx.AsyncClient
    organization_id: OrganizationId

    async def lease(self, headers: dict[str, str] | None = None, **body: object) -> Lease:
        given = {"sku": "h100x1", "ssh_key_ids": []} | body
        answer = await self.http.post("/v1/leases", json=given, headers=headers)
        assert answer.status_code == 202, answer.text
        return await self.shown(answer.json()["id"])

    async def shown(self, wire_id: str) -> Lease:
        lease_id = LeaseId(off_wire(Prefix.LEASE, wire_id))
        shown = await lease_overviews.get(self.stage.api, self.organization_id, lease_id, reach=EVERYWHERE)
        assert isinstance(shown, lease_overviews.Shown)
        return shown.overview.lease


@pytest.fixture
async def traced(db: Database, api_db: Database, clock: Clock) -> AsyncIterator[Traced]:
    spans = Spans()
    stage = await set_stage(db, clock, api_db=api_db, tracer=spans.tracer)
    await stage.organization()  # Loads the price book.
    await stage.round()  # The offers are known.
    made = await administration.bootstrap(
        stage.api.__class__(db, now=clock.now), "acme", top_up=Nano(10**12), gpu_quota=64
    )
    assert isinstance(made, administration.FirstOrganization)
    app = create_app(stage.api, Settings(database_url="unused"))
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
    authorization = {"Authorization": f"Bearer {made.issued.secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=authorization) as http:
        spans.clear()
        yield Traced(stage, spans, http, made.id)


async def test_the_call_that_buys_the_machine_is_in_the_trace_of_the_request(traced: Traced) -> None:
    lease = await traced.lease()
    await traced.stage.play_until(lease, "ready")

    launch = traced.spans.one("provider launch")
    assert traced.spans.path(launch) == [
        "POST /v1/leases",
        "transaction",
        "launch_machines",
        "provider launch",
    ]


async def test_the_trace_of_a_lease_shows_every_step_until_it_is_ready_and_the_release_has_its_own(
    traced: Traced,
) -> None:
    lease = await traced.lease()
    await traced.stage.play_until(lease, "ready")

    first = trace_id(traced.spans.one("POST /v1/leases"))
    of_request = [span for span in traced.spans.all if trace_id(span) == first]
    assert {" > ".join(traced.spans.path(span)) for span in of_request} == {
        "POST /v1/leases",
        "POST /v1/leases > transaction",
        "POST /v1/leases > transaction > place_leases",
        "POST /v1/leases > transaction > launch_machines",
        "POST /v1/leases > transaction > launch_machines > provider launch",
        "POST /v1/leases > transaction > observe_machines",
        "POST /v1/leases > transaction > bootstrap_machines",
        "POST /v1/leases > transaction > bootstrap_machines > machine session",
        "POST /v1/leases > transaction > bootstrap_machines > machine session > read GPUs",
        "POST /v1/leases > transaction > admit_customers",
        "POST /v1/leases > transaction > admit_customers > machine session",
    }

    traced.spans.clear()
    answer = await traced.http.post(f"/v1/leases/{on_wire(Prefix.LEASE, lease.id)}/release")
    assert answer.status_code == 202
    await traced.stage.play_until(lease, "ended")
    root = traced.spans.one("POST /v1/leases/{lease_id}/release")
    assert root.parent is None
    terminate, *_ = traced.spans.named("provider terminate")
    assert trace_id(terminate) == trace_id(root) != first
    assert traced.spans.path(terminate)[-2:] == ["terminate_machines", "provider terminate"]
    (closed,) = [span for span in traced.spans.named("close_leases") if trace_id(span) == trace_id(root)]
    assert attributes(closed)[Attribute.EVENT] == "machines_gone"


async def test_an_activation_is_a_trace_of_its_own_that_is_linked_with_every_lease_it_works_for(
    traced: Traced,
) -> None:
    found = [await traced.lease() for _ in range(2)]
    requests = {span.context.trace_id for span in traced.spans.named("POST /v1/leases") if span.context}
    for lease in found:
        await traced.stage.play_until(lease, "ready")

    (activation,) = [span for span in traced.spans.named("place_leases") if span.parent is None]
    steps = [span for span in traced.spans.named("place_leases") if span.parent is not None]
    assert {link.context.trace_id for link in activation.links} == requests
    assert {span.context.trace_id for span in steps if span.context is not None} == requests
    assert activation.context is not None
    assert {link.context.span_id for span in steps for link in span.links} == {activation.context.span_id}


async def test_a_span_says_what_it_is_about_by_ids_and_codes(traced: Traced) -> None:
    traced.stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    lease = await traced.lease()
    await traced.stage.play_until(lease, "ready")

    assert attributes(traced.spans.one("POST /v1/leases")) == {
        Attribute.METHOD: "POST",
        Attribute.ROUTE: "/v1/leases",
        Attribute.STATUS: 202,
        Attribute.REQUEST: ANY,
        Attribute.OPERATION: "createLease",
        Attribute.ORGANIZATION: on_wire(Prefix.ORGANIZATION, traced.organization_id),
    }
    refused, accepted = traced.spans.named("provider launch")
    assert attributes(refused) == {
        Attribute.VERB: "launch",
        Attribute.ACCOUNT: "fake",
        Attribute.REGION: ANY,
        Attribute.WAITED: ANY,
        Attribute.OUTCOME: "NoCapacity",
        Attribute.ERROR: "NoCapacity",
    }
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.status.description is None
    assert attributes(accepted)[Attribute.OUTCOME] == "ok"
    machines = {
        attributes(span)[Attribute.MACHINE] for span in traced.spans.named("launch_machines") if span.parent
    }
    assert machines == {on_wire(Prefix.MACHINE, machine.id) for machine in await traced.stage.machines(lease)}


async def test_no_secret_and_nothing_that_a_customer_wrote_is_in_any_span(traced: Traced) -> None:
    """Everything below is planted where it could leak: names, bodies, headers, keys, what machines and errors say."""
    stage = traced.stage
    secret = traced.http.headers["authorization"].removeprefix("Bearer ")
    stage.world = replace(stage.world, new_host_key=lambda: HostKey(f"{PLANTED} private", _PUBLIC))
    bugs = iter([True])

    def on_call(call: Call) -> None:
        if call.verb in ("launch", "terminate") and next(bugs, False):
            raise RuntimeError(f"the provider's key is {PLANTED}")

    stage.cloud.on_call = on_call
    says = iter([True])

    async def before(_: Target, step: str) -> None:
        if step == "run agent" and next(says, False):
            raise StepFailed(step, 1, f"the machine says {PLANTED}")

    stage.access.before = before
    answer = await traced.http.post("/v1/ssh-keys", json={"name": PLANTED, "public_key": _CUSTOMERS_KEY})
    assert answer.status_code == 201, answer.text
    headers = {
        "traceparent": CLIENT,
        "tracestate": f"a={PLANTED}",
        "baggage": f"a={PLANTED}",
        "Idempotency-Key": PLANTED,
    }
    lease = await traced.lease(
        headers, name=PLANTED, labels={"team": PLANTED}, ssh_key_ids=[answer.json()["id"]]
    )
    await traced.http.get(f"/v1/leases/{PLANTED}", params={"cursor": PLANTED})
    await traced.http.get(f"/{PLANTED}")
    await traced.http.request(PLANTED.upper().replace("-", ""), "/v1/leases")
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    assert machine.address is not None
    assert stage.access.machines[machine.address].customer
    (bought,) = stage.cloud.machines.values()
    assert PLANTED in bought.order.user_data
    bugs = iter([True])
    await traced.http.post(f"/v1/leases/{on_wire(Prefix.LEASE, lease.id)}/release")
    await stage.play_until(lease, "ended")

    failures = {(span.name, attributes(span).get(Attribute.ERROR)) for span in traced.spans.all}
    assert {
        ("provider launch", "OutcomeUnknown"),
        ("provider terminate", "OutcomeUnknown"),
        ("machine session", "StepFailed"),
    } <= failures
    text = traced.spans.text()
    for word in (
        PLANTED,
        PLANTED.upper().replace("-", ""),
        secret,
        _CUSTOMERS_KEY.split()[1],
        _PUBLIC,
        "ssh-ed25519",
    ):
        assert word not in text
    allowed = {attribute.value for attribute in Attribute}
    for span in traced.spans.all:
        assert set(span.attributes or ()) <= allowed, span.name
        assert not span.events
        assert span.status.description is None
        assert not any(link.attributes for link in span.links)


async def test_a_clients_trace_is_linked_and_neither_chooses_ours_nor_whether_it_is_recorded(
    traced: Traced,
) -> None:
    not_recorded = CLIENT[:-2] + "00"
    for client in (CLIENT, not_recorded):
        with case(client):
            traced.spans.clear()
            assert (await traced.http.get("/v1/leases", headers={"traceparent": client})).is_success
            span = traced.spans.one("GET /v1/leases")
            assert span.parent is None
            assert trace_id(span) != CLIENT.split("-")[1]
            (link,) = span.links
            assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == CLIENT[3:-3]


async def test_a_traceparent_that_is_malformed_or_repeated_leaves_nothing_in_a_span(traced: Traced) -> None:
    for headers in (
        [("traceparent", "00-" + "0" * 32 + "-" + "1" * 16 + "-01")],
        [("traceparent", "\xff\x01\x1b[31m")],
        [("traceparent", CLIENT + "-" + "x" * 5_000)],
        [("traceparent", CLIENT)] * 2,
        [("traceparent", CLIENT)] * 1_000,
        [("tracestate", "a=" + "b" * 60_000)],
        [("baggage", "a=b")] * 1_000,
    ):
        with case(str(headers)[:80]):
            traced.spans.clear()
            answer = await traced.http.get(
                "/v1/leases", headers=[(n.encode(), v.encode("latin-1")) for n, v in headers]
            )
            assert answer.status_code == 200
            assert not {"traceparent", "tracestate", "traceresponse"} & set(answer.headers)
            span = traced.spans.one("GET /v1/leases")
            assert span.parent is None
            assert not span.links
            assert span.context is not None
            assert not span.context.trace_state


async def test_strangers_and_probes_leave_no_span(traced: Traced) -> None:
    stranger = {"Authorization": "Bearer spk_" + "x" * 43, "traceparent": CLIENT}
    for path, headers, status in (
        ("/v1/leases", stranger, 401),
        ("/no/such/path", stranger, 404),
        ("/healthz", {}, 200),
        ("/readyz", {}, 200),
    ):
        with case(path):
            assert (await traced.http.get(path, headers=headers)).status_code == status
            assert not traced.spans.all
    assert (await traced.http.get("/v1/leases/nothing")).status_code == 404
    assert traced.spans.one("GET /v1/leases/{lease_id}"), "a customer's refused request has one"


async def test_the_requests_for_a_lease_and_their_traces_are_found_by_the_lease_and_by_the_request(
    traced: Traced,
) -> None:
    traced.stage.cloud.stock.clear()
    answer = await traced.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []})
    lease_id = answer.json()["id"]
    released = await traced.http.post(f"/v1/leases/{lease_id}/release")
    requests = [
        span
        for span in traced.spans.all
        if attributes(span).get(Attribute.REQUEST)
        in (answer.headers["x-request-id"], released.headers["x-request-id"])
    ]
    of_lease = [span for span in traced.spans.all if attributes(span).get(Attribute.LEASE) == lease_id]
    assert len(requests) == 2
    assert {trace_id(span) for span in requests} == {trace_id(span) for span in of_lease}


async def test_a_loop_that_finds_nothing_to_do_and_a_lease_that_waits_add_no_spans(traced: Traced) -> None:
    traced.stage.cloud.stock.clear()
    await traced.stage.play(600, step=30)
    await traced.lease({"traceparent": CLIENT})
    traced.spans.clear()
    await traced.stage.play(60)
    assert {span.name for span in traced.spans.all} <= {
        "observe_machines",
        "provider inventory",
        "refresh_offers",
        "seal_audit",  # The request left a line in the audit log.
        "provider offers",
        "read_planned_work",
        "sweep_children",
        "provider children",
    }


async def test_a_lease_from_before_traces_were_turned_on_is_worked_on_in_the_activations_trace(
    traced: Traced,
) -> None:
    lease = await traced.stage.lease(await traced.stage.organization(), name="before")
    await traced.stage.play_until(lease, "ready")
    launch = traced.spans.one("provider launch")
    assert traced.spans.path(launch) == ["launch_machines", "launch_machines", "provider launch"]


async def test_a_request_that_fails_says_by_which_type_and_an_answer_of_the_4xx_is_no_failure(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(PLANTED)

    monkeypatch.setattr("control_plane.services.lease_overviews.page", broken)
    assert (await traced.http.get("/v1/leases")).status_code == 500
    span = traced.spans.one("GET /v1/leases")
    assert attributes(span)[Attribute.ERROR] == "RuntimeError"
    assert span.status.status_code is StatusCode.ERROR
    assert (await traced.http.get("/v1/leases/nothing")).status_code == 404
    span = traced.spans.one("GET /v1/leases/{lease_id}")
    assert Attribute.ERROR not in attributes(span)
    assert span.status.status_code is StatusCode.UNSET
    assert PLANTED not in traced.spans.text()


async def test_of_an_exception_that_ends_a_span_only_the_type_is_recorded(traced: Traced) -> None:
    with pytest.raises(ValueError, match=PLANTED), traced.spans.tracer.span("any"):
        raise ValueError(PLANTED)
    assert attributes(traced.spans.one("any")) == {Attribute.ERROR: "ValueError"}
    assert PLANTED not in traced.spans.text()
