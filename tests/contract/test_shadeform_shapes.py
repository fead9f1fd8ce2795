"""The emulated Shadeform against the official OpenAPI document, so that it cannot agree with our adapter alone."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from control_plane.domain.money import NANO_PER_USD
from providers.base import PowerAction
from providers.shadeform import STATES, Settings, connect
from tests.contract.clouds.shadeform import EmulatedShadeform

SHAPES = json.loads((Path(__file__).parent / "schemas" / "shadeform.json").read_text())


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps every exchange between the adapter and the emulator."""

    def __init__(self, cloud: EmulatedShadeform) -> None:
        self.cloud = cloud
        self.exchanges: list[tuple[str, str, Any, bytes]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.cloud.network.handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        path = request.url.path.removeprefix("/v1/")
        self.exchanges.append((request.method, path, body, await response.aread()))
        return response


ANSWERS = {
    ("GET", "instances/types"): "InstanceTypesResponse",
    ("GET", "instances"): "InstancesResponse",
    ("POST", "instances/create"): "CreateResponse",
}


async def test_every_exchange_of_a_machines_life_has_the_documented_shape() -> None:
    cloud = EmulatedShadeform()
    recorded = Recorded(cloud)
    settings = Settings(api_key=str(cloud.secret), base_url="http://shadeform.test/v1")
    provider = connect(settings, transport=recorded)
    await provider.offers()
    ref = await provider.launch(cloud.order())
    for seconds in (0.0, 60.0, 180.0):
        cloud.advance(seconds)
        await provider.inventory()
    await provider.power(PowerAction.REBOOT, ref)
    await provider.terminate(ref)
    await provider.inventory()
    seen = set()
    for method, path, asked, answered in recorded.exchanges:
        if path in (f"instances/{ref}/delete", f"instances/{ref}/restart"):  # Only their 200 is documented.
            assert (asked, answered) == (None, b"")
            continue
        seen.add((method, path))
        if asked is not None:
            fits("CreateRequest", asked)
        fits(ANSWERS[method, path], json.loads(answered))
    assert seen == set(ANSWERS)
    statuses = {
        i["status"]
        for *_, body in recorded.exchanges
        if b'"instances"' in body
        for i in json.loads(body)["instances"]
    }
    assert statuses == {"pending_provider", "pending", "active", "deleting"}
    await provider.close()


def test_every_documented_status_has_a_meaning() -> None:
    assert set(SHAPES["$defs"]["Status"]["enum"]) == STATES.keys()


async def test_the_script_arrives_as_it_was_written() -> None:
    cloud = EmulatedShadeform()
    order = cloud.order(user_data="#!/bin/sh\nprintf 'ä'\n")
    await cloud.provider.launch(order)
    (made,) = cloud.account.instances.every.values()
    assert made.launch_configuration is not None
    script = made.launch_configuration["script_configuration"]["base64_script"]
    assert b64decode(script).decode() == order.user_data


async def test_refusals_have_words() -> None:
    cloud = EmulatedShadeform()
    client = httpx.AsyncClient(
        transport=cloud.network,
        base_url="http://shadeform.test/v1/",
        headers={"X-API-KEY": str(cloud.secret)},
    )
    sound = {
        "cloud": "hyperstack",
        "region": "canada-1",
        "shade_instance_type": "A100_80G",
        "shade_cloud": True,
        "name": "box",
    }
    script = {"type": "script", "script_configuration": {"base64_script": "not base64!"}}
    for body, status in (
        (sound, 200),
        (sound | {"region": "mars-1"}, 400),
        (sound | {"os": "dos"}, 400),
        (sound | {"name": ""}, 400),
        (sound | {"launch_configuration": script}, 400),
        ({"cloud": "hyperstack"}, 400),
    ):
        answer = await client.post("instances/create", json=body)
        assert answer.status_code == status, body
        assert status == 200 or answer.json()["message"]
    assert (await client.get("instances", headers={"X-API-KEY": "wrong"})).status_code == 401
    await client.aclose()


async def test_the_account_pays_by_the_second_until_the_machine_is_being_deleted() -> None:
    cloud = EmulatedShadeform()
    cloud.network.seconds_between = 0.0
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(60.0)
    a_minute = int(10.80 * NANO_PER_USD) // 60
    assert cloud.account.bill_nano() == a_minute
    await cloud.provider.terminate(ref)
    cloud.advance(3_600.0)
    assert cloud.account.bill_nano() == a_minute


async def test_too_many_requests_are_refused_until_the_minute_ends() -> None:
    cloud = EmulatedShadeform()
    cloud.network.seconds_between = 0.0
    headers = {"X-API-KEY": str(cloud.secret)}
    async with httpx.AsyncClient(
        transport=cloud.network, base_url="http://shadeform.test", headers=headers
    ) as client:
        statuses = [(await client.get("/v1/instances")).status_code for _ in range(121)]
        assert statuses == [200] * 120 + [429]
        cloud.advance(60.0)
        assert (await client.get("/v1/instances")).status_code == 200
