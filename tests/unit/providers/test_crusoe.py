"""What the law suite does not reach: signatures, prices, networks, failed operations, the words of refusals."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from control_plane.domain.block import BlockScope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    LateRefusal,
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NoCapacity,
    OrderRefused,
    OutcomeUnknown,
    PriceSource,
    ProviderError,
    QuotaReached,
    Throttled,
    Unauthorized,
)
from providers.crusoe import REGIONS, STATES, USD_PER_GPU_HOUR, Crusoe, Settings, Signature
from providers.emulators.clouds.crusoe import KEY_ID, PROJECT
from providers.gpu_names import gpu_named
from tests.contract.clouds import a_key
from tests.contract.clouds.crusoe import SECRET, EmulatedCrusoe
from tests.support.clock import Clock

ORDER = EmulatedCrusoe().order()
SETTINGS = Settings("key-id", SECRET, "p-1", base_url="https://crusoe.test/v1")
REF = ProviderRef("ca39e669-47ee-456b-968d-303234fbf99f")
NETWORK = {"id": "n-1", "name": "default", "cidr": "10.0.0.0/20"}
RULES = [{"name": name, "vpc_network_id": "n-1"} for name in ("splitplane-ssh", "splitplane-wireguard")]
Answer = Callable[[httpx.Request], httpx.Response]


def answering(
    answer: Answer,
    *,
    networks: list[dict[str, Any]] | None = None,
    rules: list[dict[str, Any]] | None = None,
    subnets: list[dict[str, Any]] | None = None,
    settings: Settings = SETTINGS,
) -> Crusoe:
    lists = {
        "vpc-networks": networks or [NETWORK],
        "vpc-firewall-rules": RULES if rules is None else rules,
        "vpc-subnets": subnets or [],
    }

    def handle(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if request.method == "GET" and name in lists:
            return httpx.Response(200, json={"items": lists[name]})
        return answer(request)

    return Crusoe(settings, now=Clock().now, transport=httpx.MockTransport(handle))


def started(**other: Any) -> httpx.Response:
    operation = {"operation_id": "o-1", "state": "IN_PROGRESS", "metadata": {"id": REF}}
    return httpx.Response(200, json={"operation": operation | other})


async def raised(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


# Signatures


async def test_a_request_is_signed_as_crusoe_documents_it() -> None:
    """The signature was computed with OpenSSL over the lines that Crusoe's Terraform provider signs."""
    settings = Settings("the-key", "c3BsaXRwbGFuZQ", "p-1")
    request = httpx.Request(
        "GET", "https://api.cloud.crusoe.ai/v1/capacities?product_name=a100.1x&location=us%20east"
    )
    await Signature(settings, lambda: datetime(2026, 11, 23, 8, 0, tzinfo=UTC))(request)
    assert request.headers["X-Crusoe-Timestamp"] == "2026-11-23T08:00:00Z"
    assert (
        request.headers["Authorization"] == "Bearer 1.0:the-key:Ws_CoQDNBxVyiju7WRP9XwVk5JaI0igqPR8I1wzhatY"
    )


def test_a_secret_that_is_not_in_base64_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="secret_key is not in base64") as caught:
        Settings("key", "hunter2 hunter2!", "p-1")
    assert "hunter2" not in f"{caught.value} {SETTINGS!r}"


# Launches


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (started(state="FAILED", result={"code": "out_of_stock", "message": "sorry"}), NoCapacity),
        (started(state="FAILED", result={"code": "else", "message": "boom"}), OutcomeUnknown),
        (started(state="FAILED"), OutcomeUnknown),
        (started(metadata="{}"), OutcomeUnknown),
        (httpx.Response(400, json={"code": "400", "message": "The resource is out of stock."}), NoCapacity),
        (httpx.Response(400, json={"code": "400", "message": "Quota exceeded"}), QuotaReached),
        (httpx.Response(400, json={"code": "400", "message": "bad_request"}), OrderRefused),
        (httpx.Response(403, json={"code": "403", "message": "unauthorized"}), Unauthorized),
        (httpx.Response(429, json={"code": "429", "message": "too_many_requests"}), Throttled),
        (httpx.Response(500, json={"code": "500", "message": "internal_error"}), OutcomeUnknown),
    ],
)
async def test_a_refused_launch_is_what_its_code_says_and_unknown_when_in_doubt(
    answer: httpx.Response, error: type[ProviderError]
) -> None:
    assert type(await raised(answering(lambda _: answer).launch(ORDER))) is error


async def test_a_quota_is_for_a_type_in_all_locations() -> None:
    refused = httpx.Response(400, json={"code": "400", "message": "Quota exceeded"})
    error = await raised(answering(lambda _: refused).launch(ORDER))
    assert isinstance(error, QuotaReached)
    assert error.scope is BlockScope.TYPE


