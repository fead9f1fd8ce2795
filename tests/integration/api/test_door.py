"""The bounds at the door: rates and requests in progress per key, organization and address; methods; odd headers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from control_plane.api import costs, door, guesses, requests
from control_plane.api.app import create_app
from control_plane.services import lease_overviews
from control_plane.settings import Settings
from tests.integration.api.conftest import SETTINGS, Api, Shared, Tenant
from tests.integration.api.endpoints import ENDPOINTS
from tests.integration.api.problems import SOME_ID, hold
from tests.support.cases import case
from tests.support.listening import until

pytestmark = pytest.mark.database


def _with(api: Api, **settings: Any) -> Settings:
    """Serve anew with other settings. Clients that were made before use the old app."""
    changed = replace(SETTINGS, **settings)
    api.app = create_app(api.world, changed, metrics=api.metrics, sleep=api.sleep)
    return changed


async def test_keys_of_one_organization_share_its_rate(api: Api, acme: Tenant, other: Tenant) -> None:
    created = await acme.http.post("/v1/api-keys", json={"name": "second"})
    _with(
        api,
        requests_per_second=1,
        requests_burst=3,
        organization_requests_per_second=2,
        organization_requests_burst=4,
    )
    first, second = api.client(acme.secret), api.client(created.json()["secret"])
    answers = [await first.get("/v1/organization") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"key";q=3;w=3, "organization";q=4;w=2'
    assert answers[2].headers["ratelimit"] == '"key";r=0;t=3, "organization";r=1;t=2'
    assert "key" in answers[3].json()["detail"]
    answers = [await second.get("/v1/organization") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429], (
        "a refused request costs the others nothing"
    )
    hold(answers[1], "rate_limited")
    assert "organization" in answers[1].json()["detail"]
    assert answers[1].headers["retry-after"] == "1"
    assert (await api.client(other.secret).get("/v1/organization")).status_code == 200


def _keep_the_lane(monkeypatch: pytest.MonkeyPatch, *, per_second: float, seconds_max: float) -> None:
    monkeypatch.setattr(guesses, "LANE_PER_SECOND", per_second)
    monkeypatch.setattr(guesses, "LANE_SECONDS_MAX", seconds_max)


async def test_wrong_keys_cost_no_query_once_their_address_has_tried_too_many(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep_the_lane(monkeypatch, per_second=1e-6, seconds_max=0.01)  # Nobody's turn comes.
    _with(api, anonymous_requests_per_second=1, trusted_proxies=(ip_network("127.0.0.1"),))
    looked_up = 0
    reading = api.world.db.reading

    def counted(*arguments: Any) -> Any:
        nonlocal looked_up
        looked_up += 1
        return reading(*arguments)

    good = api.client(acme.secret)
    assert (await good.get("/v1/organization", headers={"X-Forwarded-For": "9.9.9.9"})).status_code == 200
    monkeypatch.setattr(api.world.db, "reading", counted)
    codes = []
    for number in range(9):
        answer = await api.client(f"spk_wrong{number}").get(
            "/v1/skus", headers={"X-Forwarded-For": "9.9.9.9"}
        )
        codes.append(answer.status_code)
    assert codes == [401] * door.ANONYMOUS_BURST_SECONDS + [429] * 4
    assert looked_up == door.ANONYMOUS_BURST_SECONDS
    hold(answer, "rate_limited")
    # A key that was right before is still heard from there, and other addresses are.
    await api.clock.sleep(1_000)
    for number in range(door.ANONYMOUS_BURST_SECONDS + 1):
        await api.client(f"spk_wrong{number}").get("/v1/skus", headers={"X-Forwarded-For": "9.9.9.9"})
    assert (await good.get("/v1/skus", headers={"X-Forwarded-For": "9.9.9.9"})).status_code == 200
    assert (
        await api.client("spk_x").get("/v1/skus", headers={"X-Forwarded-For": "9.9.9.8"})
    ).status_code == 401


async def test_a_key_that_is_new_here_gets_through_although_its_address_tried_too_many(
    api: Api, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many honest callers and an attacker may share one address: a company's, or a mobile network's."""
    _keep_the_lane(monkeypatch, per_second=1e6, seconds_max=60)
    _with(api, anonymous_requests_per_second=1)
    flood = [api.client(f"spk_guess{number}").get("/v1/skus") for number in range(50)]
    honest = [api.client(tenant.secret).get("/v1/skus") for tenant in (acme, other)]
    answers = await asyncio.gather(*flood, *honest)
    assert [answer.status_code for answer in answers[-2:]] == [200, 200]
    assert {answer.status_code for answer in answers[:-2]} == {401}


