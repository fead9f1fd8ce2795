"""The life of an organization as operators decide it: what each change ends, who is refused from then on, what stays."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from control_plane.api.auth import Authenticator
from control_plane.db import organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.ids import ApiKeyId, Prefix, off_wire
from control_plane.domain.organization import OPEN, OrganizationState
from control_plane.services import leases, principals
from tests.integration.api.conftest import Api, Tenant, settle, tenant_in
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.open_stream import OpenStream
from tests.integration.api.problems import hold
from tests.integration.api.test_changes import Process, processes
from tests.support.cases import case
from tests.support.listening import until
from tests.support.locks import until_somebody_waits
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

S = OrganizationState
HOUR_NANO = 3_600_000_000
"""The hold of a lease of one GPU."""
_LIVE = text("SELECT count(*) AS live FROM leases WHERE state NOT IN ('ending', 'ended')")
_REASONS = text("SELECT state, end_reason, end_why FROM leases ORDER BY created_at, id")
LEASE = {"sku": "h100x1", "ssh_key_ids": []}


def path_of(tenant: Tenant, ending: str = "") -> str:
    return f"/v1/operator/organizations/org_{tenant.id.hex}{ending}"


async def change(operator: Tenant, tenant: Tenant, way: str, **body: Any) -> httpx.Response:
    return await operator.http.post(path_of(tenant, f"/{way}"), json={"reason": "unpaid since May"} | body)


async def changed(operator: Tenant, tenant: Tenant, way: str, **body: Any) -> dict[str, Any]:
    answer = await change(operator, tenant, way, **body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def live_leases(api: Api) -> int:
    async with api.owner.db.reading() as connection:
        return int((await rows(connection, _LIVE))[0].live)


async def test_a_closure_ends_leases_keys_and_holds_and_says_so(
    api: Api, acme: Tenant, operator: Tenant, stage: Stage
) -> None:
    await acme.lease()
    for _ in range(20):
        await stage.round()
        api.clock.advance(2)
    await acme.http.post("/v1/api-keys", json={"name": "second"})
    await acme.lease()
    ending = await acme.lease()
    await acme.http.post(f"/v1/leases/{ending}/release")
    answer = await changed(operator, acme, "closures")
    event, organization = answer["event"], answer["organization"]
    assert event["ended"] == {
        "waiting_leases": 1,
        "starting_leases": 0,
        "ready_leases": 1,
        "ending_leases": 1,
        "api_keys": 2,
        "holds": event["ended"]["holds"],
    }
    assert HOUR_NANO < event["ended"]["holds"]["nano"] < 2 * HOUR_NANO
    assert 0 < event["held"]["nano"] == 2 * HOUR_NANO - event["ended"]["holds"]["nano"]
    assert (event["state_before"], event["event"], event["state_after"]) == (
        "active",
        "closure_requested",
        "closing",
    )
    assert event["reason"] == "unpaid since May"
    assert event["actor_kind"] == "operator"
    assert event["request_id"]
    assert (organization["state"], organization["gpus_held"]) == ("closing", 0)
    async with api.owner.db.reading() as connection:
        found = await rows(connection, _REASONS)
    assert [(row.state, row.end_reason) for row in found] == [
        ("ending", "organization_closed"),
        ("ending", "organization_closed"),
        ("ending", "released"),
    ]
    assert found[0].end_why == "unpaid since May"
    assert (await operator.http.get(path_of(acme, "/history"))).json()["items"] == [event]


async def test_from_the_closure_on_every_key_is_refused_also_for_a_replay(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    key = {"Idempotency-Key": "once"}
    issued = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
    second = api.client(issued["secret"])
    assert (await second.get("/v1/organization")).status_code == 200
    made = await acme.http.post("/v1/leases", json=LEASE, headers=key)
    assert made.status_code == 202
    await changed(operator, acme, "closures")
    for client in (acme.http, second):
        hold(await client.get("/v1/organization"), "unauthenticated")
        hold(await client.post("/v1/leases", json=LEASE, headers=key), "unauthenticated")
        hold(await client.post(f"/v1/leases/{made.json()['id']}/release"), "unauthenticated")
    assert (await operator.http.get("/v1/organization")).status_code == 200


async def test_a_process_that_still_remembers_a_key_does_nothing_for_a_closed_organization(
    api: Api, acme: Tenant, operator: Tenant, database_url: str
) -> None:
    """It heard nothing of the closure, and remembers keys for a second. Or it stood still for much longer."""
    deaf = Process(api, database_url)
    first, api.app = api.app, deaf.app
    there, api.app = api.client(acme.secret), first
    key = {"Idempotency-Key": "once"}
    lease = (await there.post("/v1/leases", json=LEASE, headers=key)).json()["id"]
    made = await there.post("/v1/ssh-keys", json={"name": "one", "public_key": SSH_KEY})
    ssh_key = made.json()["id"]
    account = (await there.post("/v1/service-accounts", json={"name": "ci"})).json()["id"]
    await changed(operator, acme, "closures")
    assert (await there.get("/v1/organization")).status_code == 200, "it still remembers the key"
    for path, body in (
        ("/v1/leases", LEASE),
        ("/v1/api-keys", {"name": "more"}),
        ("/v1/ssh-keys", {"name": "more", "public_key": SSH_KEY}),
        ("/v1/projects", {"name": "more"}),
    ):
        for headers in ({}, key):
            hold(await there.post(path, json=body, headers=headers), "unauthenticated")
    hold(await there.get(f"/v1/leases/{lease}/events"), "unauthenticated")
    changes: tuple[tuple[str, str, dict[str, object] | None], ...] = (
        ("PUT", f"/v1/leases/{lease}/labels", {"labels": {"team": "research"}}),
        ("PATCH", f"/v1/leases/{lease}", {"auto_release": {"after_seconds": 60}}),
        ("PUT", "/v1/organization/envelope", {"gpus": 1}),
        ("DELETE", f"/v1/ssh-keys/{ssh_key}", None),
        ("DELETE", f"/v1/service-accounts/{account}", None),
    )
    for method, path, change in changes:
        with case(method, path):
            hold(await there.request(method, path, json=change), "unauthenticated")
    api.clock.advance(1)
    hold(await there.get("/v1/organization"), "unauthenticated")
    assert await live_leases(api) == 0


async def test_a_closure_counts_at_once_in_the_other_process_and_ends_the_organization_s_streams(
    api: Api, acme: Tenant, operator: Tenant, database_url: str
) -> None:
    lease, other = await acme.lease(), await operator.lease()
    async with processes(api, database_url, 2) as (here, there):
        streams = [OpenStream(process.app, acme.secret, lease) for process in (here, there)]
        bystander = OpenStream(there.app, operator.secret, other)
        for stream in (*streams, bystander):
            await stream.until(b"event: status")
        api.app = here.app
        answer = await api.client(operator.secret).post(path_of(acme, "/closures"), json={"reason": "test"})
        assert answer.status_code == 201
        hold(await api.client(acme.secret).get("/v1/organization"), "unauthenticated")
        for stream in streams:
            await until(stream.task.done)
            assert stream.events[-1] == ("end", None, {"reason": "revoked"})
        api.app = there.app
        hold(await api.client(acme.secret).get("/v1/organization"), "unauthenticated")
        assert not bystander.task.done()
        await bystander.leave()
    # No clock moved: neither the streams' nor the one by which keys are forgotten.


def _more_than(authenticator: Authenticator, forgotten: int) -> bool:
    return authenticator._forgotten > forgotten


async def test_a_suspension_and_its_end_count_at_once_in_the_other_process(
    api: Api, acme: Tenant, operator: Tenant, database_url: str
) -> None:
    async with processes(api, database_url, 2) as (here, there):
        api.app = there.app
        remembered = api.client(acme.secret)
        assert (await remembered.get("/v1/organization")).json()["state"] == "active"
        api.app = here.app
        us = api.client(operator.secret)
        heard = there.app.state.context.authenticator
        for way, code in (("suspensions", "organization_suspended"), ("resumptions", None)):
            before = heard._forgotten
            assert (await us.post(path_of(acme, f"/{way}"), json={"reason": "test"})).status_code == 201
            await until(partial(_more_than, heard, before))
            answer = await remembered.post("/v1/projects", json={"name": "more"})
            assert answer.is_success if code is None else answer.json()["code"] == code
    # No clock moved.


async def test_a_key_that_was_made_while_its_organization_closed_opens_nothing(
    api: Api, acme: Tenant, operator: Tenant, db: Database
) -> None:
    """Its row is not revoked, because the closure did not see it: the state of the organization refuses it."""
    issued = (await acme.http.post("/v1/api-keys", json={"name": "second"})).json()
    await changed(operator, acme, "closures")
    async with db.transaction() as connection:
        await connection.execute(text("UPDATE api_keys SET revoked_at = NULL"))
    hold(await api.client(issued["secret"]).get("/v1/organization"), "unauthenticated")
    key = ApiKeyId(off_wire(Prefix.API_KEY, issued["key"]["id"]))
    assert await principals.of_keys(api.world, [key]) == {}, "a stream of it ends as well"


async def test_every_stream_of_an_organization_ends_whatever_it_was_opened_with(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    lease, other = await acme.lease(), await operator.lease()
    stream, bystander = OpenStream(api.app, acme.secret, lease), OpenStream(api.app, operator.secret, other)
    for each in (stream, bystander):
        await each.until(b"event: status")
    context = api.app.state.context
    context.organization_changed(acme.id, S.SUSPENDED)
    context.organization_changed(acme.id, S.CLOSING)
    await until(stream.task.done)
    assert stream.events[-1] == ("end", None, {"reason": "revoked"})
    assert not bystander.task.done()
    await bystander.leave()


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """Lease creations stop before they read anything: the first event says so, the second lets them go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    create = leases.create

    async def stopped(*arguments: Any, **named: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await create(*arguments, **named)

    monkeypatch.setattr(leases, "create", stopped)
    yield begun, go_on
    go_on.set()


async def test_a_creation_that_runs_while_the_closure_commits_is_ended_by_it(
    api: Api, acme: Tenant, operator: Tenant, owner: Database, slow: tuple[asyncio.Event, asyncio.Event]
) -> None:
    begun, go_on = slow
    creating = asyncio.create_task(acme.http.post("/v1/leases", json=LEASE))
    await begun.wait()
    closing = asyncio.create_task(change(operator, acme, "closures"))
    await until_somebody_waits(owner)
    assert not closing.done(), "it waits for the creation that began before"
    go_on.set()
    assert (await creating).status_code == 202
    answer = (await closing).json()
    assert answer["event"]["ended"]["waiting_leases"] == 1
    assert await live_leases(api) == 0


async def test_a_creation_that_comes_while_the_closure_commits_is_refused(
    api: Api, acme: Tenant, operator: Tenant, owner: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, go_on = asyncio.Event(), asyncio.Event()
    move = organizations.move

    async def stopped(connection: Connection, *arguments: Any, **named: Any) -> bool:
        done = await move(connection, *arguments, **named)
        moved.set()
        await go_on.wait()
        return done

    monkeypatch.setattr(organizations, "move", stopped)
    closing = asyncio.create_task(change(operator, acme, "closures"))
    await moved.wait()
    creating = asyncio.create_task(acme.http.post("/v1/leases", json=LEASE))
    await until_somebody_waits(owner)
    go_on.set()
    assert (await closing).json()["event"]["ended"]["waiting_leases"] == 0
    hold(await creating, "unauthenticated")
    assert await live_leases(api) == 0


async def test_closures_at_the_same_time_end_everything_once(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    for _ in range(3):
        await acme.lease()
    answers = await asyncio.gather(*(change(operator, acme, "closures") for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["event"]["number"] for answer in answers}) == 1
    assert answers[0].json()["event"]["ended"]["waiting_leases"] == 3
    assert len((await operator.http.get(path_of(acme, "/history"))).json()["items"]) == 1


async def test_a_suspended_organization_reads_and_releases_and_spends_nothing(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    lease = await acme.lease()
    answer = await changed(operator, acme, "suspensions")
    assert answer["organization"]["state"] == "suspended"
    assert answer["event"]["ended"]["waiting_leases"] == 0
    assert (await acme.http.get("/v1/organization")).json()["state"] == "suspended"
    assert (await acme.http.get(f"/v1/leases/{lease}")).json()["state"] == "placing"
    for path, body in (
        ("/v1/leases", LEASE),
        ("/v1/api-keys", {"name": "more"}),
        ("/v1/ssh-keys", {"name": "more", "public_key": SSH_KEY}),
    ):
        hold(await acme.http.post(path, json=body), "organization_suspended")
    quote = (await acme.http.post("/v1/quotes", json={"sku": "h100x1"})).json()
    assert quote["verdict"]["code"] == "organization_suspended"
    assert (await acme.http.post(f"/v1/leases/{lease}/release")).is_success
    await changed(operator, acme, "resumptions", reason="paid")
    assert (await acme.http.post("/v1/leases", json=LEASE)).status_code == 202


async def test_a_suspension_ends_leases_when_its_reason_demands_it_also_later(
    api: Api, acme: Tenant, operator: Tenant
) -> None:
    await acme.lease()
    await changed(operator, acme, "suspensions")
    assert await live_leases(api) == 1
    answer = await changed(operator, acme, "suspensions", end_leases=True, reason="abuse")
    assert answer["event"]["ended"]["waiting_leases"] == 1
    assert answer["event"]["ended"]["api_keys"] == 0
    async with api.owner.db.reading() as connection:
        (row,) = await rows(connection, _REASONS)
    assert (row.end_reason, row.end_why) == ("organization_suspended", "abuse")
    reasons = [
        event["reason"] for event in (await operator.http.get(path_of(acme, "/history"))).json()["items"]
    ]
    assert reasons == ["unpaid since May", "abuse"]


async def test_a_change_is_made_only_in_the_states_that_allow_it(api: Api, operator: Tenant) -> None:
    allowed = {
        "suspensions": {S.ACTIVE, S.SUSPENDED},
        "resumptions": {S.SUSPENDED},
        "closures": set(S),
        "deletions": {S.CLOSED, S.DELETED},
    }
    for state, (way, states) in itertools.product(S, allowed.items()):
        tenant = await tenant_in(api, operator, state, f"{state} {way}")
        before = (await operator.http.get(path_of(tenant))).json()
        answer = await change(operator, tenant, way)
        if state in states:
            assert answer.status_code == 201, (state, way)
        else:
            hold(answer, "organization_state")
            assert f"is {state};" in answer.json()["detail"]
            assert (await operator.http.get(path_of(tenant))).json() == before


async def test_a_repeated_closure_and_deletion_answer_with_the_first_record(
    api: Api, operator: Tenant
) -> None:
    tenant = await tenant_in(api, operator, S.ACTIVE, "twice")
    first = await changed(operator, tenant, "closures")
    assert (await changed(operator, tenant, "closures", reason="again"))["event"] == first["event"]
    await settle(api, tenant)
    later = await changed(operator, tenant, "closures", reason="again")
    assert later["event"] == first["event"]
    assert later["organization"]["state"] == "closed"
    gone = await changed(operator, tenant, "deletions")
    assert (await changed(operator, tenant, "deletions", reason="again"))["event"] == gone["event"]


async def test_nobody_suspends_closes_or_deletes_the_organization_of_the_platform(operator: Tenant) -> None:
    assert (await operator.http.get("/v1/organization")).json()["platform"] is True
    for way in ("suspensions", "closures", "deletions"):
        hold(await change(operator, operator, way), "platform_organization")
    hold(await change(operator, operator, "resumptions"), "organization_state")
    assert (await operator.http.get("/v1/organization")).json()["state"] == "active"


async def test_the_record_states_the_balance_that_remained(api: Api, operator: Tenant) -> None:
    tenant = await tenant_in(api, operator, S.DELETED, "leaving")
    events = (await operator.http.get(path_of(tenant, "/history"))).json()["items"]
    assert [event["event"] for event in events] == ["closure_requested", "settled", "deleted"]
    assert {event["balance"]["usd"] for event in events} == {"1000.000000000"}
    assert [event["actor_kind"] for event in events] == ["operator", "loop", "operator"]
    first = (await operator.http.get(path_of(tenant, "/history?limit=1"))).json()
    rest = (await operator.http.get(path_of(tenant, f"/history?cursor={first['next_cursor']}"))).json()
    assert [*first["items"], *rest["items"]] == events
    assert rest["next_cursor"] is None


async def test_a_deletion_erases_every_word_of_the_customer_and_leaves_the_books(
    api: Api, acme: Tenant, operator: Tenant, stage: Stage
) -> None:
    secret_word = "heliotrope"
    await acme.http.post("/v1/ssh-keys", json={"name": secret_word, "public_key": SSH_KEY})
    await acme.http.post("/v1/api-keys", json={"name": secret_word}, headers={"Idempotency-Key": secret_word})
    await acme.http.post("/v1/projects", json={"name": secret_word})
    await acme.http.post(
        "/v1/leases", json={"sku": "h100x1", "name": secret_word, "labels": {"a": secret_word}}
    )
    for _ in range(20):
        await stage.round()
        api.clock.advance(2)
    await changed(operator, acme, "closures")
    for _ in range(20):
        await stage.round()
        api.clock.advance(5)
    assert (await operator.http.get(path_of(acme))).json()["state"] == "closed"
    before = await _dump(api)
    assert secret_word in before
    reconciled = (await operator.http.get(path_of(acme, "/reconciliation"))).json()
    assert reconciled["rated"]["nano"] > 0
    answer = await changed(operator, acme, "deletions")
    assert answer["organization"]["erased_at"] is None
    await stage.run("erase_organizations")
    assert (await operator.http.get(path_of(acme))).json()["erased_at"]
    after = await _dump(api)
    assert secret_word not in after
    assert SSH_KEY.split()[1] not in after
    assert "acme" not in after
    assert (await operator.http.get(path_of(acme, "/reconciliation"))).json() == reconciled
    assert (await operator.http.post("/v1/operator/organizations", json={"name": "acme"})).status_code == 201


_TABLES = text("""
SELECT relname AS name FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname NOT IN ('alembic_version', 'organization_events')
""")


async def _dump(api: Api) -> str:
    """Every row of the database, as text, but for the record that operators wrote themselves."""
    found = []
    async with api.owner.db.reading() as connection:
        for table in await rows(connection, _TABLES):
            dump = text(f"SELECT coalesce(string_agg(t::text, ' '), '') AS text FROM {table.name} t")
            found.append((await rows(connection, dump))[0].text)
    return "\n".join(found)


async def test_organizations_are_found_by_state_and_by_a_part_of_their_names(
    api: Api, operator: Tenant
) -> None:
    for state in S:
        await tenant_in(api, operator, state, f"Firm {state}")
    for query, wanted in (
        ("state=active", {"us", "Firm active"}),
        ("state=suspended&state=closing", {"Firm suspended", "Firm closing"}),
        ("name=firm", {f"Firm {state}" for state in S}),
        ("name=FIRM&state=closed", {"Firm closed"}),
        ("name=nobody", set()),
    ):
        page = (await operator.http.get(f"/v1/operator/organizations?{query}")).json()
        assert {organization["name"] for organization in page["items"]} == wanted, query
    hold(await operator.http.get("/v1/operator/organizations?state=gone"), "invalid_parameter")


async def test_only_open_organizations_keep_their_state_for_a_request(api: Api, operator: Tenant) -> None:
    for state in S:
        tenant = await tenant_in(api, operator, state, f"firm {state}")
        async with api.world.db.transaction(tenant.id) as connection:
            assert await organizations.hold_open(connection, tenant.id) is (state in OPEN), state