async def test_a_launch_has_no_agent_of_crusoe_no_reservation_and_the_image_of_its_form_factor() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return started()

    for native_type in ("h100-80gb-sxm-ib.8x", "a100-80gb.1x"):
        assert await answering(answer).launch(replace(ORDER, native_type=native_type)) == REF
    assert [body["image"] for body in sent] == [SETTINGS.image_sxm, SETTINGS.image_pcie]
    for body in sent:
        assert (body["name"], body["startup_script"]) == (ORDER.launch_key, ORDER.user_data)
        assert body["install_crusoe_watch_agent"] is False
        assert body["reservation_specification"] == {"selection_strategy": "on_demand"}


def test_a_machine_is_set_up_by_a_script() -> None:
    assert Crusoe.capabilities.user_data_kind is UserDataKind.SHELL_SCRIPT


# Networks


async def test_ssh_and_wireguard_are_opened_once_and_nothing_else() -> None:
    cloud = EmulatedCrusoe()
    for number in (1, 2):
        await cloud.provider.launch(cloud.order(number))
    await cloud.connected(SECRET).launch(cloud.order(3))
    assert {
        (rule["name"], *rule["protocols"], *rule["destination_ports"], rule["direction"], rule["action"])
        for rule in cloud.account.rules
    } == {
        ("splitplane-ssh", "tcp", "22", "ingress", "allow"),
        ("splitplane-wireguard", "udp", "51820", "ingress", "allow"),
    }
    assert len(cloud.account.rules) == 2


async def test_a_rule_whose_answer_was_lost_is_found_by_reading_again() -> None:
    cloud = EmulatedCrusoe()
    for _ in range(2):
        await cloud.provider.prepare(cloud.order())
    cloud.lose_the_answer("prepare")
    await raised(cloud.provider.prepare(cloud.order()))
    await cloud.provider.launch(cloud.order())
    assert len(cloud.account.rules) == 2


async def test_with_several_networks_the_settings_say_which_and_rules_of_others_do_not_count() -> None:
    networks = [NETWORK, NETWORK | {"id": "n-2", "name": "other"}]
    unsaid = await raised(answering(lambda _: started(), networks=networks).launch(ORDER))
    assert type(unsaid) is OrderRefused
    assert "set `network`" in str(unsaid)
    posted: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        posted.append(json.loads(request.content))
        return started()

    settings = replace(SETTINGS, network="other")
    here = {"id": "s-2", "location": ORDER.native_region, "vpc_network_id": "n-2"}
    subnets = [
        here | {"id": "s-1", "vpc_network_id": "n-1"},
        here,
        here | {"id": "s-0", "location": "mars-1"},
    ]
    await answering(answer, networks=networks, subnets=subnets, settings=settings).launch(ORDER)
    assert [body.get("vpc_network_id") for body in posted] == ["n-2", "n-2", None]
    (interface,) = posted[-1]["network_interfaces"]
    assert (interface["subnet"], interface["ips"][0]["public_ipv4"]["type"]) == ("s-2", "dynamic")
    nowhere = await raised(
        answering(answer, networks=networks, subnets=subnets[:1], settings=settings).launch(ORDER)
    )
    assert type(nowhere) is OrderRefused
    assert "has no subnet in" in str(nowhere)


