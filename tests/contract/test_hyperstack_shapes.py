"""The emulated Hyperstack against the official OpenAPI document, so that it cannot agree with our adapter alone."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from control_plane.domain.firewall import Protocol
from control_plane.domain.ingress import Ingress
from control_plane.domain.money import NANO_PER_USD
from providers.base import PowerAction
from providers.hyperstack import Settings, connect
from tests.contract.clouds.hyperstack import EmulatedHyperstack

SHAPES = json.loads((Path(__file__).parent / "schemas" / "hyperstack.json").read_text())


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps every exchange between the adapter and the emulator."""

    def __init__(self, cloud: EmulatedHyperstack) -> None:
        self.cloud = cloud
        self.exchanges: list[tuple[str, str, Any, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.cloud.network.handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        self.exchanges.append(
            (request.method, request.url.path.removeprefix("/v1/"), body, json.loads(await response.aread()))
        )
        return response


REQUESTS = {
    ("POST", "core/environments"): "Create_Environment",
    ("POST", "core/keypairs"): "Import_Keypair_Payload",
    ("POST", "core/virtual-machines"): "Create_Instances_Payload",
}
ANSWERS = {
    ("GET", "core/flavors"): "Flavor_List_Response",
    ("GET", "core/environments"): "Environments",
    ("POST", "core/environments"): "Environment",
    ("GET", "core/keypairs"): "Keypairs",
    ("POST", "core/keypairs"): "Import_Keypair_Response",
    ("GET", "core/virtual-machines"): "Instances",
    ("POST", "core/virtual-machines"): "CreateInstancesResponse",
    ("DELETE", "core/virtual-machines"): "ResponseModel",
} | {
    ("GET", f"core/virtual-machines/{action}"): "ResponseModel" for action in ("hard-reboot", "stop", "start")
}


async def test_every_exchange_of_a_machines_life_has_the_documented_shape() -> None:
    cloud = EmulatedHyperstack()
    recorded = Recorded(cloud)
    provider = connect(
        Settings(api_key=str(cloud.secret), base_url="http://hyperstack.test/v1"), transport=recorded
    )
    await provider.offers()
    ref = await provider.launch(cloud.order())
    await provider.inventory()
    cloud.advance(180.0)
    await provider.inventory()
    for action in PowerAction:
        await provider.power(action, ref)
        await provider.inventory()
    await provider.terminate(ref)
    seen = set()
    for method, path, asked, answered in recorded.exchanges:
        if path == "pricebook":
            for price in answered:
                fits("PricebookModel", price)
            continue
        place = method, path.replace(f"/{ref}", "")
        seen.add(place)
        if asked is not None:
            fits(REQUESTS[place], asked)
        fits(ANSWERS[place], answered)
    assert seen == set(ANSWERS)
    await provider.close()


RULES = {
    ("GET", "core/virtual-machines/ref"): (None, "Instance"),
    ("POST", "core/virtual-machines/ref/sg-rules"): ("Create_Security_Rule_Payload", "Security_Group_Rule"),
    ("DELETE", "core/virtual-machines/ref/sg-rules/rule"): (None, "ResponseModel"),
}


async def test_every_exchange_about_the_firewall_of_a_machine_has_the_documented_shape() -> None:
    cloud = EmulatedHyperstack()
    recorded = Recorded(cloud)
    provider = connect(
        Settings(api_key=str(cloud.secret), base_url="http://hyperstack.test/v1"), transport=recorded
    )
    ref = await provider.launch(cloud.order())
    recorded.exchanges.clear()
    for wanted in (frozenset({Ingress(Protocol.UDP, 6000, 6010, "203.0.113.0/24")}), frozenset[Ingress]()):
        while not await provider.apply_ingress(ref, cloud.order().launch_key, wanted):
            pass
    seen = set()
    for method, path, asked, answered in recorded.exchanges:
        *before, last = path.replace(ref, "ref", 1).split("/")
        place = method, "/".join((*before, "rule" if method == "DELETE" else last))
        seen.add(place)
        request, answer = RULES[place]
        if request is not None:
            fits(request, asked)
        fits(answer, answered)
    assert seen == RULES.keys()
    await provider.close()


async def test_refusals_have_the_documented_shape() -> None:
    cloud = EmulatedHyperstack()
    client = httpx.AsyncClient(
        transport=cloud.network, base_url="http://hyperstack.test/v1/", headers={"api_key": str(cloud.secret)}
    )
    sound = {
        "name": "box",
        "environment_name": "mine",
        "flavor_name": "n3-H100x8",
        "key_name": "k",
        "count": 1,
    }
    place = {"environment_name": "mine", "name": "k", "public_key": "ssh-ed25519 AAAA"}
    refused = []
    for path, body in (
        ("environments", {"name": "mine", "region": "MARS-1"}),
        ("environments", {"name": "m" * 51, "region": "CANADA-1"}),
        ("environments", {"name": "mine", "region": "CANADA-1"}),
        ("environments", {"name": "mine", "region": "CANADA-1"}),
        ("keypairs", place | {"environment_name": "nobody's"}),
        ("keypairs", place),
        ("keypairs", place),
        ("virtual-machines", sound | {"image_name": "DOS"}),
        ("virtual-machines", sound | {"image_name": "Ubuntu Server 22.04 LTS R535 CUDA 12.2", "count": 2}),
    ):
        answer = await client.post(f"core/{path}", json=body)
        if answer.status_code != 200:
            fits("ErrorResponseModel", answer.json())
            refused.append((path, answer.status_code, answer.json()["error_reason"]))
    assert refused == [
        ("environments", 404, "not_found"),
        ("environments", 400, "bad_request"),
        ("environments", 409, "bad_request"),
        ("keypairs", 404, "not_found"),
        ("keypairs", 409, "bad_request"),
        ("virtual-machines", 404, "not_found"),
        ("virtual-machines", 400, "bad_request"),
    ]
    assert (await client.get("core/flavors", headers={"api_key": "wrong"})).status_code == 401
    await client.aclose()


async def test_more_than_500_requests_in_a_minute_are_refused_until_the_next_one() -> None:
    cloud = EmulatedHyperstack()
    cloud.network.seconds_between = 0.0
    client = httpx.AsyncClient(
        transport=cloud.network, base_url="http://hyperstack.test/v1/", headers={"api_key": str(cloud.secret)}
    )
    statuses = [(await client.get("core/virtual-machines")).status_code for _ in range(502)]
    assert statuses == [200] * 500 + [429] * 2
    cloud.advance(60.0)
    answer = await client.get("core/virtual-machines")
    assert answer.status_code == 200
    assert "Retry-After" not in answer.headers
    await client.aclose()


async def test_the_account_pays_by_the_minute_while_a_machine_is_active() -> None:
    cloud = EmulatedHyperstack()
    ref = await cloud.provider.launch(cloud.order())
    cloud.network.seconds_between = 0.0
    cloud.advance(180.0)
    await cloud.provider.inventory()
    assert cloud.account.bill_nano() == 0
    cloud.advance(61.0)
    two_minutes = int(8 * 1.9 * NANO_PER_USD) * 2 // 60
    assert cloud.account.bill_nano() == two_minutes
    await cloud.provider.terminate(ref)
    cloud.advance(3_600.0)
    assert cloud.account.bill_nano() == two_minutes
