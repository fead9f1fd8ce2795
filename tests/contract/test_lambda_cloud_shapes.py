"""The emulated Lambda Cloud against the shapes of the real one, so that it cannot agree with our adapter alone."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from providers.emulators.clouds.lambda_account import KINDS, Account
from providers.emulators.clouds.lambda_cloud import Terms, create_app
from providers.emulators.host import MachineSpec, SimulatedHost
from providers.emulators.scenario import EmulatorTransport, FaultKind, Scenario
from providers.lambda_cloud import Settings, connect
from tests.contract.clouds.lambda_cloud import SECRET, EmulatedLambdaCloud
from tests.support.clock import Clock

SHAPES = json.loads((Path(__file__).parent / "schemas" / "lambda_cloud.json").read_text())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T"
ORDER: dict[str, Any] = {
    "region_name": "us-south-2",
    "instance_type_name": "gpu_8x_h100_sxm5",
    "ssh_key_names": ["mine"],
    "name": "box",
    "quantity": 1,
}


def fits(shape: str, document: object) -> None:
    schema = {"$ref": f"#/$defs/{shape}", "$defs": SHAPES["$defs"]}
    jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate(document)


class Api:
    """The emulator over plain HTTP, as the documentation describes it."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        app = create_app(host, self.scenario, now=self.clock.now, terms=terms or Terms(rate_limited=False))
        self.account: Account = app.state.account
        self.client = httpx.AsyncClient(
            transport=EmulatorTransport(app),
            base_url="http://lambda.test/api/v1/",
            headers={"Authorization": f"Bearer {(terms or Terms()).api_key}"},
        )

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        response = await self.client.request(method, path, json=body)
        return response.status_code, response.json()

    async def with_key(self) -> "Api":
        await self.ask("POST", "ssh-keys", {"name": "mine", "public_key": KEY})
        return self

    async def refuses(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        status, answer = await self.ask(method, path, body)
        fits("ErrorEnvelope", answer)
        return status, answer["error"]["code"]


async def test_every_answer_of_a_machines_life_has_the_documented_shape() -> None:
    api = Api()
    fits("InstanceTypes", (await api.ask("GET", "instance-types"))[1])
    fits("SshKeyEnvelope", (await api.ask("POST", "ssh-keys", {"name": "mine", "public_key": KEY}))[1])
    fits("SshKeys", (await api.ask("GET", "ssh-keys"))[1])
    status, launched = await api.ask("POST", "instance-operations/launch", ORDER)
    assert status == 200
    fits("Launched", launched)
    (instance_id,) = launched["data"]["instance_ids"]

    words = []
    for step in (0.0, 180.0):
        api.clock.advance(step)
        words.append(await seen(api, instance_id))
    status, restarted = await api.ask("POST", "instance-operations/restart", {"instance_ids": [instance_id]})
    assert status == 200
    fits("Restarted", restarted)
    status, terminated = await api.ask(
        "POST", "instance-operations/terminate", {"instance_ids": [instance_id]}
    )
    assert status == 200
    fits("Terminated", terminated)
    for step in (0.0, 20.0):
        api.clock.advance(step)
        words.append(await seen(api, instance_id))
    assert words == [("booting", False), ("active", True), ("terminating", False), ("terminated", False)]

    api.clock.advance(60.0)
    assert (await api.ask("GET", "instances"))[1] == {"data": []}
    assert await api.refuses("GET", f"instances/{instance_id}") == (404, "global/object-does-not-exist")


async def seen(api: Api, instance_id: str) -> tuple[str, bool]:
    """The status word, and whether there is an address."""
    _, listed = await api.ask("GET", "instances")
    fits("Instances", listed)
    _, one = await api.ask("GET", f"instances/{instance_id}")
    fits("InstanceEnvelope", one)
    assert listed["data"] == [one["data"]]
    return one["data"]["status"], "ip" in one["data"]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"region_name": "eu-central-1"}, (400, "global/invalid-parameters")),
        ({"instance_type_name": "gpu_9x"}, (404, "global/object-does-not-exist")),
        ({"ssh_key_names": []}, (400, "global/invalid-parameters")),
        ({"ssh_key_names": ["mine", "mine"]}, (400, "global/invalid-parameters")),
        ({"ssh_key_names": ["nobody's"]}, (404, "global/object-does-not-exist")),
        ({"name": "x" * 65}, (400, "global/invalid-parameters")),
        ({"hostname": "Box_1"}, (400, "global/invalid-parameters")),
        ({"tags": [{"key": "Sp", "value": "x"}]}, (400, "global/invalid-parameters")),
        ({"tags": [{"key": "sp", "value": "x" * 129}]}, (400, "global/invalid-parameters")),
        ({"user_data": "x" * 1_000_001}, (400, "global/invalid-parameters")),
        ({"quantity": 2}, (400, "global/invalid-parameters")),
        ({"region_name": "me-west-1"}, (400, "instance-operations/launch/insufficient-capacity")),
    ],
)
async def test_a_bad_launch_is_refused_in_the_documented_words(
    change: dict[str, Any], refusal: tuple[int, str]
) -> None:
    api = await Api().with_key()
    assert await api.refuses("POST", "instance-operations/launch", ORDER | change) == refusal
    assert api.account.instances.every == {}