async def test_a_named_network_is_where_the_machine_is_and_without_a_name_it_is_the_default() -> None:
    cloud = EmulatedCrusoe()
    sent: list[Any] = []

    class Recorded(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "POST" and request.url.path.endswith("/instances"):
                sent.append(json.loads(request.content))
            return await cloud.network.handle_async_request(request)

    settings = Settings(KEY_ID, SECRET, PROJECT, base_url="http://crusoe.test/v1")
    for number, network in ((1, None), (2, "default")):
        chosen = replace(settings, network=network)
        await Crusoe(chosen, now=cloud.clock.now, transport=Recorded()).launch(cloud.order(number))
    assert "network_interfaces" not in sent[0]
    (interface,) = sent[1]["network_interfaces"]
    (here,) = (each for each in cloud.account.subnets() if each["location"] == cloud.native_region)
    assert interface["subnet"] == here["id"]


# Failed operations


async def test_failed_operations_are_told_with_the_machine_and_remembered() -> None:
    items = [
        {
            "operation_id": "1",
            "state": "FAILED",
            "metadata": {"id": "m-1"},
            "result": {"code": "out_of_stock"},
        },
        {"operation_id": "2", "state": "FAILED", "metadata": {"id": "m-2"}, "result": {"code": "internal"}},
        {"operation_id": "3", "state": "FAILED", "metadata": {"id": "m-3"}, "result": "boom"},
        {"operation_id": "4", "state": "FAILED", "metadata": None},
        {"operation_id": "5", "state": "SUCCEEDED", "metadata": {"id": "m-5"}, "result": {"id": "m-5"}},
    ]
    answers = iter([items, [], []])
    provider = answering(lambda _: httpx.Response(200, json={"items": next(answers)}))
    told = (
        LateRefusal(ProviderRef("m-1"), ListedState.SOLD_OUT, "out_of_stock"),
        LateRefusal(ProviderRef("m-2"), ListedState.FAILED, "internal"),
        LateRefusal(ProviderRef("m-3"), ListedState.FAILED, "FAILED"),
    )
    assert [await provider.refused_later() for _ in range(3)] == [told] * 3


async def test_only_so_many_refusals_are_remembered_the_oldest_are_forgotten() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        items = [
            {"operation_id": str(n), "state": "FAILED", "metadata": {"id": f"m-{n}"}, "result": {"code": "c"}}
            for n in range(300)
        ]
        return httpx.Response(200, json={"items": items})

    refs = [each.provider_ref for each in await answering(answer).refused_later()]
    assert refs == [f"m-{n}" for n in range(44, 300)]


# Ends, machines


async def test_a_machine_that_is_unknown_is_not_found() -> None:
    answer = httpx.Response(404, json={"code": "404", "message": "not_found"})
    assert type(await raised(answering(lambda _: answer).terminate(REF))) is MachineNotFound


async def test_status_words_count_with_and_without_their_prefix_and_an_empty_address_is_none() -> None:
    def machine(number: int, state: str, address: str) -> dict[str, Any]:
        ips = [{"private_ipv4": {"address": "10.0.0.2"}, "public_ipv4": {"address": address}}]
        interfaces = [{"ips": ips}]
        return {"id": str(number), "name": a_key(number), "state": state, "network_interfaces": interfaces}

    items = [
        machine(1, "STATE_RUNNING", "192.0.2.1"),
        machine(2, "RUNNING", ""),
        machine(3, "STATE_MELTED", ""),
    ]
    found = await answering(lambda _: httpx.Response(200, json={"items": items})).inventory()
    assert [(each.state, each.native_status, each.address) for each in found] == [
        (ListedState.RUNNING, "STATE_RUNNING", "192.0.2.1"),
        (ListedState.RUNNING, "RUNNING", None),
        (ListedState.UNKNOWN, "STATE_MELTED", None),
    ]
    assert {STATES[word] for word in ("DELETED", "STATE_DELETED")} == {ListedState.GONE}


async def test_every_page_is_read() -> None:
    cloud = EmulatedCrusoe()
    for number in range(1, 24):
        await cloud.provider.launch(cloud.order(number))
    machines = [(each.id, each.name) for each in cloud.account.existing()]

    def answer(request: httpx.Request) -> httpx.Response:
        begin = int(request.url.params.get("next_token", 0))
        items = [{"id": ref, "name": name, "state": "RUNNING"} for ref, name in machines[begin : begin + 10]]
        token = str(begin + 10) if begin + 10 < len(machines) else ""
        return httpx.Response(200, json={"items": items, "next_page_token": token})

    assert len(await answering(answer).inventory()) == 23


# Offers


def test_every_region_has_a_jurisdiction_and_every_gpu_a_price() -> None:
    assert {ours[:2] for ours in REGIONS.values()} == {"us", "is", "no"}
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    assert all(gpu_named(name) for name in USD_PER_GPU_HOUR)


async def test_a_machine_costs_the_price_of_its_gpus_and_what_has_none_is_not_sold() -> None:
    listed = await EmulatedCrusoe().provider.offers()
    offers = [each for each in listed if isinstance(each, ListedOffer)]
    eight = [offer for offer in offers if offer.native_type == "h100-80gb-sxm-ib.8x"]
    assert {offer.cost_nano_per_hour for offer in eight} == {31_214_027_398}
    assert {offer.shape.gpu_model for offer in eight} == {GpuModel.H100_SXM_80GB}
    assert [offer.region for offer in eight if offer.available] == ["us-east1-a", "is-iceland1-a"]
    assert {offer.price_source for offer in offers} == {PriceSource.TABLE}
    assert [each for each in listed if isinstance(each, LeftOut)] == [
        LeftOut(LeftOutFor.UNKNOWN_GPU, "A40-PCIe-48GB"),
        LeftOut(LeftOutFor.NO_PRICE, "b200-180gb-sxm-ib.8x"),
    ]
    assert {offer.native_type for offer in offers} == {"h100-80gb-sxm-ib.8x", "a100-80gb.1x", "l40s-48gb.1x"}
