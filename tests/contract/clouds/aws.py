import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from typing import Protocol as Shape
from xml.sax.saxutils import escape

import httpx
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError

from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import Ingress
from providers.aws import Aws, Settings, connect
from providers.aws_preparation import GROUP
from providers.emulators.clouds.aws import create_app
from providers.emulators.clouds.aws_account import Account, Machine
from providers.emulators.clouds.aws_documents import ScheduledEvent
from providers.emulators.clouds.aws_spot import SpotRequest, SpotRequests
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.listings import LAUNCH_KEY_TAG
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, CloudWithChildren, EmulatedCloud, Network
from tests.support.clock import Clock

ACCESS_KEY_ID = "SPLITPLANE-TEST-KEY-ID"
SECRET_ACCESS_KEY = "aws-secret-key-splitplane-test-0123456789"


class Handles(Shape):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...


class Bridge:
    """The network of botocore, whose threads wait for what the event loop of the test answers."""

    def __init__(self, network: Handles) -> None:
        self._network = network
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # One that is made outside of a loop, for its facts, is never asked.
            self._loop = asyncio.get_running_loop()

    def __call__(self, request: AWSPreparedRequest) -> AWSResponse:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: AWSPreparedRequest) -> AWSResponse:
        headers = [(name, text(value)) for name, value in request.headers.items()]
        asked = httpx.Request(request.method, request.url, headers=headers, content=request.body)
        try:
            answer = await self._network.handle_async_request(asked)
            body = await answer.aread()
        except httpx.ConnectError:
            raise EndpointConnectionError(endpoint_url=request.url) from None
        except httpx.ReadError:
            raise ConnectionClosedError(endpoint_url=request.url) from None
        return AWSResponse(request.url, answer.status_code, answer.headers, Body(body))


class Body:
    """What botocore reads a body from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class EmulatedAws(EmulatedCloud, CloudWithChildren):
    name = "aws"
    children_of_launches = False
    native_type = "p5.48xlarge"
    native_region = "us-east-1a"
    absent_ref = ProviderRef("us-east-1/i-0fffffffffffffff0")
    secret = ACCESS_KEY_ID
    seconds_to_run = 200.0
    seconds_to_be_gone = 3_700.0
    provider: Aws

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(
            host,
            self.scenario,
            now=self.clock.now,
            access_key_id=ACCESS_KEY_ID,
            secret_access_key=SECRET_ACCESS_KEY,
        )
        self.account: Account = self.app.state.account
        self.spot: SpotRequests = self.app.state.spot
        self.network = Network(self.app, self.clock, seconds_between=1.0)
        self.provider = self.connected(SECRET_ACCESS_KEY)

    def connected(self, key: str, region: str = "us-east-1") -> Aws:
        settings = Settings(ACCESS_KEY_ID, key, region, base_url="http://aws.test")
        return connect(settings, send=Bridge(self.network), now=self.clock.now)

    def ever(self, key: LaunchKey) -> int:
        return sum(each.client_token == key for each in self.account.machines.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.client_token == key for each in self.account.machines.standing())

    def lets_in(self, ref: ProviderRef) -> list[Ingress]:
        region, _, instance = ref.partition("/")
        groups = self.groups(region, instance)
        return sorted(
            Ingress(
                Protocol(rule.ip_protocol), int(rule.from_port), int(rule.to_port), rule.ip_range["CidrIp"]
            )
            for group in groups
            for rule in group.ingress_rules
        )

    def groups(self, region: str, instance: str) -> list[Any]:
        (interface,) = self.account.backend(region).get_instance(instance).nics.values()
        return list(interface.group_set)

    def open_by_hand(self, ref: ProviderRef, opened: Ingress) -> None:
        region, _, instance = ref.partition("/")
        backend = self.account.backend(region)
        (group,) = (each for each in self.groups(region, instance) if each.name != GROUP)
        backend.authorize_security_group_ingress(
            group.id,
            opened.protocol.value,
            str(opened.first_port),
            str(opened.last_port),
            [{"CidrIp": opened.source}],
        )

    def leave_volume(self, ref: ProviderRef, **other_tags: str) -> str:
        """Make a volume like that of a machine, which nothing is attached to. Returns AWS's id of it."""
        region, key = ref.partition("/")[0], self.machine(ref).client_token
        backend = self.account.backend(region)
        volume = backend.create_volume(size=100, zone_name=f"{region}a", volume_type="gp3")
        volume.add_tags({LAUNCH_KEY_TAG: key} | other_tags)
        return str(volume.id)

    def volumes(self, region: str = "us-east-1") -> set[str]:
        return set(self.account.backend(region).volumes)

    async def add_foreign_child(self) -> None:
        backend = self.account.backend("us-east-1")
        backend.create_security_group("theirs", "theirs", tags={"Name": "sp-theirs"})

    def is_spot(self, key: LaunchKey) -> bool:
        (machine,) = (each for each in self.account.machines.every.values() if each.client_token == key)
        return machine.spot

    def announce_eviction(self, ref: ProviderRef) -> None:
        self.spot.change(self._request(ref), "marked-for-termination")

    def withdraw_eviction(self, ref: ProviderRef) -> None:
        self.spot.change(self._request(ref), "fulfilled")

    async def evict(self, ref: ProviderRef) -> None:
        self.spot.change(self._request(ref), "instance-terminated-no-capacity", state="closed")
        await self.account.machines.end(self.machine(ref))

    def plan_work(self, ref: ProviderRef, event: str, at: datetime) -> None:
        instance = self.machine(ref).id
        others = [each for each in self.account.events.get(instance, ()) if each.id != event]
        made = ScheduledEvent(event, "instance-stop", at, "The instance is running on degraded hardware")
        self.account.events[instance] = [*others, made]

    def call_off_work(self, ref: ProviderRef, event: str) -> None:
        """AWS lists an event that is over for a while."""
        instance = self.machine(ref).id
        self.account.events[instance] = [
            replace(each, description=f"[Completed] {each.description}") if each.id == event else each
            for each in self.account.events[instance]
        ]

    def sell_out_spot(self) -> None:
        self.scenario.stock[f"{self.native_type}:spot", self.native_region] = 0

    def _request(self, ref: ProviderRef) -> SpotRequest:
        request = self.spot.of(self.machine(ref).id)
        assert request is not None
        return request

    async def add_foreign_machine(self) -> None:
        """One that was bought with the account's own tools: it has another token, and no tag."""
        order = self.order(99)
        await self.provider.launch(order)
        (machine,) = (
            each for each in self.account.machines.standing() if each.client_token == order.launch_key
        )
        machine.client_token = "theirs"
        backend = self.account.backend("us-east-1")
        backend.get_instance(machine.id).client_token = "theirs"
        backend.delete_tags([machine.id], {LAUNCH_KEY_TAG: None, "Name": None})

    def refusal(self, quote: str) -> bytes:
        error = f"<Code>{escape(quote)}</Code><Message>{escape(quote)}</Message>"
        return f"<Response><Errors><Error>{error}</Error></Errors></Response>".encode()

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.machine(ref).unknown_status = UNKNOWN_STATUS

    def machine(self, ref: ProviderRef) -> Machine:
        return self.account.machines.every[ref.partition("/")[2]]


def make() -> Cloud:
    return EmulatedAws()
