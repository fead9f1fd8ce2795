"""What the law suite does not reach: which hosts are sold, mapped ports, several statuses, words of refusals."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from control_plane.domain.block import BlockScope
from control_plane.domain.boot_script import boot_script
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.rendering import BootOrder
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
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.registered_keys import key_material
from providers.vast import CAPABILITIES, Settings, Vast, connect
from providers.vast_catalogue import REGIONS
from tests.contract.clouds import a_key
from tests.contract.clouds.vast import EmulatedVast

ORDER = EmulatedVast().order()
KEYS = [{"id": 1, "user_id": 7, "key": f"{ORDER.ssh_public_key} and a comment", "deleted_at": None}]


def test_the_script_of_a_machine_fits() -> None:
    key = "ssh-ed25519 " + "A" * 68
    order = BootOrder("k" * 420, key, [f"{key} authority"] * 3, a_key())
    assert len(boot_script(order)) < CAPABILITIES.user_data_bytes_max * 3 // 4


def answering(answer: Callable[[httpx.Request], httpx.Response], **settings: Any) -> Vast:
    given = Settings(api_key="planted-secret-key", base_url="https://vast.test", **settings)
    return connect(given, transport=httpx.MockTransport(answer))


def saying(status: int, body: Any) -> Vast:
    """The keys are read, then everything is answered so."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v0/ssh/":
            return httpx.Response(200, json=KEYS)
        return httpx.Response(status, json=body)

    return answering(answer)


def ask(**other: Any) -> dict[str, Any]:
    return {
        "id": 4_100_008,
        "host_id": 55,
        "gpu_name": "H100 SXM",
        "gpu_ram": 81_559,
        "num_gpus": 4,
        "dph_total": 8.600833333333334,
        "cpu_ram": 2_064_384,
        "cpu_cores": 192,
        "cpu_cores_effective": 96.5,
        "cpu_arch": "amd64",
        "geolocation": "Sweden, SE",
        "duration": 7_775_999.5,
        "reliability": 0.9971,
        "verification": "verified",
        "hosting_type": 1,
        "direct_port_count": 40,
        "static_ip": True,
        "vms_enabled": True,
        "rentable": True,
        "is_bid": False,
    } | other


async def listed(*asks: dict[str, Any]) -> tuple[Any, ...]:
    return await saying(200, {"offers": list(asks)}).offers()


async def test_every_ask_of_a_host_counts_for_the_host_and_one_without_a_host_is_not_bought() -> None:
    offers = await listed(ask(), ask(id=4_100_009), ask(id=4_200_001, host_id=66), ask(id=7, host_id=None))
    assert [(offer.native_type, offer.supplier) for offer in offers] == [
        ("4100008", "55"),
        ("4100009", "55"),
        ("4200001", "66"),
    ]


async def test_an_ask_has_its_share_of_the_host_and_an_exact_price_with_its_disk() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"offers": [ask()]})

    (offer,) = await answering(answer, disk_gib=250).offers()
    assert isinstance(offer, ListedOffer)
    shape = offer.shape
    assert (offer.native_type, offer.region, offer.native_region) == ("4100008", "eu-se", "SE")
    assert offer.cost_nano_per_hour == 8_600_833_334
    assert (shape.gpu_model, shape.gpu_count, shape.vcpus, shape.memory_gib, shape.disk_gib) == (
        GpuModel.H100_SXM_80GB,
        4,
        96,
        1_013,
        250,
    )
    assert (sent[0]["allocated_storage"], sent[0]["disk_space"]) == (250, {"gte": 250})
    assert (sent[0]["vms_enabled"], sent[0]["static_ip"]) == ({"eq": True}, {"eq": True})


async def test_an_ask_that_slipped_through_the_filters_is_not_sold() -> None:
    excluded: dict[str, dict[str, Any]] = {
        "containers only": {"vms_enabled": False},
        "it does not say whether it has virtual machines": {"vms_enabled": None},
        "an address that changes": {"static_ip": False},
        "taken": {"rentable": False},
        "sold to the highest bid": {"is_bid": True},
        "not verified": {"verification": "unverified"},
        "somebody's home": {"hosting_type": 0},
        "ARM": {"cpu_arch": "arm64"},
        "no GPU": {"num_gpus": 0},
        "no CPU": {"cpu_cores": None},
        "no port": {"direct_port_count": 0},
        "unreliable": {"reliability": 0.9799},
        "almost over": {"duration": 2_591_999.0},
    }
    for reason, other in excluded.items():
        assert await listed(ask(**other)) == (), reason
    assert len(await listed(ask(reliability=0.98, duration=2_592_000))) == 1


