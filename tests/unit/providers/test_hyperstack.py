"""What the law suite does not reach: prices, regions, pages, words of refusals, what other replicas registered."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from providers.base import (
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
    Unauthorized,
    Unavailable,
)
from providers.hyperstack import PAGE_SIZE, REGIONS, Hyperstack, Settings, connect
from tests.contract.clouds import a_key
from tests.contract.clouds.hyperstack import EmulatedHyperstack

ORDER = EmulatedHyperstack().order()
PLACES = {
    "core/environments": {
        "status": True,
        "environments": [{"name": "splitplane-CANADA-1", "region": "CANADA-1"}],
    },
    "core/keypairs": {
        "status": True,
        "keypairs": [
            {
                "name": "k",
                "public_key": ORDER.ssh_public_key + "-another-comment",
                "environment": {"name": "splitplane-CANADA-1"},
            }
        ],
    },
}
Answer = Callable[[httpx.Request], httpx.Response]


def answering(answer: Answer) -> Hyperstack:
    def prepared(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1/")
        return httpx.Response(200, json=PLACES[path]) if path in PLACES else answer(request)

    return connect(
        Settings(api_key="planted-secret-key", base_url="https://hyperstack.test/v1"),
        transport=httpx.MockTransport(prepared),
    )


def refusing(status: int, reason: str | None, message: str) -> Hyperstack:
    body = {"status": False, "message": message} | ({"error_reason": reason} if reason else {})
    return answering(lambda _: httpx.Response(status, json=body))


def flavor(**other: Any) -> dict[str, Any]:
    return {
        "name": "n3-H100x8",
        "gpu": "H100-80G-PCIe",
        "gpu_count": 8,
        "cpu": 252,
        "ram": 1440.0,
        "disk": 100,
        "region_name": "NORWAY-1",
        "stock_available": True,
    } | other


def selling(*flavors: dict[str, Any], prices: list[dict[str, Any]]) -> Hyperstack:
    def answer(request: httpx.Request) -> httpx.Response:
        listed = {"status": True, "data": [{"gpu": each["gpu"], "flavors": [each]} for each in flavors]}
        return httpx.Response(200, json=prices if request.url.path.endswith("pricebook") else listed)

    return answering(answer)


def test_every_region_has_a_jurisdiction() -> None:
    assert {ours[:2] for ours in REGIONS.values()} == {"ca", "no", "us"}
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())


@pytest.mark.parametrize("value", [1.9, "1.9", "1.90"])
async def test_a_machine_costs_the_price_of_its_gpus_exactly(value: float | str) -> None:
    (offer,) = await selling(flavor(), prices=[{"name": "H100-80G-PCIe", "value": value}]).offers()
    assert isinstance(offer, ListedOffer)
    assert offer.cost_nano_per_hour == 15_200_000_000
    assert (offer.shape.gpu_model, offer.shape.gpu_count, offer.region) == (
        GpuModel.H100_PCIE_80GB,
        8,
        "no-norway-1",
    )


async def test_what_has_no_price_no_known_gpu_or_no_known_region_is_left_out_by_name_and_spot_is_said() -> (
    None
):
    provider = selling(
        flavor(name="spot", gpu="H100-80G-PCIe-spot"),
        flavor(name="mars", region_name="MARS-1"),
        flavor(name="unpriced", gpu="H200-141G-SXM5"),
        flavor(name="new", gpu="B300-288G-SXM6"),
        flavor(name="cpu", gpu="", gpu_count=0),
        flavor(name="sold out", stock_available=False),
        prices=[{"name": "H100-80G-PCIe", "value": 1.9}, {"name": "H100-80G-PCIe-spot", "value": 1.5}],
    )
    spot, *left_out, sold_out = await provider.offers()
    assert isinstance(spot, ListedOffer)
    assert isinstance(sold_out, ListedOffer)
    assert (spot.native_type, spot.spot, spot.cost_nano_per_hour) == ("spot", True, 12_000_000_000)
    assert (sold_out.native_type, sold_out.spot, sold_out.available) == ("sold out", False, False)
    assert left_out == [
        LeftOut(LeftOutFor.UNKNOWN_REGION, "MARS-1"),
        LeftOut(LeftOutFor.NO_PRICE, "unpriced"),
        LeftOut(LeftOutFor.UNKNOWN_GPU, "B300-288G-SXM6"),
    ]


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (400, "bad_request", "Not enough capacity for flavor n3-H100x8", NoCapacity),
        (400, "bad_request", "Flavor is OUT OF STOCK in CANADA-1", NoCapacity),
        (400, None, "no capacity", NoCapacity),
        (400, "bad_request", "Insufficient credit balance", QuotaReached),
        (400, "bad_request", "Your quota does not allow this", QuotaReached),
        (400, "bad_request", "user_data must be a string", OrderRefused),
        (404, "not_found", "Image not found", OrderRefused),
        (401, "unauthorized", "who are you", Unauthorized),
        (403, "forbidden", "not yours", OrderRefused),
        (500, "server_error", "no capacity", OutcomeUnknown),
        (200, "bad_request", "Not enough capacity", OutcomeUnknown),
        (200, None, "something", OutcomeUnknown),
    ],
)
async def test_a_refused_launch_is_what_its_words_say_and_unknown_when_in_doubt(
    status: int, reason: str | None, message: str, error: type[ProviderError]
) -> None:
    with pytest.raises(ProviderError) as caught:
        await refusing(status, reason, message).launch(ORDER)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (400, "bad_request", "is currently being created and cannot be deleted yet", NotYet),
        (404, "not_found", "Virtual machine not found", MachineNotFound),
        (200, "server_error", "it did not work", OutcomeUnknown),
    ],
)
async def test_a_refused_delete_is_what_its_words_say(
    status: int, reason: str, message: str, error: type[ProviderError]
) -> None:
    with pytest.raises(ProviderError) as caught:
        await refusing(status, reason, message).terminate(ProviderRef("7"))
    assert type(caught.value) is error


def machine(number: int, **other: Any) -> dict[str, Any]:
    return {"id": number, "status": "ACTIVE", "name": a_key(number), "labels": [a_key(number)]} | other


async def test_a_floating_ip_is_an_address_only_when_it_is_attached() -> None:
    page = {
        "status": True,
        "instances": [
            machine(1, floating_ip="192.0.2.7", floating_ip_status="ATTACHING"),
            machine(2, floating_ip="192.0.2.8", floating_ip_status="ATTACHED"),
            machine(3, status="SHUTOFF", labels=[]),
            machine(4, name="box", labels=["theirs"]),
        ],
    }
    found = await answering(lambda _: httpx.Response(200, json=page)).inventory()
    assert [(each.provider_ref, each.state, each.address) for each in found] == [
        ("1", ListedState.RUNNING, None),
        ("2", ListedState.RUNNING, "192.0.2.8"),
        ("3", ListedState.STOPPED, None),
    ]


def paged(count: int, *, size: int, echo: Callable[[int], int] = lambda page: page) -> Hyperstack:
    """A list of machines by pages, of which each has at most `size`, whatever is asked for."""

    def answer(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["page"])
        assert request.url.params["pageSize"] == str(PAGE_SIZE)
        numbers = range(1, count + 1)[(page - 1) * size : page * size]
        body = {
            "status": True,
            "instances": [machine(n) for n in numbers],
            "page": echo(page),
            "page_size": size,
        }
        return httpx.Response(200, json=body)

    return answering(answer)


@pytest.mark.parametrize(("count", "size"), [(0, 100), (99, 100), (100, 100), (101, 100), (45, 20)])
async def test_every_page_is_read_also_when_pages_are_smaller_than_asked(count: int, size: int) -> None:
    found = await paged(count, size=size).inventory()
    assert [each.provider_ref for each in found] == [str(number) for number in range(1, count + 1)]


async def test_a_page_that_was_not_asked_for_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="another page"):
        await paged(250, size=100, echo=lambda _: 1).inventory()


async def test_a_launch_opens_ssh_and_wireguard_only_and_keeps_its_ports() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"status": True, "instances": [machine(7)]})

    assert await answering(answer).launch(ORDER) == "7"
    (body,) = sent
    assert body["name"] == ORDER.launch_key
    assert body["labels"] == [ORDER.launch_key]
    assert (body["count"], body["assign_floating_ip"], body["enable_port_randomization"]) == (1, True, False)
    rules = body["security_rules"]
    assert {
        (rule["direction"], rule["protocol"], rule["port_range_min"], rule["port_range_max"])
        for rule in rules
    } == {
        ("ingress", "tcp", 22, 22),
        ("ingress", "udp", 51_820, 51_820),
    }


async def test_what_another_replica_registered_meanwhile_is_found_by_reading_again() -> None:
    cloud = EmulatedHyperstack()
    order = cloud.order()
    mine, theirs = cloud.connected(str(cloud.secret)), cloud.connected(str(cloud.secret))
    await mine.prepare(order)
    await theirs.launch(order)
    with pytest.raises(Unavailable):
        await mine.prepare(order)  # The environment exists now.
    await mine.launch(cloud.order(2))
    assert len(cloud.account.environments) == 1
    assert len(cloud.account.keypairs) == 1


async def test_a_key_that_somebody_deleted_is_registered_again() -> None:
    cloud = EmulatedHyperstack()
    await cloud.provider.launch(cloud.order())
    cloud.account.keypairs.clear()
    with pytest.raises(OrderRefused):
        await cloud.provider.launch(cloud.order(2))
    await cloud.provider.launch(cloud.order(2))
    assert cloud.alive(a_key(2)) == 1


async def test_each_region_has_an_environment_and_a_key_of_its_own() -> None:
    cloud = EmulatedHyperstack()
    await cloud.provider.launch(cloud.order())
    cloud.native_region = "NORWAY-1"
    await cloud.provider.launch(cloud.order(2))
    assert cloud.account.environments == {
        "splitplane-CANADA-1": "CANADA-1",
        "splitplane-NORWAY-1": "NORWAY-1",
    }
    assert {environment for environment, _ in cloud.account.keypairs} == set(cloud.account.environments)
