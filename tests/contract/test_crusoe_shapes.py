"""The emulated Crusoe against the official specification, so that it cannot agree with our adapter alone."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from control_plane.domain.money import NANO_PER_USD
from providers.base import PowerAction
from providers.crusoe import Crusoe, Settings, Signature
from providers.emulators.clouds.crusoe import KEY_ID, PROJECT
from tests.contract.clouds.crusoe import SECRET, EmulatedCrusoe

SHAPES = json.loads((Path(__file__).parent / "schemas" / "crusoe.json").read_text())
SETTINGS = Settings(KEY_ID, SECRET, PROJECT, base_url="http://crusoe.test/v1")
MACHINES = "compute/vms/instances"
BASE = f"/v1/projects/{PROJECT}/"


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps every exchange between the adapter and the emulator."""

    def __init__(self, cloud: EmulatedCrusoe) -> None:
        self.cloud = cloud
        self.exchanges: list[tuple[str, str, Any, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.cloud.network.handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        path = request.url.path.removeprefix(BASE).removeprefix("/v1/")
        self.exchanges.append((request.method, path, body, json.loads(await response.aread())))
        return response


REQUESTS = {
    ("POST", "networking/vpc-firewall-rules"): "VPCFirewallRulesPostRequestV1",
    ("POST", MACHINES): "InstancesPostRequestV1",
    ("PATCH", f"{MACHINES}/ID"): "InstancesPatchRequestV1",
}
ANSWERS = {
    ("GET", "compute/vms/types"): "ListTypesResponseV1",
    ("GET", "capacities"): "ListCapacitiesResponseV1",
    ("GET", "networking/vpc-networks"): "ListVPCNetworksResponseV1",
    ("GET", "networking/vpc-firewall-rules"): "ListVPCFirewallRulesResponseV1",
    ("POST", "networking/vpc-firewall-rules"): "AsyncOperationResponse",
    ("GET", MACHINES): "ListInstancesResponseV1",
    ("GET", f"{MACHINES}/operations"): "ListOperationsResponseV1",
    ("POST", MACHINES): "AsyncOperationResponse",
    ("PATCH", f"{MACHINES}/ID"): "AsyncOperationResponse",
    ("DELETE", f"{MACHINES}/ID"): "AsyncOperationResponse",
}


async def test_every_exchange_of_a_machines_life_has_the_documented_shape() -> None:
    cloud = EmulatedCrusoe()
    recorded = Recorded(cloud)
    provider = Crusoe(SETTINGS, now=cloud.clock.now, transport=recorded)
    await provider.offers()
    ref = await provider.launch(cloud.order())
    cloud.sell_out_later()
    await provider.launch(cloud.order(2))
    cloud.advance(180.0)
    await provider.inventory()
    assert len(await provider.refused_later()) == 1
    for action in PowerAction:
        await provider.power(action, ref)
        await provider.inventory()
    await provider.terminate(ref)
    seen = set()
    for method, path, asked, answered in recorded.exchanges:
        place = method, path.replace(ref, "ID")
        seen.add(place)
        if place in REQUESTS:
            fits(REQUESTS[place], asked)
        fits(ANSWERS[place], answered)
    assert seen == set(ANSWERS)
    await provider.close()


class Signer(httpx.Auth):
    """Signs as the adapter does, at the given time."""

    requires_request_body = False

    def __init__(self, cloud: EmulatedCrusoe, behind: timedelta = timedelta()) -> None:
        self.sign = Signature(SETTINGS, lambda: cloud.clock.now() - behind)

    async def async_auth_flow(self, request: httpx.Request) -> Any:
        await self.sign(request)
        yield request


def client(cloud: EmulatedCrusoe, **other: Any) -> httpx.AsyncClient:
    base = f"http://crusoe.test{BASE}"
    return httpx.AsyncClient(transport=cloud.network, base_url=base, auth=Signer(cloud, **other))


async def test_refusals_have_the_documented_shape() -> None:
    cloud = EmulatedCrusoe()
    sound = {
        "name": "box",
        "type": "a100-80gb.1x",
        "location": "us-east1-a",
        "ssh_public_key": "ssh-ed25519 AAAA",
        "image": "ubuntu22.04-nvidia-pcie-docker:latest",
    }
    async with client(cloud) as api:
        refused = []
        for method, path, body in (
            ("POST", MACHINES, sound | {"location": "mars1-a"}),
            ("POST", MACHINES, sound | {"type": "zx81.1x"}),
            ("POST", MACHINES, sound | {"image": "dos"}),
            ("POST", MACHINES, sound),
            ("POST", MACHINES, sound),
            ("GET", f"{MACHINES}?limit=many", None),
            ("DELETE", f"{MACHINES}/none", None),
        ):
            answer = await api.request(method, path, json=body)
            if answer.status_code != 200:
                fits("Error", answer.json())
                refused.append((answer.status_code, answer.json()["message"]))
        assert refused == [*[(400, "bad_request")] * 5, (404, "not_found")]


async def test_only_a_fresh_signature_of_the_very_request_is_accepted() -> None:
    cloud = EmulatedCrusoe()
    async with client(cloud) as api:
        for query in ("", "?names=b%20b&limit=5", "?limit=5&states=A&states=%C3%B6&names="):
            assert (await api.get(f"{MACHINES}{query}")).status_code == 200, query
        assert (await api.get(f"{MACHINES}?a;b=1")).status_code == 401
    async with client(cloud, behind=timedelta(minutes=6)) as late:
        assert (await late.get(MACHINES)).status_code == 401
    request = httpx.Request("GET", f"http://crusoe.test{BASE}{MACHINES}?limit=5")
    await Signature(SETTINGS, cloud.clock.now)(request)
    async with httpx.AsyncClient(transport=cloud.network, base_url="http://crusoe.test") as stolen:
        for method, path in (("DELETE", f"{MACHINES}/x"), ("GET", MACHINES), ("GET", f"{MACHINES}?limit=6")):
            answer = await stolen.request(method, f"{BASE}{path}", headers=request.headers)
            assert answer.status_code == 401, path
            fits("Error", answer.json())


async def test_a_completed_operation_is_listed_once() -> None:
    cloud = EmulatedCrusoe()
    cloud.sell_out_later()
    await cloud.provider.launch(cloud.order())
    async with client(cloud) as api:
        path = f"{MACHINES}/operations?state=FAILED"
        assert [len((await api.get(path)).json()["items"]) for _ in range(2)] == [1, 0]


async def test_too_many_requests_are_refused_until_the_minute_ends() -> None:
    cloud = EmulatedCrusoe()
    cloud.network.seconds_between = 0.0
    async with client(cloud) as api:
        statuses = [(await api.get(MACHINES)).status_code for _ in range(121)]
        assert statuses == [200] * 120 + [429]
        cloud.advance(60.0)
        assert (await api.get(MACHINES)).status_code == 200


async def test_the_account_pays_while_a_machine_runs() -> None:
    cloud = EmulatedCrusoe()
    cloud.network.seconds_between = 0.0
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(180.0)
    await cloud.provider.inventory()
    assert cloud.account.bill_nano() == 0
    cloud.advance(1_800.0)
    half_an_hour = int(8 * 3.9 * NANO_PER_USD) // 2
    assert cloud.account.bill_nano() == pytest.approx(half_an_hour)
    await cloud.provider.terminate(ref)
    cloud.advance(3_600.0)
    assert cloud.account.bill_nano() == pytest.approx(half_an_hour)
