"""What the law suite does not reach: prices, zones, regions, codes of refusals, permissions, what others changed."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import httpx
import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from control_plane.domain.block import BlockScope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from providers.aws import CAPABILITIES, Aws, Settings, connect
from providers.aws_catalogue import REGIONS
from providers.aws_client import THREADS
from providers.aws_preparation import GROUP
from providers.base import (
    Confidence,
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.emulators.clouds.aws_account import PRICES
from providers.emulators.clouds.aws_products import matching, products
from providers.emulators.scenario import FaultKind
from providers.listings import UNREADABLE_PRICE
from providers.optional import ListsSomeRegions
from tests.contract.clouds import a_key
from tests.contract.clouds.aws import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Bridge, EmulatedAws

Answer = Callable[[httpx.Request], httpx.Response]


def asked(request: httpx.Request) -> dict[str, str]:
    return dict(parse_qsl(request.content.decode(), keep_blank_values=True))


def xml(action: str, inside: str) -> bytes:
    return f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{inside}</{action}Response>'.encode()


def refusal(status: int, code: str, message: str = "") -> httpx.Response:
    error = f"<Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
    return httpx.Response(status, content=f"<Response>{error}<RequestID>1</RequestID></Response>".encode())


async def failure(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


@pytest.fixture
async def cloud() -> Any:
    made = EmulatedAws()
    yield made
    await made.provider.close()


class Requests:
    """What was asked of the emulator, and what is answered instead of it for some operations."""

    def __init__(self, cloud: EmulatedAws, **instead: Callable[[dict[str, str]], httpx.Response]) -> None:
        self.sent: list[tuple[str, dict[str, str]]] = []
        self._cloud, self._instead = cloud, instead
        self._emulator = cloud.network.handle_async_request
        cloud.provider = connect(settings(), send=Bridge(self))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        form = asked(request)
        action = form.get("Action", "GetProducts")
        self.sent.append((action, form))
        instead = self._instead.get(action)
        return instead(form) if instead else await self._emulator(request)

    def of(self, action: str) -> list[dict[str, str]]:
        return [form for name, form in self.sent if name == action]


def settings(region: str = "us-east-1", **other: Any) -> Settings:
    return Settings(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region, base_url="http://aws.test", **other)


# Settings, regions, zones.


def test_the_jurisdiction_of_a_region_is_not_taken_from_its_name() -> None:
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    outside = {
        theirs: ours[:2] for theirs, ours in REGIONS.items() if theirs[:2] == "eu" and ours[:2] != "eu"
    }
    assert outside == {"eu-west-2": "gb", "eu-central-2": "ch"}
    assert {ours[:2] for theirs, ours in REGIONS.items() if theirs[:2] == "ap"}.isdisjoint({"ap"})


def test_an_account_is_one_region_that_we_know() -> None:
    for wrong in ("", "moon-1", "us-east-1a", "us-east-1,eu-west-2"):
        with pytest.raises(ValueError, match="region must be one of us-east-1"):
            settings(wrong)


def test_neither_half_of_the_key_shows() -> None:
    assert ACCESS_KEY_ID not in repr(settings())
    assert SECRET_ACCESS_KEY not in repr(settings())


async def test_what_is_no_zone_of_ours_is_not_asked_for(cloud: EmulatedAws) -> None:
    for zone in ("us-east-1", "us-east-1-bos-1a", "mn-north-1a", "evil.example/us-east-1a"):
        cloud.native_region = zone
        assert isinstance(await failure(cloud.provider.launch(cloud.order())), OrderRefused)
    for ref in ("i-1", "evil.example/i-1", "moon-1/i-1"):
        assert isinstance(await failure(cloud.provider.terminate(ProviderRef(ref))), MachineNotFound)
    assert cloud.network.requests == []


# Offers.


async def offered(cloud: EmulatedAws) -> list[ListedOffer]:
    """The offers on demand. `test_aws_spot.py` is about the others."""
    listed = [each for each in await cloud.provider.offers() if isinstance(each, ListedOffer)]
    return [each for each in listed if not each.spot]


def by_type(offers: Iterable[ListedOffer], zone: str) -> dict[str, ListedOffer]:
    return {offer.native_type: offer for offer in offers if offer.native_region == zone}


async def test_a_type_is_offered_in_each_zone_that_has_it_at_the_exact_price_of_its_region(
    cloud: EmulatedAws,
) -> None:
    offers = await offered(cloud)
    p6 = {offer.native_region for offer in offers if offer.native_type == "p6-b200.48xlarge"}
    assert p6 == {"us-east-1c"}
    assert {offer.region for offer in offers} == {"us-east-1"}
    found = by_type(offers, "us-east-1c")
    p4, p5 = found["p4d.24xlarge"], found["p5.48xlarge"]
    assert p4.cost_nano_per_hour == 21_957_642_000 + BESIDE
    assert p5.ephemeral_gib == 8 * 3_800 * 10**9 // 2**30
    assert p5.network_gbps == 100, "of the one card that it is ordered with, not the 3,200 of all 32"
    assert (
        p5.shape.gpu_model,
        p5.shape.gpu_count,
        p5.shape.vcpus,
        p5.shape.memory_gib,
        p5.shape.disk_gib,
    ) == (
        GpuModel.H100_SXM_80GB,
        8,
        192,
        2_048,
        500,
    )
    assert {offer.confidence for offer in offers} == {Confidence.STATIC}
    models = {name: offer.shape.gpu_model for name, offer in found.items()}
    assert models["p4d.24xlarge"] is GpuModel.A100_SXM_40GB
    assert models["p4de.24xlarge"] is GpuModel.A100_SXM_80GB
    assert models["p5en.48xlarge"] is GpuModel.H200_SXM_141GB
    assert models["g6e.xlarge"] is GpuModel.L40S_48GB


async def test_parts_of_gpus_unknown_gpus_and_types_without_a_price_are_not_offered(
    cloud: EmulatedAws,
) -> None:
    listed = await cloud.provider.offers()
    names = {each.native_type for each in listed if isinstance(each, ListedOffer)}
    assert {"g6f.large", "g5.xlarge"} <= PRICES.keys()
    assert not {"g6f.large", "g5.xlarge", "g6.48xlarge"} & names
    assert names <= PRICES.keys()
    left_out = {(each.reason, each.name) for each in listed if isinstance(each, LeftOut)}
    assert (LeftOutFor.NO_PRICE, "g6.48xlarge") in left_out
    assert {reason for reason, _ in left_out} == {LeftOutFor.NO_PRICE}


async def test_types_for_capacity_blocks_and_arm_types_are_not_offered(cloud: EmulatedAws) -> None:
    kind = (
        "<instanceType>{name}</instanceType><supportedUsageClasses><item>{usage}</item></supportedUsageClasses>"
        "<processorInfo><supportedArchitectures><item>{arch}</item></supportedArchitectures></processorInfo>"
        "<vCpuInfo><defaultVCpus>96</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>1179648</sizeInMiB></memoryInfo>"
        "<gpuInfo><gpus><item><name>A100</name><manufacturer>NVIDIA</manufacturer><count>{count}</count>"
        "<memoryInfo><sizeInMiB>40960</sizeInMiB></memoryInfo></item></gpus></gpuInfo>"
    )
    kinds = (
        ("p4d.24xlarge", "on-demand", "x86_64", 8),
        ("p4de.24xlarge", "capacity-block", "x86_64", 8),
        ("p5.48xlarge", "on-demand", "arm64", 8),
        ("p5en.48xlarge", "on-demand", "x86_64", 0),
    )
    items = "".join(
        f"<item>{kind.format(name=name, usage=usage, arch=arch, count=count)}</item>"
        for name, usage, arch, count in kinds
    )
    requests = Requests(
        cloud,
        DescribeInstanceTypes=lambda _: httpx.Response(
            200, content=xml("DescribeInstanceTypes", f"<instanceTypeSet>{items}</instanceTypeSet>")
        ),
    )
    assert {offer.native_type for offer in await offered(cloud)} == {"p4d.24xlarge"}
    assert requests.of("DescribeInstanceTypeOfferings")[0]["Filter.1.Value.1"] == "p4d.24xlarge"


def priced(*products: dict[str, Any]) -> Callable[[dict[str, str]], httpx.Response]:
    """A price list with these machines and one volume."""

    def answer(form: dict[str, str]) -> httpx.Response:
        listed = [VOLUME] if "volumeApiName" in str(form) else products
        return httpx.Response(200, json={"PriceList": [json.dumps(each) for each in listed]})

    return answer


BESIDE = 54_794_521 + 5_000_000
"""500 GB of a volume at 0.08 USD a month, and an address, in nano-USD per hour."""
VOLUME = {
    "product": {"attributes": {"volumeApiName": "gp3"}},
    "terms": {
        "OnDemand": {"a": {"priceDimensions": {"b": {"unit": "GB-Mo", "pricePerUnit": {"USD": "0.08"}}}}}
    },
}


def product(usd: str | None, *, unit: str = "Hrs") -> dict[str, Any]:
    dimension = {"unit": unit, "pricePerUnit": {"CNY": "1"} if usd is None else {"USD": usd}}
    return {
        "product": {"attributes": {"instanceType": "p5.48xlarge"}},
        "terms": {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}, "Reserved": {"c": {"x": "y"}}},
    }


async def test_a_type_with_two_prices_or_none_is_left_out_and_the_same_price_twice_is_one(
    cloud: EmulatedAws,
) -> None:
    for listed, expected in (
        ((product("55.0400000000"), product("55.04")), 55_040_000_000 + BESIDE),
        ((product("55.04"), product("0.0000000000")), 55_040_000_000 + BESIDE),
        ((product("55.0400000011"),), 55_040_000_001 + BESIDE),
        ((product("55.04"), product("60.00")), UNREADABLE_PRICE),
        ((product("0.0000000000"),), UNREADABLE_PRICE),
        ((product(None),), UNREADABLE_PRICE),
        ((product("55.04", unit="Quantity"),), UNREADABLE_PRICE),
    ):
        Requests(cloud, GetProducts=priced(*listed))
        offers = by_type(await offered(cloud), "us-east-1a")
        assert {name: offer.cost_nano_per_hour for name, offer in offers.items()} == {"p5.48xlarge": expected}


async def test_without_a_single_price_of_a_volume_no_type_has_a_price(cloud: EmulatedAws) -> None:
    for volumes in ([], [product("55.04")]):

        def answer(form: dict[str, str], volumes: Any = volumes) -> httpx.Response:
            listed = volumes if "volumeApiName" in str(form) else [product("55.04")]
            return httpx.Response(200, json={"PriceList": [json.dumps(each) for each in listed]})

        Requests(cloud, GetProducts=answer)
        offers = by_type(await offered(cloud), "us-east-1a")
        assert {offer.cost_nano_per_hour for offer in offers.values()} == {UNREADABLE_PRICE}


async def test_the_filters_leave_one_product_of_each_type(cloud: EmulatedAws) -> None:
    bodies: list[bytes] = []
    emulator = cloud.network.handle_async_request

    class Recorded:
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "X-Amz-Target" in request.headers:
                bodies.append(request.content)
            return await emulator(request)

    provider = connect(settings("us-east-1"), send=Bridge(Recorded()))
    await provider.offers()
    body, volumes = (json.loads(each) for each in bodies)
    assert len(matching(volumes["Filters"])) == 1
    found = [json.loads(each)["product"]["attributes"]["instanceType"] for each in matching(body["Filters"])]
    assert len(found) == len(set(found)) > 5
    assert len(list(products("us-east-1"))) == 6 * len(found) + 2
    await provider.close()


# The list.


async def test_a_region_that_is_down_leaves_every_call_of_another_region_alone(cloud: EmulatedAws) -> None:
    """Each region is an account, which asks no other one; the prices of both come from one place."""
    asked_in: set[str] = set()

    class OneRegionDown:
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            region = request.headers["Authorization"].split("/")[2]
            asked_in.add(region)
            if region == "eu-central-1":
                return refusal(503, "Unavailable")
            return await cloud.network.handle_async_request(request)

    network = Bridge(OneRegionDown())
    down, fine = (connect(settings(region), send=network) for region in ("eu-central-1", "us-east-1"))
    for call in (down.inventory, down.children, down.offers):
        assert isinstance(await failure(call()), Unavailable)
    asked_in.clear()
    ref = await fine.launch(cloud.order())
    assert [each.provider_ref for each in await fine.inventory()] == [ref]
    assert await fine.offers()
    assert await fine.children() == ()
    await fine.terminate(ref)
    assert asked_in == {"us-east-1"}
    elsewhere = replace(cloud.order(2), native_region="eu-central-1a")
    assert isinstance(await failure(fine.launch(elsewhere)), OrderRefused)
    await asyncio.gather(down.close(), fine.close())


async def test_two_regions_of_one_key_never_show_each_others_machines(cloud: EmulatedAws) -> None:
    first = await cloud.provider.launch(cloud.order(1))
    other = cloud.connected(SECRET_ACCESS_KEY, "eu-central-1")
    cloud.native_type, cloud.native_region = "p4d.24xlarge", "eu-central-1b"
    second = await other.launch(cloud.order(2))
    assert (first.partition("/")[0], second.partition("/")[0]) == ("us-east-1", "eu-central-1")
    assert [each.provider_ref for each in await cloud.provider.inventory()] == [first]
    assert [each.provider_ref for each in await other.inventory()] == [second]
    wrong = ProviderRef(f"us-east-1/{second.partition('/')[2]}")
    assert isinstance(await failure(cloud.provider.terminate(wrong)), MachineNotFound)
    # A machine from before the setting was changed is still ended, in its own region.
    await cloud.provider.terminate(second)
    assert (cloud.alive(a_key(1)), cloud.alive(a_key(2))) == (1, 0)
    await other.close()


def instance(number: int, *, token: str = "", tag: str = "", state: str = "running") -> str:
    marks = f"<tagSet><item><key>Name</key><value>{tag}</value></item></tagSet>" if tag else ""
    return (
        f"<item><instancesSet><item><instanceId>i-{number}</instanceId><clientToken>{token}</clientToken>"
        f"<instanceState><code>16</code><name>{state}</name></instanceState>{marks}</item></instancesSet></item>"
    )


def test_only_machines_in_the_region_of_the_settings_are_listed() -> None:
    provider = connect(settings("us-east-1"))
    assert isinstance(provider, ListsSomeRegions)
    regions = ("us-east-1a", "us-east-1f", "us-east-2a", "eu-central-1a", "us-east-1", "")
    assert [region for region in regions if provider.lists(region)] == ["us-east-1a", "us-east-1f"]


async def test_every_page_is_read_also_behind_one_that_is_empty(cloud: EmulatedAws) -> None:
    pages = {
        "": ("", "t1"),
        "t1": (instance(1, token=a_key(1)), "t2"),
        "t2": (instance(2, token=a_key(2)) + instance(3, tag="box"), ""),
    }

    def answer(form: dict[str, str]) -> httpx.Response:
        machines, then = pages[form.get("NextToken", "")]
        more = f"<nextToken>{then}</nextToken>" if then else ""
        inside = f"<reservationSet>{machines}</reservationSet>{more}"
        return httpx.Response(200, content=xml("DescribeInstances", inside))

    requests = Requests(cloud, DescribeInstances=answer)
    cloud.provider = connect(settings("us-east-1"), send=Bridge(requests))
    assert [each.provider_ref for each in await cloud.provider.inventory()] == [
        "us-east-1/i-1",
        "us-east-1/i-2",
    ]
    assert {form["MaxResults"] for form in requests.of("DescribeInstances")} == {"1000"}


async def test_a_machine_whose_tags_somebody_removed_is_still_ours(cloud: EmulatedAws) -> None:
    ref = await cloud.provider.launch(cloud.order())
    backend = cloud.account.backend("us-east-1")
    tags = {tag["key"] for tag in backend.describe_tags({"resource-id": [cloud.machine(ref).id]})}
    assert tags == {"sp-launch-key", "Name"}
    backend.delete_tags([cloud.machine(ref).id], {"sp-launch-key": None, "Name": None})
    assert [each.provider_ref for each in await cloud.provider.inventory()] == [ref]


async def test_a_terminated_machine_is_listed_as_gone_for_an_hour(cloud: EmulatedAws) -> None:
    ref = await cloud.provider.launch(cloud.order())
    await cloud.provider.terminate(ref)
    seen = []
    for seconds in (0, 60, 3_500, 200):
        cloud.advance(seconds)
        seen.append([(each.native_status, each.state) for each in await cloud.provider.inventory()])
    gone = [("terminated", ListedState.GONE)]
    assert seen == [[("shutting-down", ListedState.ENDING)], gone, gone, []]


async def test_to_terminate_what_is_terminated_but_listed_says_that_it_is_gone(cloud: EmulatedAws) -> None:
    ref = await cloud.provider.launch(cloud.order())
    await cloud.provider.terminate(ref)
    await cloud.provider.terminate(ref)  # It is still shutting down.
    cloud.advance(60)
    assert "terminated before" in str(await failure(cloud.provider.terminate(ref)))


async def test_a_new_machine_may_be_unknown_to_every_request_for_a_while(cloud: EmulatedAws) -> None:
    cloud.scenario.list_lag_seconds = 30.0
    ref = await cloud.provider.launch(cloud.order())
    assert await cloud.provider.inventory() == ()
    error = await failure(cloud.provider.terminate(ref))
    assert (type(error), error.code) == (MachineNotFound, "InvalidInstanceID.NotFound")
    assert cloud.alive(a_key()) == 1
    cloud.advance(30.0)
    assert len(await cloud.provider.inventory()) == 1


# Launches.


async def test_a_launch_carries_its_key_three_times_and_leaves_nothing_behind(cloud: EmulatedAws) -> None:
    requests = Requests(cloud)
    order = cloud.order()
    await cloud.provider.launch(order)
    (form,) = requests.of("RunInstances")
    expected = {
        "ClientToken": order.launch_key,
        "MinCount": "1",
        "MaxCount": "1",
        "InstanceType": "p5.48xlarge",
        "InstanceInitiatedShutdownBehavior": "stop",
        "MetadataOptions.HttpTokens": "required",
        "NetworkInterface.1.AssociatePublicIpAddress": "true",
        "NetworkInterface.1.DeleteOnTermination": "true",
        "BlockDeviceMapping.1.DeviceName": "/dev/sda1",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "500",
        "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
    }
    assert {name: form.get(name) for name in expected} == expected
    assert base64.b64decode(form["UserData"]).decode() == order.user_data
    assert not {name for name in form if name.startswith(("InstanceMarketOptions", "KeyName"))}
    for number, kind in enumerate(("instance", "volume", "network-interface"), 1):
        assert form[f"TagSpecification.{number}.ResourceType"] == kind
        assert form[f"TagSpecification.{number}.Tag.1.Value"] == order.launch_key


async def test_further_volumes_of_an_image_go_with_the_machine_as_well(cloud: EmulatedAws) -> None:
    mappings = "".join(
        f"<item><deviceName>{name}</deviceName>{what}</item>"
        for name, what in (
            ("/dev/sda1", "<ebs><volumeSize>8</volumeSize></ebs>"),
            ("/dev/sdf", "<ebs><deleteOnTermination>false</deleteOnTermination></ebs>"),
            ("/dev/sdb", "<virtualName>ephemeral0</virtualName>"),
        )
    )
    image = (
        "<item><imageId>ami-1</imageId><creationDate>2026-11-01T00:00:00.000Z</creationDate>"
        f"<rootDeviceName>/dev/sda1</rootDeviceName><blockDeviceMapping>{mappings}</blockDeviceMapping></item>"
    )
    requests = Requests(
        cloud,
        DescribeImages=lambda _: httpx.Response(
            200, content=xml("DescribeImages", f"<imagesSet>{image}</imagesSet>")
        ),
        RunInstances=lambda _: refusal(400, "InvalidParameterValue"),
    )
    await failure(cloud.provider.launch(cloud.order()))
    (form,) = requests.of("RunInstances")
    assert {name: value for name, value in form.items() if name.startswith("BlockDeviceMapping.2")} == {
        "BlockDeviceMapping.2.DeviceName": "/dev/sdf",
        "BlockDeviceMapping.2.Ebs.DeleteOnTermination": "true",
    }
    assert not any(name.startswith("BlockDeviceMapping.3") for name in form)


async def test_the_same_launch_again_is_the_same_machine_and_another_under_its_key_is_unknown(
    cloud: EmulatedAws,
) -> None:
    first = await cloud.provider.launch(cloud.order())
    assert await cloud.provider.launch(cloud.order()) == first
    error = await failure(cloud.provider.launch(cloud.order(user_data="#cloud-config\n# other")))
    assert (type(error), error.code) == (OutcomeUnknown, "IdempotentParameterMismatch")
    await cloud.provider.terminate(first)
    error = await failure(cloud.provider.launch(cloud.order()))
    assert (type(error), error.code) == (OutcomeUnknown, "IdempotentInstanceTerminated")
    assert (cloud.ever(a_key()), cloud.alive(a_key())) == (1, 0)


async def test_a_launch_is_sent_once_whatever_comes_back(cloud: EmulatedAws) -> None:
    requests = Requests(cloud)
    await cloud.provider.launch(cloud.order(1))
    for number, kind in enumerate((FaultKind.CUT_AFTER, FaultKind.ERROR_AFTER, FaultKind.ERROR_BEFORE), 2):
        cloud.scenario.add("launch", kind)
        before = len(requests.sent)
        assert isinstance(await failure(cloud.provider.launch(cloud.order(number))), OutcomeUnknown)
        assert len(requests.sent) == before + 1, kind


async def test_a_refused_launch_is_what_its_code_says_whatever_the_status(cloud: EmulatedAws) -> None:
    await cloud.provider.launch(cloud.order(1))
    for status, code, error in (
        (500, "InsufficientInstanceCapacity", NoCapacity),
        (500, "InsufficientHostCapacity", NoCapacity),
        (400, "InsufficientFreeAddressesInSubnet", NoCapacity),
        (400, "Unsupported", NoCapacity),
        (400, "UnfulfillableCapacity", NoCapacity),
        (400, "VcpuLimitExceeded", QuotaReached),
        (400, "InstanceLimitExceeded", QuotaReached),
        (400, "VolumeLimitExceeded", QuotaReached),
        (503, "RequestLimitExceeded", Throttled),
        (401, "AuthFailure", Unauthorized),
        (403, "UnauthorizedOperation", Unauthorized),
        (400, "OptInRequired", Unauthorized),
        (400, "PendingVerification", Unauthorized),
        (400, "RequestExpired", Unauthorized),
        (400, "IdempotentParameterMismatch", OutcomeUnknown),
        (500, "InternalError", OutcomeUnknown),
        (503, "Unavailable", OutcomeUnknown),
    ):
        cloud.network.answer = lambda _, status=status, code=code: refusal(status, code, "words")
        got = await failure(cloud.provider.launch(cloud.order(2)))
        assert (type(got), got.code) == (error, code)


async def test_a_refused_end_is_what_its_code_says(cloud: EmulatedAws) -> None:
    for status, code, error in (
        (400, "InvalidInstanceID.NotFound", MachineNotFound),
        (400, "InvalidInstanceID.Malformed", MachineNotFound),
        (400, "OperationNotPermitted", NotYet),
        (400, "IncorrectInstanceState", NotYet),
        (500, "InsufficientInstanceCapacity", OutcomeUnknown),
        (503, "RequestLimitExceeded", Throttled),
    ):
        cloud.network.answer = lambda _, status=status, code=code: refusal(status, code)
        assert type(await failure(cloud.provider.terminate(cloud.absent_ref))) is error, code


async def test_a_type_that_a_zone_lacks_is_refused_there_alone_and_a_quota_is_for_a_type_in_all_zones(
    cloud: EmulatedAws,
) -> None:
    cloud.native_type, cloud.native_region = "p6-b200.48xlarge", "us-east-1a"
    error = await failure(cloud.provider.launch(cloud.order(1)))
    assert (type(error), error.code) == (NoCapacity, "Unsupported")
    cloud.native_region = "us-east-1c"
    await cloud.provider.launch(cloud.order(2))
    cloud.account.vcpus_max = 192
    error = await failure(cloud.provider.launch(cloud.order(3)))
    assert isinstance(error, QuotaReached)
    assert error.scope is BlockScope.TYPE


async def test_sold_out_in_one_zone_is_not_sold_out_in_another(cloud: EmulatedAws) -> None:
    cloud.sell_out()
    assert isinstance(await failure(cloud.provider.launch(cloud.order(1))), NoCapacity)
    cloud.native_region = "us-east-1b"
    await cloud.provider.launch(cloud.order(2))
    for code, scope in (
        ("InsufficientInstanceCapacity", None),  # The type in the zone.
        ("Unsupported", None),
        ("InsufficientFreeAddressesInSubnet", BlockScope.ZONE),
        ("VcpuLimitExceeded", BlockScope.TYPE),  # In all zones.
        ("AddressLimitExceeded", None),  # The region.
    ):
        cloud.network.answer = lambda _, code=code: refusal(400, code)
        error = await failure(cloud.provider.launch(cloud.order(3)))
        assert isinstance(error, Rejected)
        assert error.scope is scope, code


# What launches need.


async def test_the_security_group_opens_ssh_and_wireguard_only_and_is_made_once(cloud: EmulatedAws) -> None:
    requests = Requests(cloud)
    await cloud.provider.launch(cloud.order(1))
    await connect(settings(), send=Bridge(requests)).launch(cloud.order(2))
    assert len(requests.of("CreateSecurityGroup")) == 1
    (form,) = requests.of("AuthorizeSecurityGroupIngress")
    rules = [
        tuple(form[f"IpPermissions.{number}.{name}"] for name in ("IpProtocol", "FromPort", "ToPort"))
        for number in (1, 2)
    ]
    assert rules == [("tcp", "22", "22"), ("udp", "51820", "51820")]
    assert "IpPermissions.3.IpProtocol" not in form


async def test_a_group_that_was_made_but_not_opened_is_opened_as_far_as_it_is_closed(
    cloud: EmulatedAws,
) -> None:
    backend = cloud.account.backend("us-east-1")
    vpc = backend.get_default_vpc().id
    group = backend.create_security_group(GROUP, "made before", vpc)
    for already, opened in (((), ["tcp", "udp"]), (("tcp", 22), ["udp"])):
        if already:
            backend.revoke_security_group_ingress(
                group.id, "udp", 51_820, 51_820, [{"CidrIp": "0.0.0.0/0"}], vpc_id=vpc
            )
        requests = Requests(cloud)
        await cloud.provider.launch(cloud.order())
        assert not requests.of("CreateSecurityGroup")
        (form,) = requests.of("AuthorizeSecurityGroupIngress")
        assert [value for name, value in form.items() if name.endswith("IpProtocol")] == opened


async def test_nothing_is_launched_behind_a_port_that_is_closed_when_the_group_is_read_again(
    cloud: EmulatedAws,
) -> None:
    """Of two launches at the same time, one may read the group while the other opens it."""
    order = cloud.order(2)
    await cloud.provider.launch(cloud.order(1))
    backend = cloud.account.backend("us-east-1")
    (group,) = (each for each in backend.describe_security_groups() if each.name == GROUP)
    everybody = [{"CidrIp": "0.0.0.0/0"}]
    backend.revoke_security_group_ingress(group.id, "tcp", 22, 22, everybody, vpc_id=group.vpc_id)
    cloud.provider._preparation._regions["us-east-1"].group = None
    await cloud.provider.prepare(order)
    assert not cloud.provider.prepared(order)
    await cloud.provider.launch(order)
    assert {int(rule.from_port) for rule in group.ingress_rules} == {22, 51_820}


async def test_what_another_replica_made_meanwhile_is_found_by_reading_again(cloud: EmulatedAws) -> None:
    order = cloud.order()
    mine, theirs = cloud.connected(SECRET_ACCESS_KEY), cloud.connected(SECRET_ACCESS_KEY)
    for _ in range(2):  # The subnets, and that there is no group.
        await mine.prepare(order)
    await theirs.launch(order)
    assert isinstance(await failure(mine.prepare(order)), Unavailable)  # The group exists now.
    await mine.launch(cloud.order(2))
    assert (cloud.alive(a_key(1)), cloud.alive(a_key(2))) == (1, 1)
    await mine.close()
    await theirs.close()


async def test_a_group_that_somebody_deleted_is_made_again(cloud: EmulatedAws) -> None:
    await cloud.provider.launch(cloud.order(1))
    gone = refusal(400, "InvalidGroup.NotFound", "The security group does not exist")
    cloud.network.answer = lambda _: gone
    assert isinstance(await failure(cloud.provider.launch(cloud.order(2))), OrderRefused)
    cloud.network.answer = None
    assert not cloud.provider.prepared(cloud.order(2))
    await cloud.provider.launch(cloud.order(2))


async def test_the_newest_image_of_amazon_is_used_and_no_strangers(cloud: EmulatedAws) -> None:
    requests = Requests(cloud)
    await cloud.provider.launch(cloud.order())
    (form,) = requests.of("RunInstances")
    assert form["ImageId"] == "ami-0a2222222222222a2"
    (images,) = requests.of("DescribeImages")
    assert {images["Owner.1"], images["Owner.2"]} == {"amazon", "self"}


async def test_without_an_image_or_a_default_vpc_nothing_is_bought_and_the_error_says_what_is_missing(
    cloud: EmulatedAws,
) -> None:
    provider = connect(settings(image="No such image *"), send=Bridge(cloud.network))
    assert "has no image named" in str(await failure(provider.launch(cloud.order())))
    nothing = httpx.Response(200, content=xml("DescribeSubnets", "<subnetSet/>"))
    cloud.network.answer = lambda _: nothing
    assert "no default VPC" in str(await failure(cloud.provider.launch(cloud.order())))
    assert cloud.ever(a_key()) == 0
    await provider.close()


# botocore.


async def test_a_wrong_secret_is_refused_by_its_signature_and_does_not_show(cloud: EmulatedAws) -> None:
    provider = cloud.connected("another-secret-0123456789")
    error = await failure(provider.inventory())
    assert (type(error), error.code) == (Unauthorized, "AuthFailure")
    await provider.close()


async def test_no_half_of_the_key_that_aws_quotes_shows(cloud: EmulatedAws) -> None:
    for quoted in (SECRET_ACCESS_KEY, ACCESS_KEY_ID, SECRET_ACCESS_KEY[10:30]):
        cloud.network.answer = lambda _, quoted=quoted: refusal(
            400, "SignatureDoesNotMatch", f"not {quoted}!"
        )
        error = await failure(cloud.provider.inventory())
        assert quoted not in f"{error} {error!r}"
        assert error.code == "SignatureDoesNotMatch"


async def test_a_document_of_another_operation_is_no_answer(cloud: EmulatedAws) -> None:
    for document in (
        xml("DescribeImages", "<imagesSet/>"),
        b"<html><body>welcome</body></html>",
        xml("DescribeInstances", ""),
    ):
        cloud.network.answer = lambda _, document=document: httpx.Response(200, content=document)
        assert isinstance(await failure(cloud.provider.inventory()), Unavailable)


async def test_a_page_of_somebody_else_is_no_answer_to_what_needs_nothing_from_its_answer(
    cloud: EmulatedAws,
) -> None:
    page = httpx.Response(200, content=b"<html><body>welcome</body></html>")
    requests = Requests(cloud, AuthorizeSecurityGroupIngress=lambda _: page)
    assert isinstance(await failure(cloud.provider.launch(cloud.order())), Unavailable)
    assert not requests.of("RunInstances")


async def test_only_200_is_a_whole_answer(cloud: EmulatedAws) -> None:
    await cloud.provider.launch(cloud.order())
    document = xml("DescribeInstances", "<reservationSet/>")
    for status in (201, 202, 206, 207):
        cloud.network.answer = lambda _, status=status: httpx.Response(status, content=document)
        assert isinstance(await failure(cloud.provider.inventory()), Unavailable), status
    cloud.network.answer = lambda _: httpx.Response(200, content=document)
    assert await cloud.provider.inventory() == ()


async def test_the_environment_of_the_host_changes_nothing(
    cloud: EmulatedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cloud.provider.launch(cloud.order(1))  # moto reads the environment too, once.
    for name, value in (
        ("AWS_PROFILE", "nobody"),
        ("AWS_ACCESS_KEY_ID", "AKIAOFTHEHOST"),
        ("AWS_SECRET_ACCESS_KEY", "of-the-host"),
        ("AWS_ENDPOINT_URL", "http://elsewhere.test"),
        ("AWS_MAX_ATTEMPTS", "9"),
    ):
        monkeypatch.setenv(name, value)
    await cloud.provider.close()
    cloud.provider = cloud.connected(SECRET_ACCESS_KEY)
    await cloud.provider.launch(cloud.order(2))
    cloud.scenario.add("inventory", FaultKind.ERROR_BEFORE)
    cloud.network.requests.clear()
    assert isinstance(await failure(cloud.provider.inventory()), Unavailable)
    assert len(cloud.network.requests) == 1


async def test_no_proxy_no_certificates_and_no_kind_of_endpoint_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("HTTP_PROXY", "http://proxy.test:3128"),
        ("HTTPS_PROXY", "http://proxy.test:3128"),
        ("AWS_CA_BUNDLE", "/nowhere/aws.pem"),
        ("REQUESTS_CA_BUNDLE", "/nowhere/requests.pem"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
        ("AWS_DEFAULTS_MODE", "mobile"),
        ("AWS_SDK_UA_APP_ID", "of-the-host"),
    ):
        monkeypatch.setenv(name, value)
    sent: list[Any] = []

    def send(request: Any) -> Any:
        sent.append(request)
        raise EndpointConnectionError(endpoint_url=request.url)

    provider = connect(Settings(ACCESS_KEY_ID, SECRET_ACCESS_KEY, "us-east-1"), send=send)
    assert isinstance(await failure(provider.inventory()), Unavailable)
    (request,) = sent
    assert request.url == "https://ec2.us-east-1.amazonaws.com/"
    assert "of-the-host" not in str(request.headers)
    (client,) = vars(vars(provider)["_aws"])["_clients"].values()
    session = vars(vars(client)["_endpoint"].http_session)
    assert vars(session["_proxy_config"])["_proxies"] == {}
    assert session["_verify"] is True
    assert (session["_timeout"].connect_timeout, session["_timeout"].read_timeout) == (10.0, 30.0)
    await provider.close()


async def test_a_call_that_nobody_waits_for_any_more_holds_no_loop() -> None:
    """Its thread ends by its own timeout, and is none of those that others use; the loop goes on at once."""
    entered, released, threads = threading.Event(), threading.Event(), list[str]()

    def hang(_: Any) -> Any:
        threads.append(threading.current_thread().name)
        entered.set()
        released.wait(60)
        raise ReadTimeoutError(endpoint_url="http://aws.test")

    provider = connect(settings(), send=hang)
    call = asyncio.ensure_future(provider.inventory())
    assert await asyncio.to_thread(entered.wait, 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [name.partition("_")[0] for name in threads] == ["aws-us-east-1"]
    released.set()
    await provider.close()


async def test_a_region_that_hangs_delays_no_terminate_of_another_and_its_lists_not_its_own_terminates() -> (
    None
):
    for hung in ("DescribeInstances", "TerminateInstances"):
        released, entered = threading.Event(), threading.Semaphore(0)

        def send(request: Any, hung: str = hung, released: Any = released, entered: Any = entered) -> Any:
            if "us-east-1" in request.url and hung in str(request.body):
                entered.release()
                released.wait(60)
            raise EndpointConnectionError(endpoint_url=request.url)

        provider = connect(Settings(ACCESS_KEY_ID, SECRET_ACCESS_KEY, "us-east-1"), send=send)
        calls = [
            asyncio.ensure_future(
                provider.inventory()
                if hung == "DescribeInstances"
                else provider.terminate(ProviderRef(f"us-east-1/i-{number}"))
            )
            for number in range(2 * THREADS)
        ]
        for _ in range(THREADS):
            assert await asyncio.to_thread(entered.acquire, timeout=60)
        others = ["eu-central-1", *(["us-east-1"] if hung == "DescribeInstances" else [])]
        for region in others:
            ended = asyncio.wait_for(provider.terminate(ProviderRef(f"{region}/i-0")), 60)
            assert isinstance(await failure(ended), Unavailable), (hung, region)
        released.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await provider.close()


# Rate limits.


async def test_a_steady_pace_within_our_limits_is_never_throttled_and_beyond_them_it_is(
    cloud: EmulatedAws,
) -> None:
    cloud.account.vcpus_max = 100_000
    await cloud.provider.launch(cloud.order(0))
    cloud.network.seconds_between = 0.0
    slowest = max(limit.seconds / limit.calls for limit in CAPABILITIES.rate_limits)
    for number in range(1, 12):
        cloud.clock.advance(timedelta(seconds=slowest).total_seconds())
        await cloud.provider.launch(cloud.order(number))
    refused = [await failure_or_none(cloud.provider, cloud, number) for number in range(20, 40)]
    assert sum(isinstance(each, Throttled) for each in refused) > 10
    assert cloud.app.state.limiter.refused > 10


async def failure_or_none(provider: Aws, cloud: EmulatedAws, number: int) -> ProviderError | None:
    try:
        await provider.launch(cloud.order(number))
    except ProviderError as error:
        return error
    return None
