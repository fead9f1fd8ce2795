"""The emulated AWS against the model of EC2 that botocore ships, so that it cannot agree with our adapter alone.

What we ask needs no check: botocore refuses a parameter that the model does not have.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

import httpx
import pytest
from botocore.model import ListShape, Shape, StructureShape
from botocore.session import get_session

from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import ProviderRef
from control_plane.domain.ingress import Ingress
from control_plane.domain.money import NANO_PER_USD
from providers.aws import Settings, connect
from providers.base import ListedOffer, ListedState, Needed, NoCapacity, PowerAction, ProviderError, Rejected
from providers.emulators.clouds.aws_limits import Limiter
from providers.emulators.scenario import FaultKind
from providers.listings import LAUNCH_KEY_TAG, offered_price
from tests.contract.clouds.aws import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Bridge, EmulatedAws

OPENED = frozenset({Ingress(Protocol.TCP, 8080, 8080, "203.0.113.0/24")})
OPERATIONS = {
    "AuthorizeSecurityGroupIngress",
    "CancelSpotInstanceRequests",
    "CreateSecurityGroup",
    "DeleteSecurityGroup",
    "DeleteVolume",
    "DescribeImages",
    "DescribeInstanceTypeOfferings",
    "DescribeInstanceTypes",
    "DescribeInstances",
    "DescribeSecurityGroups",
    "DescribeSpotInstanceRequests",
    "DescribeSpotPriceHistory",
    "DescribeSubnets",
    "DescribeVolumes",
    "GetConsoleOutput",
    "ModifyInstanceAttribute",
    "RebootInstances",
    "RevokeSecurityGroupIngress",
    "RunInstances",
    "StartInstances",
    "StopInstances",
    "TerminateInstances",
}


def name_of(element: ET.Element) -> str:
    """Without the namespace, which EC2 ends with a slash and moto does not."""
    return element.tag.rpartition("}")[2]


def strays(element: ET.Element, shape: Shape, path: str) -> Iterator[str]:
    """Every element of an answer that the model does not have there."""
    if isinstance(shape, ListShape):
        for item in element:
            if name_of(item) != "item":
                yield f"{path}/{item.tag}"
            yield from strays(item, shape.member, f"{path}[]")
    elif isinstance(shape, StructureShape):
        members = {each.serialization.get("name", name): each for name, each in shape.members.items()}
        for child in element:
            name = name_of(child)
            if name not in members:
                yield f"{path}/{child.tag}"
            else:
                yield from strays(child, members[name], f"{path}/{name}")
    elif len(element):
        yield f"{path} has elements"


class Recorded:
    """Keeps every answer of the emulator."""

    def __init__(self, cloud: EmulatedAws) -> None:
        self._cloud = cloud
        self.answers: list[tuple[str, bytes]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._cloud.network.handle_async_request(request)
        (action,) = parse_qs(request.content.decode()).get("Action", ["GetProducts"])
        self.answers.append((action, await response.aread()))
        return response


@pytest.fixture
async def cloud() -> Any:
    made = EmulatedAws()
    yield made
    await made.provider.close()


async def test_every_answer_of_a_machines_life_has_only_what_the_model_of_ec2_has(cloud: EmulatedAws) -> None:
    recorded = Recorded(cloud)
    settings = Settings(ACCESS_KEY_ID, SECRET_ACCESS_KEY, "us-east-1", base_url="http://aws.test")
    provider = connect(settings, send=Bridge(recorded))
    await provider.offers()
    ref = await provider.launch(cloud.order())
    await provider.inventory()
    cloud.advance(180.0)
    await provider.inventory()
    for power in PowerAction:
        await provider.power(power, ref)
    for wanted in (OPENED, frozenset[Ingress]()):
        while not await provider.apply_ingress(ref, cloud.order().launch_key, wanted):
            pass
    await provider.console(ref, None)
    for _ in range(2):
        await provider.terminate(ref)
        await provider.inventory()
    taken = await provider.launch(replace(cloud.order(2), spot=True))
    cloud.leave_volume(ref)
    for child in await provider.children():
        await provider.delete_child(child)
    await cloud.evict(taken)
    await provider.inventory()
    model = get_session().get_service_model("ec2")
    seen = {action for action, _ in recorded.answers} - {"GetProducts"}
    assert seen == OPERATIONS
    for action, document in recorded.answers:
        if action != "GetProducts":
            root = ET.fromstring(document)
            assert name_of(root) == f"{action}Response"
            for each in [each for each in root if name_of(each) == "requestId"]:
                root.remove(each)
            assert list(strays(root, model.operation_model(action).output_shape, action)) == [], action
    await provider.close()


async def test_a_volume_is_a_child_once_no_machine_has_it_and_only_that_one_is_deleted(
    cloud: EmulatedAws,
) -> None:
    provider = cloud.provider
    ref = await provider.launch(cloud.order())
    of_machine = cloud.volumes()
    assert of_machine, "its root volume"
    assert await provider.children() == (), "a volume that a machine has goes with the machine"
    left = cloud.leave_volume(ref)
    theirs = cloud.leave_volume(ref, **{LAUNCH_KEY_TAG: "theirs"})
    (child,) = await provider.children()
    assert (child.kind, child.ref, child.launch_key) == (
        "volume",
        f"us-east-1/{left}",
        cloud.order().launch_key,
    )
    assert child.needed is Needed.WHILE_IT_EXISTS
    assert child.cost_nano_per_hour is None, "the price list was not read yet"
    await provider.offers()
    (priced,) = await provider.children()
    assert priced.cost_nano_per_hour == 10_958_905, "100 GiB at 0.08 USD a month, which has 730 hours"
    await provider.delete_child(child)
    assert cloud.volumes() == of_machine | {theirs}
    assert await provider.children() == ()
    with pytest.raises(Rejected):
        await provider.delete_child(child)
    (attached,) = of_machine
    with pytest.raises(ProviderError):
        await provider.delete_child(replace(child, ref=ProviderRef(f"us-east-1/{attached}")))
    assert attached in cloud.volumes()
    await provider.terminate(ref)
    assert cloud.volumes() == {theirs}, "it goes with its machine"


async def test_a_product_of_the_price_list_has_the_documented_form(cloud: EmulatedAws) -> None:
    recorded = Recorded(cloud)
    settings = Settings(ACCESS_KEY_ID, SECRET_ACCESS_KEY, "us-east-1", base_url="http://aws.test")
    provider = connect(settings, send=Bridge(recorded))
    await provider.offers()
    answers = [json.loads(body) for action, body in recorded.answers if action == "GetProducts"]
    shape = get_session().get_service_model("pricing").operation_model("GetProducts").output_shape
    assert len(answers) == 2
    assert all(answer.keys() <= shape.members.keys() for answer in answers)
    for text in [text for answer in answers for text in answer["PriceList"]]:
        found = json.loads(text)
        assert found.keys() == {"product", "serviceCode", "terms", "version", "publicationDate"}
        sku = found["product"]["sku"]
        ((code, term),) = found["terms"]["OnDemand"].items()
        assert code == f"{sku}.{term['offerTermCode']}"
        ((rate, dimension),) = term["priceDimensions"].items()
        assert rate == dimension["rateCode"]
        assert Decimal(dimension["pricePerUnit"]["USD"]) > 0
    await provider.close()


async def test_more_launches_than_the_bucket_holds_are_refused_until_it_fills_again(
    cloud: EmulatedAws,
) -> None:
    cloud.network.seconds_between = 0.0
    limiter: Limiter = cloud.app.state.limiter

    def drawn(count: int, region: str = "us-east-1") -> int:
        before = limiter.refused
        for _ in range(count):
            limiter.draw(region, "RunInstances", {})
        return count - (limiter.refused - before)

    assert drawn(8) == 5
    assert drawn(8, "eu-central-1") == 5
    cloud.advance(1.0)
    assert drawn(8) == 2


async def test_the_account_pays_by_the_second_while_a_machine_runs_and_for_a_minute_at_least(
    cloud: EmulatedAws,
) -> None:
    cloud.network.seconds_between = 0.0
    first = await cloud.provider.launch(cloud.order(1))
    cloud.advance(180.0)
    await cloud.provider.inventory()
    assert cloud.account.bill_nano() == int(Decimal("55.04") * NANO_PER_USD) * 60 // 3_600
    cloud.advance(61.0)
    await cloud.provider.terminate(first)
    cloud.advance(4_000.0)
    assert cloud.account.bill_nano() == int(Decimal("55.04") * NANO_PER_USD) * 61 // 3_600


async def test_a_stopped_machine_costs_its_disk_alone_and_its_start_may_find_no_capacity(
    cloud: EmulatedAws,
) -> None:
    cloud.network.seconds_between = 0.0
    listed = [each for each in await cloud.provider.offers() if isinstance(each, ListedOffer)]
    assert {
        each.stopped_cost_nano_per_hour
        for each in listed
        if each.native_region.startswith("us-east-1") and not each.spot
    } == {offered_price(Decimal("0.08") * 500 / 730 + Decimal("0.005"))}

    ref = await cloud.provider.launch(cloud.order(1))
    cloud.advance(cloud.seconds_to_run)
    await cloud.provider.inventory()
    await cloud.provider.power(PowerAction.STOP, ref)
    before = cloud.account.bill_nano()
    cloud.advance(7_200.0)
    cloud.scenario.add("power", FaultKind.NO_CAPACITY)
    with pytest.raises(NoCapacity):
        await cloud.provider.power(PowerAction.START, ref)
    (machine,) = await cloud.provider.inventory()
    assert (machine.state, machine.native_status) == (ListedState.STOPPED, "stopped")
    await cloud.provider.power(PowerAction.START, ref)
    (machine,) = await cloud.provider.inventory()
    assert (machine.state, machine.address is not None) == (ListedState.RUNNING, True)
    assert cloud.account.bill_nano() == before
