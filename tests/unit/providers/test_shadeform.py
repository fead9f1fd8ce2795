"""What the law suite does not reach: which types are sold, ports and names instead of addresses, words of refusals."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from control_plane.domain.block import BlockScope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from control_plane.domain.user_data import UserDataKind
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
)
from providers.shadeform import CAPABILITIES, REGIONS, Settings, Shadeform, connect
from tests.contract.clouds import a_key
from tests.contract.clouds.shadeform import EmulatedShadeform

ORDER = EmulatedShadeform().order()
OS = "ubuntu22.04_cuda12.2_shade_os"


def answering(answer: Callable[[httpx.Request], httpx.Response], **settings: str) -> Shadeform:
    given = Settings(api_key="planted-secret-key", base_url="https://shadeform.test/v1", **settings)
    return connect(given, transport=httpx.MockTransport(answer))


def saying(status: int, body: Any) -> Shadeform:
    return answering(lambda _: httpx.Response(status, json=body))


def kind(
    *places: dict[str, Any], configuration: dict[str, Any] | None = None, **other: Any
) -> dict[str, Any]:
    has = {
        "gpu_type": "A100_80G",
        "num_gpus": 8,
        "vcpus": 240,
        "memory_in_gb": 1440,
        "storage_in_gb": 100,
        "vram_per_gpu_in_gb": 80,
        "interconnect": "pcie",
        "os_options": [OS],
    }
    return {
        "cloud": "hyperstack",
        "shade_instance_type": "A100_80Gx8",
        "hourly_price": 1080,
        "deployment_type": "vm",
        "configuration": has | (configuration or {}),
        "availability": list(places) or [{"region": "canada-1", "available": True}],
    } | other


async def sold(*kinds: dict[str, Any], **settings: str) -> list[tuple[str, str]]:
    provider = answering(lambda _: httpx.Response(200, json={"instance_types": kinds}), **settings)
    found = await provider.offers()
    return [(each.native_type, each.native_region) for each in found if isinstance(each, ListedOffer)]


async def test_gpus_and_regions_without_a_name_of_ours_are_told_once() -> None:
    rare = kind(configuration={"gpu_type": "L40", "vram_per_gpu_in_gb": 48})
    places = [{"region": region, "available": True} for region in ("mars-1", "mars-1", "canada-1")]
    body = {"instance_types": [rare, rare, kind(*places), kind(deployment_type="container", cloud="x")]}
    found = await saying(200, body).offers()
    assert [each for each in found if isinstance(each, LeftOut)] == [
        LeftOut(LeftOutFor.UNKNOWN_GPU, "L40 48 GB pcie"),
        LeftOut(LeftOutFor.UNKNOWN_REGION, "hyperstack/mars-1"),
    ]


def test_every_region_has_a_jurisdiction() -> None:
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    assert {ours[:2] for ours in REGIONS.values()} == {"ca", "no", "us"}


async def test_a_type_is_named_with_its_cloud_and_priced_in_cents() -> None:
    (offer, *_) = await saying(200, {"instance_types": [kind()]}).offers()
    assert isinstance(offer, ListedOffer)
    shape = offer.shape
    assert (offer.native_type, offer.region, offer.cost_nano_per_hour, offer.available) == (
        "hyperstack/A100_80Gx8",
        "ca-canada-1",
        10_800_000_000,
        True,
    )
    assert (shape.gpu_model, shape.gpu_count, shape.vcpus, shape.memory_gib, shape.disk_gib) == (
        GpuModel.A100_PCIE_80GB,
        8,
        240,
        1440,
        100,
    )


async def test_what_is_not_surely_a_virtual_machine_on_demand_with_a_known_gpu_and_place_is_not_sold() -> (
    None
):
    here = {"region": "canada-1", "available": True}
    for reason, each in {
        "a container": kind(deployment_type="container"),
        "bare metal": kind(deployment_type="baremetal"),
        "it does not say what it is": kind(deployment_type=None),
        "spot": kind(here | {"rental_type": "spot"}),
        "another kind of rental": kind(here | {"rental_type": "reserved"}),
        "an unknown region": kind({"region": "mars-1", "available": True}),
        "a region of another cloud": kind(cloud="newcloud"),
        "an unknown GPU": kind(configuration={"gpu_type": "L40", "vram_per_gpu_in_gb": 48}),
        "another memory": kind(configuration={"vram_per_gpu_in_gb": 96}),
        "ARM": kind(configuration={"gpu_type": "GH200", "vram_per_gpu_in_gb": 96, "interconnect": "sxm"}),
        "no GPU": kind(configuration={"num_gpus": 0}),
        "another operating system": kind(configuration={"os_options": ["ubuntu20.04"]}),
        "no operating system": kind(configuration={"os_options": None}),
    }.items():
        assert await sold(each) == [], reason
    assert await sold(kind(here, here | {"rental_type": "on_demand"})) == [
        ("hyperstack/A100_80Gx8", "canada-1")
    ]
    assert len(await sold(kind(configuration={"os_options": ["ubuntu20.04"]}), os="ubuntu20.04")) == 1


async def test_the_generation_of_a_link_does_not_matter() -> None:
    for link, model in (
        ("sxm4", GpuModel.A100_SXM_80GB),
        ("SXM", GpuModel.A100_SXM_80GB),
        ("pcie", GpuModel.A100_PCIE_80GB),
    ):
        body = {"instance_types": [kind(configuration={"interconnect": link})]}
        (offer,) = await saying(200, body).offers()
        assert isinstance(offer, ListedOffer)
        assert offer.shape.gpu_model is model


async def test_a_refused_launch_is_what_its_words_say_and_unknown_when_in_doubt() -> None:
    for status, body, expected in (
        (409, {"message": "Instance type is not available in this region"}, NoCapacity),
        (400, {"error": "OUT OF STOCK"}, NoCapacity),
        (400, {"message": "insufficient funds"}, QuotaReached),
        (400, {"message": "unknown os"}, OrderRefused),
        (401, {"message": "Invalid API key"}, Unauthorized),
        (409, {"message": "conflict"}, OutcomeUnknown),
        (500, {"message": "no capacity"}, OutcomeUnknown),
        (502, {"message": "the cloud did not answer"}, OutcomeUnknown),
        (400, {"detail": "bad gateway"}, OutcomeUnknown),
        (400, {"message": {"text": "?"}}, OutcomeUnknown),
        (200, {"message": "fine"}, OutcomeUnknown),
    ):
        with pytest.raises(ProviderError) as caught:
            await saying(status, body).launch(ORDER)
        assert type(caught.value) is expected, (status, body)


async def test_an_empty_balance_and_a_quota_block_the_account() -> None:
    for status, message, scope in (
        (400, "your balance is too low", BlockScope.ACCOUNT),
        (402, "payment required", BlockScope.ACCOUNT),
        (400, "quota exceeded", BlockScope.ACCOUNT),
    ):
        with pytest.raises(QuotaReached) as caught:
            await saying(status, {"message": message}).launch(ORDER)
        assert caught.value.scope is scope, message


async def test_a_refused_delete_is_asked_for_again_and_404_is_gone() -> None:
    for status, body, expected in (
        (400, {"message": "the instance must be active"}, NotYet),
        (404, {"message": "not found"}, MachineNotFound),
        (404, None, OutcomeUnknown),
        (200, {}, OutcomeUnknown),
    ):
        with pytest.raises(ProviderError) as caught:
            await saying(status, body).terminate(ProviderRef("7"))
        assert type(caught.value) is expected, (status, body)
    await answering(lambda _: httpx.Response(200)).terminate(ProviderRef("7"))


async def test_ports_are_kept_and_a_name_is_no_address() -> None:
    def machine(number: int, **other: Any) -> dict[str, Any]:
        return {
            "id": f"m{number}",
            "name": a_key(number),
            "status": "active",
            "ip": "192.0.2.7",
            "ssh_port": 22,
        } | other

    listed = [
        machine(1, ssh_port=20_022),
        machine(2, ip="box.example.com"),
        machine(3, ip=None, ssh_port=None, status="pending"),
        machine(4, ip="", tags=["x", a_key(4)], name="renamed", status="deleting"),
        machine(5, name="theirs", tags=["theirs"]),
    ]
    found = await saying(200, {"instances": listed}).inventory()
    assert [(each.provider_ref, each.state, each.address, each.ssh_port) for each in found] == [
        ("m1", ListedState.RUNNING, "192.0.2.7", 20_022),
        ("m2", ListedState.RUNNING, None, 22),
        ("m3", ListedState.PROVISIONING, None, 22),
        ("m4", ListedState.ENDING, None, 22),
    ]


async def test_a_launch_sends_a_script_and_no_end_of_its_own() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"id": "m7", "cloud_assigned_id": "native"})

    assert await answering(answer).launch(ORDER) == "m7"
    (body,) = sent
    assert (body["name"], body["tags"]) == (ORDER.launch_key, [ORDER.launch_key])
    assert (body["cloud"], body["shade_instance_type"], body["os"]) == ("hyperstack", "A100_80Gx8", OS)
    assert body["shade_cloud"] is True
    assert body["launch_configuration"]["type"] == "script"
    assert "auto_delete" not in body
    assert CAPABILITIES.user_data_kind is UserDataKind.SHELL_SCRIPT