async def test_a_full_account_a_wrong_key_and_a_duplicate_are_refused_in_the_documented_words() -> None:
    api = await Api(Terms(rate_limited=False, instances_max=0)).with_key()
    launch = "instance-operations/launch"
    assert await api.refuses("POST", launch, ORDER) == (400, "global/quota-exceeded")
    again = {"name": "mine", "public_key": KEY}
    assert await api.refuses("POST", "ssh-keys", again) == (400, "global/duplicate")
    api.client.headers["Authorization"] = "Bearer wrong"
    assert await api.refuses("GET", "instances") == (401, "global/invalid-api-key")


async def test_basic_authentication_is_accepted_too() -> None:
    api = Api()
    api.client.headers.pop("Authorization")
    response = await api.client.get("instances", auth=(Terms().api_key, ""))
    assert response.status_code == 200


async def test_one_request_a_second_and_one_launch_in_twelve() -> None:
    api = Api(Terms())
    assert (await api.ask("GET", "instances"))[0] == 200
    response = await api.client.get("instances")
    assert response.status_code == 429
    assert "Retry-After" not in response.headers
    fits("ErrorEnvelope", response.json())
    statuses = []
    for _ in range(13):
        api.clock.advance(1.0)
        statuses.append((await api.ask("POST", "instance-operations/launch", {}))[0])
    assert statuses == [400, *[429] * 11, 400]


async def test_time_can_be_compressed_for_the_limits() -> None:
    api = Api(Terms(time_factor=12.0))
    statuses = []
    for _ in range(3):
        statuses.append((await api.ask("POST", "instance-operations/launch", {}))[0])
        api.clock.advance(1.0)
    assert statuses == [400, 400, 400]


async def test_the_account_pays_by_the_minute_from_active_until_terminate() -> None:
    api = await Api().with_key()
    _, launched = await api.ask("POST", "instance-operations/launch", ORDER)
    api.clock.advance(180.0)
    assert api.account.bill_nano() == 0
    api.clock.advance(61.0)
    two_minutes = 23_920_000_000 * 2 // 60
    assert api.account.bill_nano() == two_minutes
    await api.ask("POST", "instance-operations/terminate", {"instance_ids": launched["data"]["instance_ids"]})
    api.clock.advance(3_600.0)
    assert api.account.bill_nano() == two_minutes


async def test_our_launch_request_has_the_documented_shape() -> None:
    cloud = EmulatedLambdaCloud()
    bodies: list[Any] = []

    class Recorder(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/launch"):
                bodies.append(json.loads(await request.aread()))
            return await cloud.network.handle_async_request(request)

    provider = connect(Settings(api_key=SECRET, base_url="http://lambda.test/api/v1"), transport=Recorder())
    await provider.launch(cloud.order())
    (body,) = bodies
    fits("LaunchRequest", body)
    assert body["name"] == body["hostname"] == body["tags"][0]["value"] == cloud.order().launch_key


async def test_the_machine_behind_has_the_gpus_that_were_sold_unless_the_script_says_otherwise() -> None:
    clock = Clock()
    scenario = Scenario(sleep=clock.sleep)
    specs: list[MachineSpec] = []

    class Host(SimulatedHost):
        async def boot(self, spec: MachineSpec) -> None:
            specs.append(spec)
            await super().boot(spec)

    account = Account(Host(clock.now), scenario, clock.now)
    scenario.add("launch", FaultKind.WRONG_GPU)
    for number in range(2):
        kind = KINDS["gpu_8x_h100_sxm5"]
        await account.launch(
            kind, "us-south-2", name=f"m{number}", hostname=None, tags=[], ssh_key_names=["k"], user_data="u"
        )
    shown = [(len(spec.gpus), spec.gpus[0].name) for spec in specs]
    assert shown == [(8, "NVIDIA A10"), (8, "NVIDIA H100 80GB HBM3")]
    assert {spec.user_data for spec in specs} == {"u"}