async def test_one_wrong_key_from_many_addresses_is_soon_refused_without_a_look(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with(api, anonymous_requests_per_second=20, trusted_proxies=(ip_network("127.0.0.1"),))

    async def tried(secret: str, address: int) -> int:
        answer = await api.client(secret).get("/v1/skus", headers={"X-Forwarded-For": f"9.9.{address}.9"})
        return answer.status_code

    most = 20 * door.ANONYMOUS_BURST_SECONDS // guesses.REPEATS
    assert [await tried("spk_stolen", address) for address in range(most)] == [401] * most
    assert {await tried("spk_stolen", 100 + address) for address in range(20)} == {429}
    assert await tried(acme.secret, 200) == 200, "no address is blamed"
    assert await tried("spk_other", 201) == 401, "and no other key"


async def _signed() -> bool:
    return True


async def _unsigned() -> bool:
    return False


async def _may_try(
    found: guesses.Guesses, address: str, key: str, now: float, is_signed: Callable[[], Awaitable[bool]]
) -> bool:
    try:
        async with found.trying(address, key, now, is_signed):
            return True
    except guesses.TooManyWrong:
        return False


async def test_keys_that_are_looked_up_at_the_same_time_are_counted_before_one_has_proved_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _keep_the_lane(monkeypatch, per_second=1e-6, seconds_max=0.01)  # Nobody's turn comes.
    found, answered = guesses.Guesses(rate=1, burst=3), asyncio.Event()

    async def tries(number: int) -> bool:
        try:
            async with found.trying("an address", f"Bearer spk_{number}", 0, _unsigned):
                await answered.wait()
        except guesses.TooManyWrong:
            return False
        return True

    trying = [asyncio.create_task(tries(number)) for number in range(10)]
    refused, _ = await asyncio.wait(trying[3:], timeout=10)
    assert len(refused) == 7, "three are looked up, and the others wait in vain"
    answered.set()
    assert await asyncio.gather(*trying) == [True] * 3 + [False] * 7
    assert await _may_try(found, "an address", "Bearer spk_new", 0, _unsigned), "none of them was wrong"


async def test_a_key_that_was_right_is_heard_from_everywhere_until_it_is_wrong() -> None:
    found, key = guesses.Guesses(rate=1, burst=1), "Bearer spk_right"
    found.right(key)
    found.wrong("an address", "spk_wrong", 0)
    assert await _may_try(found, "an address", key, 0, _unsigned)
    assert not await _may_try(found, "an address", "no key at all", 0, _unsigned)
    found.wrong("another address", key, 0)
    assert not await _may_try(found, "a third address", key, 0, _unsigned), (
        "it was revoked, and is tried again"
    )


async def test_a_token_that_we_signed_and_every_kind_of_secret_get_through_although_their_address_tried_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person behind an attacked address has a new access token every quarter of an hour."""
    _keep_the_lane(monkeypatch, per_second=1e-6, seconds_max=0.01)  # Nobody's turn comes.
    found = guesses.Guesses(rate=1, burst=1)
    found.wrong("an address", "Bearer spk_wrong", 0)
    assert await _may_try(found, "an address", "Bearer eyJ.a.b", 0, _signed)
    assert not await _may_try(found, "an address", "Bearer eyJ.c.d", 0, _unsigned)
    _keep_the_lane(monkeypatch, per_second=1e6, seconds_max=60)
    found = guesses.Guesses(rate=1, burst=1)
    found.wrong("an address", "Bearer spk_wrong", 0)
    for secret in ("spk_new", "spr_new", "spd_new", "eyJ.new.one"):
        with case(secret):
            assert await _may_try(found, "an address", f"Bearer {secret}", 0, _unsigned), "it waits"


async def test_a_full_lane_gives_the_place_of_some_to_those_who_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever comes first in great number would keep everybody else out."""
    _keep_the_lane(monkeypatch, per_second=1e-6, seconds_max=60)
    lane = guesses.Lane()
    waiting = [asyncio.create_task(lane.wait("busy")) for _ in range(guesses.LANE_WAITING_MAX + 5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [task.result() for task in waiting if task.done()] == [False] * 5
    others = [
        asyncio.create_task(lane.wait(f"other {number}"))
        for number in range(guesses.LANES_WAITING_MAX - guesses.LANE_WAITING_MAX + 3)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in others), "the longest lane makes room"
    assert sum(task.done() for task in waiting) == 5 + 3
    for task in (*waiting, *others):
        task.cancel()
    await asyncio.gather(*waiting, *others, return_exceptions=True)


async def test_of_those_who_wait_a_key_that_was_refused_before_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An honest caller comes again with the same key, and whoever guesses with another one."""
    _keep_the_lane(monkeypatch, per_second=1e-6, seconds_max=0.01)  # Nobody's turn comes.
    found = guesses.Guesses(rate=1e-6, burst=1)
    found.wrong("an address", "Bearer spk_wrong", 0)
    assert not await _may_try(found, "an address", "Bearer spk_honest", 0, _unsigned)
    _keep_the_lane(monkeypatch, per_second=100, seconds_max=60)
    found._lane = guesses.Lane()  # The old one lets the next one pass after days.
    come: list[str] = []

    async def comes(key: str) -> None:
        if await _may_try(found, "an address", f"Bearer {key}", 0, _unsigned):
            come.append(key)

    crowd = [asyncio.create_task(comes(f"spk_guess{number}")) for number in range(30)]
    await asyncio.gather(comes("spk_honest"), *crowd)
    assert come[0] == "spk_honest"
    assert len(come) == 31


async def test_one_whose_time_is_over_when_its_turn_comes_does_not_stop_the_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _keep_the_lane(monkeypatch, per_second=100, seconds_max=60)
    lane = guesses.Lane()
    late = asyncio.create_task(lane.wait("an address", 1))
    await asyncio.sleep(0)
    (waiting,) = lane._waiting["an address"]
    waiting.passes.cancel()  # Its time is over, and its task has not run since.
    lane._let_one_pass("an address")
    assert await lane.wait("an address"), "the lane goes on"
    assert late.cancelled() or late.done()


async def test_expensive_requests_cost_more_and_who_has_none_left_is_told_when(
    api: Api, acme: Tenant
) -> None:
    _with(api, requests_per_second=1, requests_burst=6)
    client = api.client(acme.secret)
    quote = await client.post("/v1/quotes", json={"sku": "h100x1"})
    assert quote.headers["ratelimit"].startswith(f'"key";r={6 - costs.TOKENS["createQuote"]};')
    refused = await client.post("/v1/quotes", json={"sku": "h100x1"})
    hold(refused, "rate_limited")
    assert "this one counts as 5" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "4"
    assert (await client.get("/v1/organization")).status_code == 200, "one token is left"


async def test_who_one_is_can_be_asked_when_the_rate_is_used_up_and_has_a_rate_of_its_own(
    api: Api, acme: Tenant
) -> None:
    _with(api, requests_per_second=1, requests_burst=2)
    client = api.client(acme.secret)
    assert [(await client.get("/v1/organization")).status_code for _ in range(3)] == [200, 200, 429]
    answers = [await client.get("/v1/me") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"key";q=2;w=2'


def test_what_the_table_of_costs_names_are_endpoints(api: Api) -> None:
    operations = {
        str(handler.operation_id)
        for route in api.app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
    }
    assert operations >= costs.TOKENS.keys() | costs.APART


async def test_endpoints_without_a_key_are_limited_per_address(api: Api) -> None:
    _with(api, anonymous_requests_per_second=1)
    answers = [await api.anonymous.get("/readyz") for _ in range(50)]  # Far faster than one a second.
    assert all(answer.is_success for answer in answers[: door.ANONYMOUS_BURST_SECONDS])
    refused = [answer for answer in answers if not answer.is_success]
    assert refused
    hold(refused[0], "rate_limited")


async def _never() -> Any:
    await asyncio.sleep(3_600)


async def _half_sent(api: Api, secret: str, address: str, answered: Callable[[int], object]) -> None:
    """A request whose body never ends."""
    parts = [{"type": "http.request", "body": b'{"sku"', "more_body": True}]

    async def receive() -> Any:
        return parts.pop() if parts else await _never()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered(message["status"])

    scope: Any = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/leases",
        "raw_path": b"/v1/leases",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [
            (b"authorization", f"Bearer {secret}".encode()),
            (b"content-type", b"application/json"),
        ],
        "client": (address, 1),
        "server": ("api", 80),
    }
    await api.app(scope, receive, send)


async def test_half_sent_bodies_take_no_more_than_the_bounds_and_end_at_their_deadline(
    api: Api, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 2)  # All ten arrive meanwhile, also on a busy machine.
    second = (await acme.http.post("/v1/api-keys", json={"name": "2"})).json()["secret"]
    for bound, secrets, address in (
        ("KEY_REQUESTS_MAX", [acme.secret], "1.1.1.1"),
        ("ORGANIZATION_REQUESTS_MAX", [acme.secret, second], "1.1.1.1"),
        ("ADDRESS_REQUESTS_MAX", [acme.secret, other.secret], "127.0.0.1"),
        ("REQUESTS_MAX", [acme.secret, other.secret], "1.1.1.1"),
    ):
        with case(bound), monkeypatch.context() as bounded:
            bounded.setattr(door, bound, 4)
            _with(api)
            statuses: list[int] = []
            refused = asyncio.Event()

            def answered(
                status: int, statuses: list[int] = statuses, refused: asyncio.Event = refused
            ) -> None:
                statuses.append(status)
                if len(statuses) == 6:
                    refused.set()

            held = [
                asyncio.create_task(_half_sent(api, secrets[number % len(secrets)], address, answered))
                for number in range(10)
            ]
            await refused.wait()
            full = 503 if bound == "REQUESTS_MAX" else 429
            assert statuses == [full] * 6
            answer = await api.client(secrets[0]).get("/v1/organization")
            hold(answer, "overloaded" if full == 503 else "too_many_in_progress")
            assert answer.headers["retry-after"]
            await asyncio.gather(*held)
            assert statuses.count(408) == 4
            assert (await api.client(secrets[0]).get("/v1/organization")).status_code == 200


async def test_a_large_answer_counts_as_several_requests_for_its_key_and_its_organization(
    api: Api, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PART_BYTES", 30)
    second = (await acme.http.post("/v1/api-keys", json={"name": "2"})).json()["secret"]
    for method in ("GET", "HEAD"):
        with case(method):
            _with(
                api,
                requests_per_second=1,
                requests_burst=8,
                organization_requests_per_second=1,
                organization_requests_burst=8,
            )
            first = api.client(acme.secret)
            large = await first.request(method, "/v1/skus")
            assert int(large.headers["content-length"]) > 16 * 30, "more than twice the burst"
            hold(await first.get("/v1/organization"), "rate_limited")
            answer = await api.client(second).get("/v1/organization")
            hold(answer, "rate_limited")
            assert "organization" in answer.json()["detail"]
            assert (await api.client(other.secret).get("/v1/organization")).status_code == 200
            await api.clock.sleep(10)
            assert (await first.get("/v1/organization")).status_code == 200


async def test_few_requests_of_an_organization_run_at_a_time_and_the_others_pay_for_those_before_them(
    api: Api, acme: Tenant, other: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PART_BYTES", 300)
    _with(api, requests_burst=50)
    running, most, opened = 0, 0, asyncio.Event()
    page = lease_overviews.page

    async def held(*arguments: Any, **named: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await opened.wait()
        running -= 1
        return await page(*arguments, **named)

    for _ in range(8):
        await acme.lease()
    monkeypatch.setattr(lease_overviews, "page", held)
    client = api.client(acme.secret)
    waiting = [asyncio.create_task(client.get("/v1/leases")) for _ in range(20)]
    await until(lambda: running == door.ORGANIZATION_RUNNING_MAX)
    assert (await api.client(other.secret).get("/v1/organization")).status_code == 200
    opened.set()
    answers = await asyncio.gather(*waiting)
    assert most == door.ORGANIZATION_RUNNING_MAX
    codes = [answer.status_code for answer in answers]
    assert codes.count(200) < 12, "each of them costs more than ten requests"
    assert set(codes) == {200, 429}


async def test_a_request_whose_turn_does_not_come_is_refused(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "TURN_SECONDS_MAX", 0.05)
    monkeypatch.setattr(door, "ORGANIZATION_RUNNING_MAX", 1)
    _with(api)
    held, opened = asyncio.Event(), asyncio.Event()
    page = lease_overviews.page

    async def holding(*arguments: Any, **named: Any) -> Any:
        held.set()
        await opened.wait()
        return await page(*arguments, **named)

    monkeypatch.setattr(lease_overviews, "page", holding)
    client = api.client(acme.secret)
    first = asyncio.create_task(client.get("/v1/leases"))
    await held.wait()
    refused = await client.get("/v1/organization")
    hold(refused, "too_many_in_progress")
    assert refused.headers["retry-after"]
    opened.set()
    assert (await first).status_code == 200
    assert (await client.get("/v1/organization")).status_code == 200


async def test_no_answer_leaves_a_request_in_progress(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "REQUESTS_MAX", 1)
    _with(api)
    lease = await acme.lease()
    client = api.client(acme.secret)
    for method, path, status in (
        ("GET", "/healthz", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/leases", 405),
        ("OPTIONS", "/v1/leases", 204),
        ("HEAD", "/v1/leases", 200),
        ("POST", "/v1/leases", 400),
        ("GET", "/v1/leases?x=1", 400),
        ("GET", f"/v1/leases/{lease}", 200),
        ("GET", "/v1/operator/loops", 403),
        ("GET", "/v1/usage.csv", 200),
    ):
        with case(method, path):
            assert (await client.request(method, path)).status_code == status
    assert (await client.get("/v1/organization")).status_code == 200


async def test_head_answers_as_get_does_without_the_body(shared: Shared) -> None:
    lease = await shared.acme.lease()
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET":
            continue
        client = shared.operator.http if endpoint.path.startswith("/v1/operator") else shared.acme.http
        path = endpoint.at(lease if endpoint.id_prefix == "le" else f"{endpoint.id_prefix}_{SOME_ID}")
        with case(endpoint):
            head = await asyncio.wait_for(client.head(path), 10)
            assert head.content == b""
            if endpoint.path.endswith("{lease_id}/events"):
                assert head.headers["content-type"].startswith("text/event-stream")
                continue
            get = await client.get(path)
            assert head.status_code == get.status_code
            for name in ("content-type", "content-length"):
                assert head.headers.get(name) == get.headers.get(name), name
    hold(await shared.acme.http.put("/v1/leases"), "method_not_allowed")
    assert (await shared.acme.http.head("/v1/quotes")).status_code == 405


async def test_options_and_refused_methods_name_every_method_of_the_path(shared: Shared) -> None:
    methods: dict[str, set[str]] = {}
    for endpoint in ENDPOINTS:
        methods.setdefault(endpoint.path, {"OPTIONS"}).add(endpoint.method)
    for endpoint in ENDPOINTS:
        path = endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")
        expected = methods[endpoint.path] | ({"HEAD"} if "GET" in methods[endpoint.path] else set())
        with case(endpoint):
            for answer in (
                await shared.api.anonymous.options(path),  # The document of the API is public as well.
                await shared.acme.http.options(path),
                await shared.acme.http.request("TRACE", path),
            ):
                assert set(answer.headers["allow"].split(", ")) == expected
                assert answer.status_code == (405 if answer.request.method == "TRACE" else 204)


async def test_headers_that_two_readers_could_read_differently_are_refused(shared: Shared) -> None:
    key = f"Bearer {shared.acme.secret}"
    for name, values in (
        ("Authorization", (key, key)),
        ("Authorization", (key, "Bearer spk_x")),
        ("Authorization", ("Basic x", key)),
        ("Content-Type", ("text/plain", "application/json")),
        ("Host", ("a", "b")),
        ("Last-Event-Id", ("1", "2")),
    ):
        with case(name, [value[:8] for value in values]):
            headers = [(name, value) for value in values]
            if name != "Authorization":
                headers.append(("Authorization", key))
            answer = await shared.api.anonymous.get("/v1/organization", headers=httpx.Headers(headers))
            hold(answer, "bad_request")
            assert name in answer.json()["detail"]


async def test_a_body_with_a_name_twice_is_refused(shared: Shared) -> None:
    for path in [endpoint.path for endpoint in ENDPOINTS if endpoint.body]:
        body = b'{"x": 1, "x": 1}'
        client = shared.operator.http
        method = next(endpoint.method for endpoint in ENDPOINTS if endpoint.path == path and endpoint.body)
        with case(path):
            answer = await client.request(
                method,
                path.replace("{lease_id}", f"le_{SOME_ID}").replace("{organization_id}", f"org_{SOME_ID}"),
                content=body,
                headers={"Content-Type": "application/json"},
            )
            hold(answer, "malformed_json")
            assert answer.json()["errors"][0]["field"] == "x"