async def test_the_memory_tells_apart_what_has_one_name() -> None:
    for name, memory, model in (
        ("A100 PCIE", 40_960, GpuModel.A100_PCIE_40GB),
        ("A100_SXM4", 81_920, GpuModel.A100_SXM_80GB),
        ("A100 SXM4", 40_960, GpuModel.A100_SXM_40GB),
        ("H200", 143_771, GpuModel.H200_SXM_141GB),
        ("RTX 4090", 24_564, GpuModel.RTX_4090_24GB),
    ):
        (offer,) = await listed(ask(gpu_name=name, gpu_ram=memory))
        assert isinstance(offer, ListedOffer)
        assert offer.shape.gpu_model is model, name


async def test_gpus_and_countries_without_a_name_of_ours_are_told_once() -> None:
    rare = ask(gpu_name="H200 NVL", gpu_ram=143_771)
    found = await listed(
        rare, rare, ask(gpu_ram=94_000), ask(geolocation="Atlantis, AA"), ask(geolocation=None)
    )
    assert found == (
        LeftOut(LeftOutFor.UNKNOWN_GPU, "H200 NVL 143771 MiB"),
        LeftOut(LeftOutFor.UNKNOWN_GPU, "H100 SXM 94000 MiB"),
        LeftOut(LeftOutFor.UNKNOWN_REGION, "Atlantis, AA"),
        LeftOut(LeftOutFor.UNKNOWN_REGION, "nowhere"),
    )


def test_every_region_has_a_jurisdiction() -> None:
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    assert (REGIONS["DE"], REGIONS["US"], REGIONS["NO"]) == ("eu-de", "us", "no")


async def test_a_refused_launch_is_what_its_words_say_and_unknown_when_in_doubt() -> None:
    taken = "error 404/3603: no_such_ask Instance type by id 4100008 is not available."
    for status, body, expected in (
        (404, {"success": False, "error": "invalid_args", "msg": taken}, NoCapacity),
        (410, {"success": False, "error": "no_such_ask", "msg": "no longer available"}, NoCapacity),
        (200, {"success": False, "error": "no_such_ask"}, NoCapacity),
        (404, {"success": False, "error": "invalid_args", "msg": "no such page"}, OrderRefused),
        (400, {"success": False, "error": "invalid_args", "msg": "disk"}, OrderRefused),
        (400, {"success": False, "error": "insufficient_credit", "msg": "?"}, QuotaReached),
        (400, {"msg": "Your account lacks credit; see the billing page."}, QuotaReached),
        (401, {"success": False, "error": "auth_error", "msg": "Invalid user key"}, Unauthorized),
        (404, {"error": "?", "msg": "Invalid user key"}, Unauthorized),
        (429, {"detail": "API requests too frequent endpoint threshold=4.5"}, Throttled),
        (400, {"success": False, "error": "invalid_price", "new_contract": 7}, OutcomeUnknown),
        (400, {"detail": "by the gateway"}, OutcomeUnknown),
        (200, {"success": False}, OutcomeUnknown),
        (200, {"success": True}, OutcomeUnknown),
        (200, {"success": False, "new_contract": 7}, OutcomeUnknown),
    ):
        with pytest.raises(ProviderError) as caught:
            await saying(status, body).launch(ORDER)
        assert type(caught.value) is expected, (status, body)


async def test_an_empty_balance_blocks_the_whole_account() -> None:
    cloud = EmulatedVast()
    cloud.account.credit -= cloud.account.credit
    with pytest.raises(QuotaReached) as caught:
        await cloud.provider.launch(cloud.order())
    assert caught.value.scope is BlockScope.ACCOUNT
    assert cloud.ever(a_key()) == 0


async def test_a_delete_is_done_only_when_it_says_so() -> None:
    for status, body, expected in (
        (404, {"success": False, "error": "not_found", "msg": "Instance not found"}, MachineNotFound),
        (404, None, OutcomeUnknown),
        (400, {"success": False, "error": "invalid_args", "msg": "?"}, NotYet),
        (200, {"success": False, "msg": "not now"}, OutcomeUnknown),
        (200, {"success": False}, OutcomeUnknown),
        (200, {}, OutcomeUnknown),
    ):
        with pytest.raises(ProviderError) as caught:
            await saying(status, body).terminate(ProviderRef("7"))
        assert type(caught.value) is expected, (status, body)
    await saying(200, {"success": True}).terminate(ProviderRef("7"))
    with pytest.raises(Unavailable):
        await saying(200, {"success": True}).terminate(ProviderRef("7/../8"))


