"""What the law suite does not reach: tokens, prices, volumes, scripts, the words of refusals."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from control_plane.domain.block import BlockScope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.sku import REGION_PATTERN
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    Child,
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    Needed,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    Throttled,
    ToldLimit,
    Unauthorized,
    Unavailable,
    Verb,
)
from providers.optional import TellsLimits
from providers.pacing import OneProcessBudget, Pacer
from providers.verda import SCRIPT, VOLUME, Settings, Verda
from providers.verda_catalogue import REGIONS
from tests.contract.clouds import a_key
from tests.contract.clouds.verda import SECRET, TOKENS, EmulatedVerda
from tests.support.clock import Clock

ORDER = EmulatedVerda().order()
REF = ProviderRef("8472bacf-875d-4e86-ad31-4a5d2dcd5f4d")
MADE = "39479972-f06d-4a94-8027-75a0b42dcf6b"
IMAGE = Settings("", "").image
Answer = Callable[[httpx.Request], httpx.Response]
PREPARED = {
    "ssh-keys": [{"id": MADE, "key": ORDER.ssh_public_key + "-with-another-comment"}],
    "scripts": [{"id": MADE, "name": ORDER.launch_key, "script": ORDER.user_data}],
}


def answering(answer: Answer, *, token: Answer | None = None, clock: Clock | None = None) -> Verda:
    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1/")
        if request.url.path == TOKENS:
            good = {"access_token": "planted-access-token-0123456789", "expires_in": 3600}
            return token(request) if token else httpx.Response(200, json=good)
        if request.method == "GET" and path in PREPARED:
            return httpx.Response(200, json=PREPARED[path])
        return answer(request)

    settings = Settings("client", SECRET, base_url="https://verda.test/v1")
    return Verda(settings, now=(clock or Clock()).now, transport=httpx.MockTransport(handle))


def refusing(status: int, code: str, message: str) -> Verda:
    return answering(lambda _: httpx.Response(status, json={"code": code, "message": message}))


async def raised(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


# Launches


@pytest.mark.parametrize(
    ("status", "code", "message", "error"),
    [
        (503, "service_unavailable", "No capacity available", NoCapacity),
        (503, "service_unavailable", "Not enough resources at the moment, try again later", NoCapacity),
        (503, "service_unavailable", "upstream is down", OutcomeUnknown),
        (402, "insufficient_funds", "Not enough funds", QuotaReached),
        (400, "invalid_request", "Invalid image type", OrderRefused),
        (403, "forbidden_action", "Insufficient scope", Unauthorized),
        (403, "forbidden_action", "This action is not permitted", OrderRefused),
        (401, "unauthorized_request", "expired", Unauthorized),
        (429, "rate_limit_exceeded", "Too many requests", Throttled),
        (500, "server_error", "No capacity available", OutcomeUnknown),
    ],
)
async def test_a_refused_launch_is_what_its_code_says_and_unknown_when_in_doubt(
    status: int, code: str, message: str, error: type[ProviderError]
) -> None:
    assert type(await raised(refusing(status, code, message).launch(ORDER))) is error


async def test_a_launch_names_its_key_and_script_and_is_never_a_spot_machine() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(202, json=str(REF))

    assert await answering(answer).launch(ORDER) == REF
    (body,) = sent
    tag = {"key": "sp-launch-key", "value": ORDER.launch_key}
    assert (body["hostname"], body["tags"], body["os_volume"]["tags"]) == (ORDER.launch_key, [tag], [tag])
    assert (body["ssh_key_ids"], body["startup_script_id"]) == ([MADE], MADE)
    assert (body["is_spot"], body["contract"]) == (False, "PAY_AS_YOU_GO")
    assert "user_data" not in body


def test_a_machine_is_set_up_by_a_script() -> None:
    assert Verda.capabilities.user_data_kind is UserDataKind.SHELL_SCRIPT


async def test_an_answer_that_is_no_id_leaves_the_launch_unknown() -> None:
    for body in ('"ok"', '{"id": "8472bacf-875d-4e86-ad31-4a5d2dcd5f4d"}', "8472bacf", ""):
        provider = answering(lambda _, body=body: httpx.Response(202, content=body))  # type: ignore[misc]  # default
        assert type(await raised(provider.launch(ORDER))) is OutcomeUnknown, body


# Scripts and keys


async def test_a_script_of_an_earlier_order_of_the_machine_is_not_used_since_its_host_key_is_another() -> (
    None
):
    cloud = EmulatedVerda()
    earlier = cloud.order(user_data="#!/bin/sh\n# earlier host key")
    await prepared(cloud.provider, earlier)
    await cloud.provider.launch(cloud.order())
    (machine,) = cloud.account.instances.every.values()
    assert cloud.account.scripts[machine.startup_script_id or ""].script == cloud.order().user_data
    assert len(cloud.account.scripts) == 2


async def prepared(provider: Verda, order: Any) -> None:
    while not provider.prepared(order):
        await provider.prepare(order)


async def test_a_script_whose_answer_was_lost_is_found_and_not_stored_twice() -> None:
    cloud = EmulatedVerda()
    for _ in range(3):
        await cloud.provider.prepare(cloud.order())
    cloud.lose_the_answer("prepare")
    assert type(await raised(cloud.provider.prepare(cloud.order()))) is Unavailable
    await cloud.provider.launch(cloud.order())
    assert len(cloud.account.scripts) == 1


async def test_what_somebody_deleted_is_stored_again() -> None:
    cloud = EmulatedVerda()
    for stored in (cloud.account.ssh_keys, cloud.account.scripts):
        await prepared(cloud.provider, cloud.order())
        stored.clear()
        assert type(await raised(cloud.provider.launch(cloud.order()))) is OrderRefused
    await cloud.provider.launch(cloud.order())
    assert cloud.alive(a_key()) == 1


async def test_a_refused_script_does_not_show() -> None:
    for status, error in ((400, OrderRefused), (500, Unavailable)):

        def quote(request: httpx.Request, status: int = status) -> httpx.Response:
            body = {"code": "invalid_request", "message": json.loads(request.content).get("script")}
            return httpx.Response(status, json=body)

        order = replace(ORDER, user_data="#!/bin/sh\nput 'planted-private-host-key' x")
        caught = await raised(answering(quote).launch(order))
        assert type(caught) is error
        assert "planted" not in f"{caught} {caught!r}"


# Children


async def test_every_script_and_volume_of_ours_is_a_child_on_however_many_pages() -> None:
    cloud = EmulatedVerda()
    cloud.account.scripts_max = 1_000
    for number in range(1, 131):
        await prepared(cloud.provider, cloud.order(number))
    cloud.account.add_volume("theirs", 50, [], "FIN-01")
    ours = cloud.account.add_volume(a_key(7), 50, [], "FIN-01")
    children = await cloud.provider.children()
    scripts = [child for child in children if child.kind == SCRIPT]
    assert {child.launch_key for child in scripts} == {a_key(number) for number in range(1, 131)}
    assert len(scripts) == 130
    assert {child.needed for child in scripts} == {Needed.UNTIL_BOOT}
    assert [child for child in children if child.kind == VOLUME] == [
        Child(ours.id, VOLUME, a_key(7), Needed.WHILE_IT_EXISTS, Nano(13_698_631))  # 10 dollars a month.
    ]


async def test_a_volume_whose_price_is_not_in_dollars_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREPARED, "scripts", [])
    volume = {"id": "v", "status": "detached", "name": a_key(1), "base_hourly_cost": 0.5, "currency": "usd"}
    for other, cost in (
        ({}, 500_000_000),
        ({"currency": "eur"}, None),
        ({"base_hourly_cost": None}, None),
        ({"base_hourly_cost": -1}, None),
    ):

        def answer(_: httpx.Request, other: dict[str, Any] = other) -> httpx.Response:
            return httpx.Response(200, json=[volume | other])

        (child,) = await answering(answer).children()
        assert child.cost_nano_per_hour == cost, other


async def test_an_id_that_the_database_would_refuse_fails_the_list_and_not_what_stores_it() -> None:
    for kind in ("scripts", "volumes"):
        wrong = {"id": "a\0b", "name": a_key(1), "status": "detached", "script": ""}

        def answer(request: httpx.Request, kind: str = kind, wrong: dict[str, str] = wrong) -> httpx.Response:
            return httpx.Response(200, json=[wrong] if kind in str(request.url) else [])

        with pytest.raises(Unavailable):
            await answering(answer).children()


async def test_pages_that_are_smaller_than_asked_for_are_all_read() -> None:
    scripts = [{"id": str(n), "name": a_key(n), "script": ""} for n in range(1, 26)]

    def answer(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["page"])
        return httpx.Response(200, json=scripts[(page - 1) * 10 : page * 10])

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == TOKENS:
            return httpx.Response(200, json={"access_token": "token-0123456789", "expires_in": 3600})
        return answer(request) if request.url.path.endswith("scripts") else httpx.Response(200, json=[])

    provider = Verda(Settings("c", SECRET), now=Clock().now, transport=httpx.MockTransport(handle))
    assert len(await provider.children()) == 25


async def test_a_deleted_child_is_gone_for_good_also_when_it_is_deleted_twice() -> None:
    cloud = EmulatedVerda()
    await prepared(cloud.provider, cloud.order())
    cloud.account.add_volume(a_key(), 50, [], "FIN-01")
    for child in await cloud.provider.children():
        await cloud.provider.delete_child(child)
        with suppress(OrderRefused):
            await cloud.provider.delete_child(child)
    assert await cloud.provider.children() == ()
    assert not any(volume.in_trash for volume in cloud.account.volumes.values())
    strange = Child("1", "address", a_key(), Needed.WHILE_IT_EXISTS)
    assert type(await raised(cloud.provider.delete_child(strange))) is OrderRefused


async def test_the_volume_of_a_machine_that_others_ended_is_a_child() -> None:
    cloud = EmulatedVerda()
    await cloud.provider.launch(cloud.order())
    (machine,) = cloud.account.instances.every.values()
    await cloud.account.end(machine, [], permanently=False)
    assert [child.launch_key for child in await cloud.provider.children() if child.kind == VOLUME] == [
        a_key()
    ]


async def test_a_volume_that_is_still_attached_is_asked_for_again_with_the_same_access_token() -> None:
    cloud = EmulatedVerda()
    await cloud.provider.launch(cloud.order())
    (volume,) = [child for child in await cloud.provider.children() if child.kind == VOLUME]
    before = cloud.network.fetched
    assert type(await raised(cloud.provider.delete_child(volume))) is Unavailable
    await cloud.provider.inventory()
    assert cloud.network.fetched == before
    provider = refusing(403, "forbidden_action", "Insufficient scope")
    assert type(await raised(provider.delete_child(volume))) is Unauthorized


async def test_a_full_quota_of_scripts_blocks_the_account_and_no_single_offer() -> None:
    cloud = EmulatedVerda()
    cloud.account.scripts_max = 1
    await prepared(cloud.provider, cloud.order())
    error = await raised(prepared(cloud.provider, cloud.order(2)))
    assert isinstance(error, QuotaReached)
    assert error.scope is BlockScope.ACCOUNT


# Ends


async def test_an_ended_machine_leaves_nothing_of_its_own_and_a_volume_that_somebody_attached_stays() -> None:
    cloud = EmulatedVerda()
    ref = await cloud.provider.launch(cloud.order())
    cloud.advance(cloud.seconds_to_run)
    theirs = cloud.account.add_volume("data", 500, [], "FIN-03")
    theirs.instance_id = ref
    await cloud.provider.terminate(ref)
    assert cloud.account.visible_volumes() == [theirs]
    assert theirs.instance_id is None, "it is detached"
    assert not any(volume.in_trash for volume in cloud.account.volumes.values())


def ending(*, status: str = "running", answer: httpx.Response) -> Verda:
    machine = {"id": REF, "status": status, "volume_ids": ["v1", "v2"], "os_volume_id": "v1"}
    return answering(lambda asked: httpx.Response(200, json=machine) if asked.method == "GET" else answer)


def result(**other: Any) -> httpx.Response:
    return httpx.Response(207, json=[{"instanceId": REF, "action": "delete", "status": "error"} | other])


def forbidden(message: str) -> httpx.Response:
    return httpx.Response(403, json={"code": "forbidden_action", "message": message})


PROVISIONING = "Can't discontinue a provisioning instance"
GONE = "Can't discontinue a discontinued instance"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (forbidden(PROVISIONING), NotYet),
        (forbidden(GONE), MachineNotFound),
        (forbidden("Insufficient scope"), Unauthorized),
        (
            httpx.Response(400, json={"code": "invalid_request", "message": "Invalid instance id"}),
            MachineNotFound,
        ),
        (result(error=PROVISIONING, statusCode=403), NotYet),
        (result(error=GONE, statusCode=403), MachineNotFound),
        (result(error="Instance not found", statusCode=404), MachineNotFound),
        (result(error="boom", statusCode=500), OutcomeUnknown),
        (result(), OutcomeUnknown),
        (result(instanceId=MADE), OutcomeUnknown),
        (httpx.Response(202, json=[]), OutcomeUnknown),
        (httpx.Response(202), OutcomeUnknown),
    ],
)
async def test_a_refused_delete_is_what_its_words_say_also_inside_a_good_answer(
    answer: httpx.Response, error: type[ProviderError]
) -> None:
    assert type(await raised(ending(answer=answer).terminate(REF))) is error


async def test_a_machine_that_is_being_deleted_already_is_asked_for_once_more_and_that_is_fine() -> None:
    await ending(status="deleting", answer=httpx.Response(204)).terminate(REF)


async def test_a_machine_that_is_discontinued_is_not_found() -> None:
    provider = ending(status="discontinued", answer=httpx.Response(500))
    assert type(await raised(provider.terminate(REF))) is MachineNotFound


# Offers


def kind(**other: Any) -> dict[str, Any]:
    return {
        "instance_type": "8H100.80S.176V",
        "price_per_hour": "25.36",
        "currency": "usd",
        "cpu": {"number_of_cores": 176},
        "gpu": {"number_of_gpus": 8, "description": "8x H100 SXM5 80GB"},
        "memory": {"size_in_gigabytes": 1480},
        "supported_os": [IMAGE],
    } | other


def selling(*kinds: dict[str, Any], volume: str = "usd") -> Verda:
    price = {"price_per_month_per_gb": 0.2, "currency": volume}
    answers: dict[str, Any] = {
        "instance-types": kinds,
        "volume-types": [
            {"type": "HDD", "price": {**price, "price_per_month_per_gb": 9}},
            {"type": "NVMe", "price": price},
        ],
        "instance-availability": [{"location_code": "FIN-02", "availabilities": ["8H100.80S.176V"]}],
    }
    return answering(lambda asked: httpx.Response(200, json=answers[asked.url.path.removeprefix("/v1/")]))


def test_every_region_has_a_jurisdiction() -> None:
    assert {ours[:2] for ours in REGIONS.values()} == {"eu", "is"}
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())


async def test_an_offer_costs_the_machine_and_its_volume_exactly() -> None:
    listed = await selling(kind()).offers()
    offers = [each for each in listed if isinstance(each, ListedOffer)]
    assert {offer.cost_nano_per_hour for offer in offers} == {25_360_000_000 + 27_397_261}
    assert {offer.shape.gpu_model for offer in offers} == {GpuModel.H100_SXM_80GB}
    assert [offer.native_region for offer in offers if offer.available] == ["FIN-02"]
    assert len(offers) == len(REGIONS)


async def test_what_has_no_known_gpu_image_or_currency_is_not_sold() -> None:
    arm = {"number_of_gpus": 1, "description": "1x GB300 SXM6 288GB"}
    provider = selling(
        kind(gpu=arm),
        kind(gpu={"number_of_gpus": 0, "description": ""}),
        kind(supported_os=["ubuntu-22.04"]),
        kind(currency="eur"),
    )
    assert await provider.offers() == (
        LeftOut(LeftOutFor.UNKNOWN_GPU, "GB300 SXM6 288GB"),
        LeftOut(LeftOutFor.NO_PRICE, "8H100.80S.176V"),
    )


async def test_without_the_price_of_a_volume_nothing_is_sold() -> None:
    assert type(await raised(selling(kind(), volume="eur").offers())) is Unavailable


# Machines


async def test_a_machine_without_a_public_address_has_none_and_status_words_are_kept() -> None:
    tag = [{"key": "SP-other", "value": a_key(9)}, {"key": "sp-launch-key", "value": a_key(1)}]
    listed = [
        {"id": "1", "status": "running", "ip": None, "tags": tag, "hostname": "renamed"},
        {"id": "2", "status": "no_capacity", "hostname": a_key(2)},
        {"id": "3", "status": "offline", "ip": "192.0.2.3", "tags": None, "hostname": a_key(3)},
        {"id": "4", "status": "running", "tags": [{"key": "env", "value": a_key(4)}], "hostname": "box"},
    ]
    found = await answering(lambda _: httpx.Response(200, json=listed)).inventory()
    assert [(each.launch_key, each.state, each.native_status, each.address) for each in found] == [
        (a_key(1), ListedState.RUNNING, "running", None),
        (a_key(2), ListedState.SOLD_OUT, "no_capacity", None),
        (a_key(3), ListedState.STOPPED, "offline", "192.0.2.3"),
    ]


# Limits and tokens


async def test_the_limit_of_the_project_is_told_and_that_of_some_endpoint_is_not() -> None:
    cloud = EmulatedVerda()
    assert cloud.provider.told_limits() == ()
    await cloud.provider.inventory()
    assert [(each.bucket, each.calls, each.left) for each in cloud.provider.told_limits()] == [
        ("project", 500, 499)
    ]
    assert isinstance(cloud.provider, TellsLimits)


async def test_half_the_told_limit_of_the_project_halves_our_pace() -> None:
    """Verda counts requests, and some calls make several, so what it tells is compared with requests as well."""
    clock = Clock()

    def turn_seconds(budget: OneProcessBudget) -> float:
        (row,) = [row for (_, name), row in vars(budget)["_buckets"].items() if name == "project"]
        taken: timedelta = row.free_at - clock.now()
        return taken.total_seconds()

    seconds = []
    for told in (500, 250):
        budget = OneProcessBudget(clock.now)
        pacer = Pacer(
            AccountName("verda"),
            Verda.capabilities.rate_limits,
            now=clock.now,
            sleep=clock.sleep,
            budget=budget,
            in_process=False,
        )
        await pacer.told([ToldLimit("project", told, 60.0, left=told - 1, resets_seconds=60.0)])
        await pacer.wait_for_turn(Verb.TERMINATE, 60.0)
        seconds.append(turn_seconds(budget))
    assert seconds[1] == pytest.approx(2 * seconds[0])


async def test_one_token_serves_until_shortly_before_it_expires() -> None:
    cloud = EmulatedVerda()
    cloud.network.seconds_between = 0.0
    await cloud.provider.inventory()
    cloud.clock.advance(timedelta(minutes=58).total_seconds())
    await cloud.provider.inventory()
    assert cloud.network.fetched == 1
    cloud.clock.advance(timedelta(minutes=1).total_seconds())
    await cloud.provider.inventory()
    assert cloud.network.fetched == 2


async def test_a_token_that_is_refused_is_fetched_anew_for_the_next_request() -> None:
    cloud = EmulatedVerda()
    await cloud.provider.inventory()
    cloud.account.tokens.clear()
    assert type(await raised(cloud.provider.inventory())) is Unauthorized
    assert await cloud.provider.inventory() == ()


async def test_a_token_that_cannot_be_fetched_means_that_nothing_was_sent() -> None:
    for status, code, error in (
        (401, "unauthorized_request", Unauthorized),
        (429, "rate_limit_exceeded", Throttled),
        (400, "invalid_request", Unavailable),
        (500, "server_error", Unavailable),
    ):
        body = {"code": code, "message": f"bad {SECRET}"}
        provider = answering(
            lambda _: httpx.Response(500),
            token=lambda _, status=status, body=body: httpx.Response(status, json=body),  # type: ignore[misc]  # default
        )
        for call in (provider.inventory(), provider.launch(ORDER), provider.terminate(REF)):
            caught = await raised(call)
            assert type(caught) is error
            assert SECRET not in f"{caught} {caught!r}"


def test_no_secret_shows_in_a_repr() -> None:
    settings = Settings("client", SECRET)
    assert SECRET not in f"{settings!r} {Verda(settings)!r}"
