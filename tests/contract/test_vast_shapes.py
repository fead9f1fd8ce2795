"""The emulated Vast.ai against the official OpenAPI documents, so that it cannot agree with our adapter alone."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from control_plane.domain.money import NANO_PER_USD
from providers.base import PowerAction
from providers.emulators.clouds.vast_account import ASKS
from providers.vast import PAGE_SIZE, Settings, connect
from tests.contract.clouds import a_key
from tests.contract.clouds.vast import FIRST_ASK, EmulatedVast

SHAPES = json.loads((Path(__file__).parent / "schemas" / "vast.json").read_text())


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)


class Recorded(httpx.AsyncBaseTransport):
    """Keeps every exchange between the adapter and the emulator."""

    def __init__(self, cloud: EmulatedVast) -> None:
        self.cloud = cloud
        self.exchanges: list[tuple[str, str, Any, int, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.cloud.network.handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        answer = json.loads(await response.aread())
        self.exchanges.append((request.method, request.url.path, body, response.status_code, answer))
        return response


EXCHANGES = {
    ("POST", "/api/v0/bundles/"): ("SearchRequest", "SearchAnswer"),
    ("GET", "/api/v0/ssh/"): (None, "KeysAnswer"),
    ("POST", "/api/v0/ssh/"): ("KeyRequest", "KeyAnswer"),
    ("DELETE", "/api/v0/ssh/1/"): (None, "DestroyAnswer"),
    ("PUT", f"/api/v0/asks/{FIRST_ASK}/"): ("CreateRequest", "CreateAnswer"),
    ("GET", "/api/v1/instances/"): (None, "InstancesAnswer"),
    ("PUT", "/api/v0/instances/reboot/12345678/"): (None, "RebootAnswer"),
    ("DELETE", "/api/v0/instances/12345678/"): (None, "DestroyAnswer"),
}


async def test_every_exchange_of_a_machines_life_has_the_documented_shape() -> None:
    cloud = EmulatedVast()
    cloud.account.ssh_keys.append({"id": 1, "user_id": 7, "key": "ssh-ed25519 AAAA", "deleted_at": None})
    recorded = Recorded(cloud)
    provider = connect(Settings(api_key=str(cloud.secret), base_url="http://vast.test"), transport=recorded)
    await provider.offers()
    ref = await provider.launch(replace(cloud.order(), withdrawn_ssh_keys=("ssh-ed25519 AAAA",)))
    statuses = []
    for seconds in (0.0, 20.0, 180.0):
        cloud.advance(seconds)
        statuses += [each.native_status for each in await provider.inventory()]
    await provider.power(PowerAction.REBOOT, ref)
    await provider.terminate(ref)
    for method, path, asked, status, answered in recorded.exchanges:
        request, answer = EXCHANGES[method, path]
        assert status == 200
        if request is not None:
            fits(request, asked)
        fits(answer, answered)
    assert {(method, path) for method, path, *_ in recorded.exchanges} == EXCHANGES.keys()
    assert statuses == ["null", "loading", "running"]
    await provider.close()


async def test_refusals_have_the_documented_shape() -> None:
    cloud = EmulatedVast()
    client = httpx.AsyncClient(
        transport=cloud.network,
        base_url="http://vast.test/",
        headers={"Authorization": f"Bearer {cloud.secret}"},
    )
    sound = {"image": "docker.io/vastai/kvm:ubuntu_terminal", "disk": 20, "vm": True}
    path = f"api/v0/asks/{FIRST_ASK}/"
    for body, status, error in (
        (sound, 400, "no_ssh_key_for_vm"),
        (sound | {"disk": 4}, 400, "invalid_args"),
        (sound | {"image": "pytorch/pytorch"}, 400, "invalid_args"),
        (sound | {"onstart": "#" * 4_097}, 400, "invalid_args"),
        (sound | {"runtype": "telnet"}, 400, "invalid_args"),
        ({"disk": 20}, 400, "invalid_args"),
    ):
        answer = await client.put(path, json=body)
        assert (answer.status_code, answer.json()["error"]) == (status, error), body
        fits("CreateRefused400", answer.json())
    cloud.sell_out()
    answer = await client.put(path, json=sound | {"vm": False})
    assert answer.status_code == 404
    fits("CreateRefused404", answer.json())
    answer = await client.delete("api/v0/instances/1/")
    assert answer.status_code == 404
    fits("DestroyRefused404", answer.json())
    answer = await client.put("api/v0/instances/reboot/1/")
    assert answer.status_code == 400
    fits("RebootRefused400", answer.json())
    assert (await client.get("api/v1/instances/", params={"after_token": "?"})).status_code == 400
    await client.aclose()


async def test_calls_that_come_too_early_are_told_so_in_plain_text() -> None:
    cloud = EmulatedVast()
    cloud.network.seconds_between = 0.5
    client = httpx.AsyncClient(
        transport=cloud.network,
        base_url="http://vast.test/",
        headers={"Authorization": f"Bearer {cloud.secret}"},
    )
    answers = [await client.get("api/v1/instances/") for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 429]
    assert answers[1].text == "API requests too frequent: endpoint threshold=1.0"
    searches = [(await client.post("api/v0/bundles/", json={})).status_code for _ in range(11)]
    assert searches == [200] * 10 + [429]
    await client.aclose()


async def test_an_ask_is_sold_once_and_takes_the_others_of_its_machine_with_it() -> None:
    cloud = EmulatedVast()
    half = FIRST_ASK - 4

    async def listed() -> set[str]:
        return {getattr(each, "native_type", "") for each in await cloud.provider.offers()}

    assert {str(FIRST_ASK), str(half)} <= await listed()
    ref = await cloud.provider.launch(cloud.order())
    assert not {str(FIRST_ASK), str(half)} & await listed()
    await cloud.provider.terminate(ref)
    assert {str(FIRST_ASK), str(half)} <= await listed()


async def test_a_list_of_several_pages_is_read_whole() -> None:
    cloud = EmulatedVast()
    for _ in range(PAGE_SIZE + 2):
        await cloud.add_foreign_machine()
    await cloud.provider.launch(cloud.order())
    cloud.network.requests.clear()
    assert [each.launch_key for each in await cloud.provider.inventory()] == [a_key()]
    assert len(cloud.network.requests) == 2


async def test_the_account_pays_for_the_disk_at_once_and_for_the_gpus_while_they_run() -> None:
    cloud = EmulatedVast()
    cloud.network.seconds_between = 0.0
    await cloud.provider.prepare(cloud.order())
    await cloud.provider.prepare(cloud.order())
    ref = await cloud.provider.launch(cloud.order())
    ask = ASKS[FIRST_ASK]
    disk = ask.disk_usd(Decimal(100))
    cloud.advance(180.0)
    assert cloud.account.bill_nano() == int(disk * 180 * NANO_PER_USD / 3_600)
    cloud.advance(3_600.0)
    await cloud.provider.terminate(ref)
    cloud.advance(3_600.0)
    whole = (disk * 3_780 + ask.base_usd() * 3_600) * NANO_PER_USD / 3_600
    assert cloud.account.bill_nano() == int(whole)