async def test_an_address_counts_with_its_mapped_port_alone() -> None:
    def machine(number: int, **other: Any) -> dict[str, Any]:
        mapped = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "41022"}], "8080/tcp": None}
        return {
            "id": number,
            "label": a_key(number),
            "actual_status": "running",
            "intended_status": "running",
            "public_ipaddr": "192.0.2.7\n",
            "ports": mapped,
        } | other

    instances = [
        machine(1),
        machine(2, ports=None),
        machine(3, ports={"22/tcp": [{"HostIp": "", "HostPort": "0"}]}),
        machine(4, actual_status=None, ports=None, public_ipaddr=None),
        machine(5, intended_status="stopped"),
        machine(6, actual_status="exited", intended_status="stopped"),
        machine(7, actual_status="offline"),
        machine(8, actual_status="exited"),
        machine(9, label="theirs"),
        machine(10, label=None),
    ]
    body = {"success": True, "instances": instances, "total_instances": 10, "next_token": None}
    found = await saying(200, body).inventory()
    assert [(each.native_status, each.state, each.address, each.ssh_port) for each in found] == [
        ("running", ListedState.RUNNING, "192.0.2.7", 41_022),
        ("running", ListedState.RUNNING, None, 22),
        ("running", ListedState.RUNNING, None, 22),
        ("null", ListedState.PROVISIONING, None, 22),
        ("running/stopped", ListedState.UNKNOWN, "192.0.2.7", 41_022),
        ("exited/stopped", ListedState.STOPPED_BY_PROVIDER, "192.0.2.7", 41_022),
        ("offline", ListedState.UNKNOWN, "192.0.2.7", 41_022),
        ("exited", ListedState.OFF_OR_FAILED, "192.0.2.7", 41_022),
    ]
    body["total_instances"] = 11
    with pytest.raises(Unavailable):
        await saying(200, body).inventory()


async def test_our_key_is_added_once_and_read_again_after_a_refusal() -> None:
    cloud = EmulatedVast()
    await cloud.provider.launch(cloud.order(1))
    assert [each["key"] for each in cloud.account.ssh_keys] == [" ".join(ORDER.ssh_public_key.split()[:2])]
    cloud.network.requests.clear()
    await cloud.provider.launch(cloud.order(2))
    assert len(cloud.network.requests) == 2
    cloud.account.ssh_keys.clear()
    await cloud.provider.launch(cloud.order(3))
    assert len(cloud.account.ssh_keys) == 1


def standing_keys(cloud: EmulatedVast) -> set[str]:
    return {each["key"] for each in cloud.account.ssh_keys if each["deleted_at"] is None}


async def test_a_key_that_leaked_is_deleted_before_the_next_machine_whoever_added_it_again() -> None:
    cloud = EmulatedVast()
    leaked, theirs = "ssh-ed25519 LEAKED", "ssh-ed25519 THEIRS"
    await cloud.provider.launch(replace(cloud.order(1), ssh_public_key=leaked))
    cloud.account.ssh_keys.append({"id": 99, "user_id": 7, "key": theirs, "deleted_at": None})
    # The process that is late has read the keys before.
    late = cloud.connected(str(cloud.secret))
    for number, provider in ((2, cloud.provider), (3, late), (4, cloud.provider)):
        order = replace(
            cloud.order(number), withdrawn_ssh_keys=(f"{leaked} of an authority", "ssh-ed25519 NEVER")
        )
        await provider.launch(order)
        assert standing_keys(cloud) == {key_material(order.ssh_public_key), theirs}
        if number == 3:
            cloud.account.ssh_keys.append({"id": 100, "user_id": 7, "key": leaked, "deleted_at": None})
    assert len(cloud.account.instances.every) == 4


async def test_nothing_is_launched_while_a_key_that_leaked_cannot_be_deleted() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if request.method == "GET":
            return httpx.Response(200, json=[*KEYS, {"id": 5, "key": "ssh-ed25519 LEAKED"}])
        return httpx.Response(404 if len(asked) < 8 else 503, json={"msg": "try later"})

    provider = answering(answer)
    for _ in range(2):  # It refuses, and the list shows the key all the same; then it does not answer.
        with pytest.raises(ProviderError):
            await provider.launch(replace(ORDER, withdrawn_ssh_keys=("ssh-ed25519 LEAKED",)))
    assert {*asked} == {"GET", "DELETE"}


async def test_a_launch_is_a_virtual_machine_that_starts_now_or_not_at_all() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v0/ssh/":
            return httpx.Response(200, json=KEYS)
        sent.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"success": True, "new_contract": 7})

    assert await answering(answer).launch(ORDER) == "7"
    ((method, path, body),) = sent
    assert (method, path) == ("PUT", f"/api/v0/asks/{ORDER.native_type}/")
    assert (body["label"], body["onstart"]) == (ORDER.launch_key, ORDER.user_data)
    assert (body["vm"], body["target_state"], body["cancel_unavail"]) == (True, "running", True)
    assert "price" not in body, "that would be a bid"
    assert CAPABILITIES.user_data_kind is UserDataKind.SHELL_SCRIPT
