"""The emulated Verda against the official OpenAPI document, so that it cannot agree with our adapter alone."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from control_plane.domain.money import NANO_PER_USD
from providers.base import Needed, PowerAction
from providers.emulators.clouds.verda import CLIENT_ID
from providers.verda import Settings, Verda
from tests.contract.clouds import a_key
from tests.contract.clouds.verda import SECRET, EmulatedVerda

SHAPES = json.loads((Path(__file__).parent / "schemas" / "verda.json").read_text())
BASE = "http://verda.test/v1/"


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(document)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps every exchange between the adapter and the emulator."""

    def __init__(self, cloud: EmulatedVerda) -> None:
        self.cloud = cloud
        self.exchanges: list[tuple[str, str, Any, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.cloud.network.handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        answer = await response.aread()
        path = request.url.path.removeprefix("/v1/")
        self.exchanges.append((request.method, path, body, json.loads(answer) if answer else None))
        return response


REQUESTS = {
    ("POST", "ssh-keys"): "AddKeyDto",
    ("POST", "scripts"): "AddScriptDto",
    ("POST", "instances"): "DeployInstancePublicDto",
    ("PUT", "instances"): "PerformInstanceActionPublicDto",
    ("DELETE", "volumes/ID"): "DeleteVolumePublicDto",
}
ANSWERS = {
    ("POST", "oauth2/token"): "Token",
    ("GET", "instances/ID"): "GetInstanceResponsePublicApiDto",
    ("POST", "ssh-keys"): "MadeId",
    ("POST", "scripts"): "MadeId",
    ("POST", "instances"): "MadeId",
}
LISTS = {
    ("GET", "instance-types"): "InstanceType",
    ("GET", "volume-types"): "VolumeType",
    ("GET", "instance-availability"): "InstanceAvailabilityResponseDto",
    ("GET", "ssh-keys"): "GetKeysResponseDto",
    ("GET", "scripts"): "GetScriptResponseDto",
    ("GET", "volumes"): "GetVolumePublicResponseDto",
    ("GET", "instances"): "GetInstanceResponsePublicApiDto",
    ("PUT", "instances"): "InstanceActionResultDto",
}
EMPTY = {("DELETE", "scripts/ID"), ("DELETE", "volumes/ID")}


async def test_every_exchange_of_a_machines_life_has_the_documented_shape() -> None:
    cloud = EmulatedVerda()
    recorded = Recorded(cloud)
    settings = Settings(client_id=CLIENT_ID, client_secret=SECRET, base_url=BASE)
    provider = Verda(settings, now=cloud.clock.now, transport=recorded)
    left = cloud.account.add_volume(a_key(), 100, [], "FIN-01")
    await provider.offers()
    ref = await provider.launch(cloud.order())
    cloud.advance(180.0)
    await provider.inventory()
    children = await provider.children()
    for action in (PowerAction.STOP, PowerAction.STOP, PowerAction.START):
        await provider.power(action, ref)
        await provider.inventory()
    await provider.terminate(ref)
    for child in children:
        if child.ref in (left.id, *cloud.account.scripts):
            await provider.delete_child(child)
    seen = set()
    ids = {ref: "ID", **{child.ref: "ID" for child in children}}
    for method, path, asked, answered in recorded.exchanges:
        place = method, "/".join(ids.get(part, part) for part in path.split("/"))
        seen.add(place)
        if place in REQUESTS:
            fits(REQUESTS[place], asked)
        if place in EMPTY:
            assert answered is None
        elif place in LISTS:
            for each in answered or ():  # What is as it is to be has no result: 204.
                fits(LISTS[place], each)
        else:
            fits(ANSWERS[place], answered)
    assert seen == {*ANSWERS, *LISTS, *EMPTY}
    await provider.close()


async def client(cloud: EmulatedVerda) -> httpx.AsyncClient:
    made = httpx.AsyncClient(transport=cloud.network, base_url=BASE)
    body = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": SECRET}
    token = (await made.post("oauth2/token", json=body)).json()["access_token"]
    made.headers["Authorization"] = f"Bearer {token}"
    return made


async def test_refusals_have_the_documented_shape() -> None:
    cloud = EmulatedVerda()
    api = await client(cloud)
    key = (await api.post("ssh-keys", json={"name": "k", "key": "ssh-ed25519 AAAA"})).json()
    image = "ubuntu-24.04"
    sound = {
        "instance_type": "1H100.80S.30V",
        "image": image,
        "hostname": "box",
        "location_code": "FIN-01",
        "ssh_key_ids": key,
    }
    cloud.scenario.stock["1H100.80S.30V", "FIN-01"] = 0
    refused = []
    for method, path, body in (
        ("POST", "oauth2/token", {"grant_type": "password"}),
        ("POST", "oauth2/token", {"grant_type": "client_credentials", "client_id": CLIENT_ID}),
        ("POST", "instances", sound | {"location_code": "MARS"}),
        ("POST", "instances", sound | {"image": "dos"}),
        ("POST", "instances", sound | {"hostname": "h" * 64}),
        ("POST", "instances", sound | {"tags": [{"key": "k" * 64}]}),
        ("POST", "instances", sound),
        ("PUT", "instances", {"action": "delete", "id": str(cloud.absent_ref)}),
        ("GET", f"instances/{cloud.absent_ref}", None),
        ("DELETE", "scripts/none", None),
        ("DELETE", "volumes/none", {}),
    ):
        answer = await api.request(method, path, json=body)
        fits("Error", answer.json())
        refused.append((answer.status_code, answer.json()["code"]))
    assert refused == [
        (400, "invalid_request"),
        (401, "unauthorized_request"),
        *[(400, "invalid_request")] * 3,
        (503, "service_unavailable"),  # Tags are read last: it is sold out before.
        (503, "service_unavailable"),
        *[(404, "not_found")] * 4,
    ]
    cloud.account.balance_usd -= cloud.account.balance_usd
    answer = await api.post("instances", json=sound)
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_funds")
    await api.aclose()


async def test_several_actions_have_a_result_each_and_one_that_was_done_before_has_none() -> None:
    cloud = EmulatedVerda()
    api = await client(cloud)
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(cloud.seconds_to_run)
    body = {"action": "delete", "id": [ref, str(cloud.absent_ref)]}
    answer = await api.put("instances", json=body)
    assert answer.status_code == 207
    for each in answer.json():
        fits("InstanceActionResultDto", each)
    assert [each["status"] for each in answer.json()] == ["success", "error"]
    again = await api.put("instances", json={"action": "delete", "id": ref})
    assert (again.status_code, again.content) == (204, b"")
    await api.aclose()


async def test_machines_are_found_by_every_tag_that_is_asked_for() -> None:
    cloud = EmulatedVerda()
    api = await client(cloud)
    refs = [await cloud.provider.launch(cloud.order(number)) for number in (1, 2)]
    for tags, found in (
        (["sp-launch-key"], refs),
        ([f"sp-launch-key={a_key(2)}"], refs[1:]),
        (["sp-launch-key", f"sp-launch-key={a_key(1)}"], refs[:1]),
        (["sp-launch-key=other"], []),
        (["sp-launch-key", "environment"], []),
    ):
        answer = await api.get("instances", params={"tag": tags})
        assert [each["id"] for each in answer.json()] == found
    await api.aclose()


@pytest.mark.parametrize(("path", "most"), [("scripts", 60), ("instances", 120)])
async def test_too_many_requests_to_one_endpoint_are_refused_until_the_minute_ends(
    path: str, most: int
) -> None:
    cloud = EmulatedVerda()
    cloud.network.seconds_between = 0.0
    api = await client(cloud)
    answers = [await api.get(path) for _ in range(most + 1)]
    assert [each.status_code for each in answers] == [200] * most + [429]
    assert answers[0].headers["RateLimit-Policy"] == f'"project";q=500;w=60, "endpoint";q={most};w=60'
    assert answers[0].headers["RateLimit"].startswith(f'"project";r=499;t=60, "endpoint";r={most - 1};')
    assert answers[-1].headers["Retry-After"] == "60"
    fits("Error", answers[-1].json())
    assert (await api.get("volumes")).status_code == 200, "another endpoint has a limit of its own"
    cloud.advance(60.0)
    assert (await api.get(path)).status_code == 200
    await api.aclose()


async def test_no_more_than_500_requests_in_a_minute_are_answered_for_one_project() -> None:
    cloud = EmulatedVerda()
    cloud.network.seconds_between = 0.0
    api = await client(cloud)
    statuses = [(await api.get(f"instances/{number}")).status_code for number in range(501)]
    assert statuses == [404] * 500 + [429]
    assert (await api.get("instance-types")).status_code == 200, "it needs no token and counts for no project"
    await api.aclose()


async def test_a_token_is_valid_for_an_hour() -> None:
    cloud = EmulatedVerda()
    api = await client(cloud)
    cloud.advance(3_590.0)
    assert (await api.get("volumes")).status_code == 200
    cloud.advance(10.0)
    answer = await api.get("volumes")
    fits("Error", answer.json())
    assert answer.status_code == 401
    await api.aclose()


async def test_a_detached_volume_costs_money_until_it_is_deleted() -> None:
    cloud = EmulatedVerda()
    cloud.network.seconds_between = 0.0
    api = await client(cloud)
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(1_800.0)
    machine, volume = 25.36 / 2, 100 * 0.2 / 730 / 2
    assert cloud.account.bill_nano() == pytest.approx((machine + volume) * NANO_PER_USD, rel=1e-9)
    await api.put("instances", json={"action": "delete", "id": ref, "volume_ids": []})
    cloud.advance(1_800.0)
    assert cloud.account.bill_nano() == pytest.approx((machine + 2 * volume) * NANO_PER_USD, rel=1e-9)
    (child,) = [each for each in await cloud.provider.children() if each.needed is Needed.WHILE_IT_EXISTS]
    await cloud.provider.delete_child(child)
    cloud.advance(1_800.0)
    assert cloud.account.bill_nano() == pytest.approx((machine + 2 * volume) * NANO_PER_USD, rel=1e-9)
    await api.aclose()
