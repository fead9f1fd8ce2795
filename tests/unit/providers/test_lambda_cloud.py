"""What the law suite does not reach: the text of descriptions, regions, redirects, odd answers."""

from collections.abc import Callable

import httpx
import pytest

from control_plane.domain.block import BlockScope
from control_plane.domain.cpu import Architecture
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN, region_within
from providers.base import (
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.lambda_cloud import REGIONS, LambdaCloud, Settings, connect
from providers.listings import UNREADABLE_PRICE
from tests.contract.clouds import a_key
from tests.contract.clouds.fake import FakeCloud

ORDER = FakeCloud().order()
KEYS = {"data": [{"id": "1", "name": "theirs", "public_key": ORDER.ssh_public_key + "-another-comment"}]}
Answer = Callable[[httpx.Request], httpx.Response]


def answering(answer: Answer, base_url: str = "https://lambda.test/api/v1") -> LambdaCloud:
    def with_keys(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=KEYS) if request.url.path.endswith("/ssh-keys") else answer(request)

    settings = Settings(api_key="planted-secret-key", base_url=base_url)
    return connect(settings, transport=httpx.MockTransport(with_keys))


def always(status: int, **content: object) -> LambdaCloud:
    return answering(lambda _: httpx.Response(status, **content))  # type: ignore[arg-type]


def error(status: int, code: str, message: str = "no") -> LambdaCloud:
    return always(status, json={"error": {"code": code, "message": message}})


def test_every_region_has_a_jurisdiction_and_only_germany_is_in_the_eu() -> None:
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    assert [theirs for theirs, ours in REGIONS.items() if region_within(ours, "eu")] == ["europe-central-1"]
    assert len(set(REGIONS.values())) == len(REGIONS)


async def test_types_and_regions_that_we_cannot_name_are_left_out_and_named() -> None:
    specs = {"vcpus": 1, "memory_gib": 1, "storage_gib": 1, "gpus": 1}
    kinds = {
        name: {
            "instance_type": {
                "name": name,
                "description": name,
                "gpu_description": text,
                "price_cents_per_hour": cents,
                "specs": specs,
            },
            "regions_with_capacity_available": [{"name": "europe-north-1"}, {"name": "us-east-1"}],
        }
        for name, text, cents in (
            ("h", "H100 (80 GB SXM5)", 329),
            ("v", "Tesla V100 (16 GB)", 329),
            ("odd", "H100 (80 GB SXM5)", -329),
            ("arm", "GH200 (96 GB)", 329),
        )
    }
    provider = always(200, json={"data": kinds})
    listed = await provider.offers()
    assert [each for each in listed if isinstance(each, LeftOut)] == [
        LeftOut(LeftOutFor.UNKNOWN_GPU, "Tesla V100 (16 GB)"),
        LeftOut(LeftOutFor.UNKNOWN_REGION, "europe-north-1"),
    ]
    named = [each for each in listed if isinstance(each, ListedOffer)]
    offers = [offer for offer in named if offer.cost_nano_per_hour != UNREADABLE_PRICE]
    assert {offer.native_type for offer in named if offer not in offers} == {"odd"}
    assert {(offer.native_type, offer.architecture) for offer in offers} == {
        ("h", Architecture.X86_64),
        ("arm", Architecture.ARM64),
    }
    assert [offer.native_region for offer in offers if offer.available] == ["us-east-1"] * 2
    assert {offer.cost_nano_per_hour for offer in offers} == {3_290_000_000}


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (error(400, "global/invalid-parameters"), OrderRefused),
        (error(403, "global/account-inactive"), Unauthorized),
        (error(400, "a/code-of-tomorrow"), OrderRefused),
        (error(503, "provider/internal-unavailable"), OutcomeUnknown),
        (error(400, "provider/resource-exhausted"), OutcomeUnknown),
        (error(500, "global/internal-error"), OutcomeUnknown),
        (always(502, text="<html>Bad gateway</html>"), OutcomeUnknown),
        (always(403, text="<html>Attention required</html>"), OutcomeUnknown),
        (always(401, text="who?"), Unauthorized),
        (always(200, text="<html>"), OutcomeUnknown),
        (always(200, json={"data": {"instance_ids": []}}), OutcomeUnknown),
        (always(200, json={"data": {"instance_ids": ["a", "b"]}}), OutcomeUnknown),
        (always(200, json={"data": {"instance_ids": [""]}}), OutcomeUnknown),
        (always(200, content=b"\xff\xfe"), OutcomeUnknown),
    ],
)
async def test_what_an_answer_to_a_launch_means(provider: LambdaCloud, expected: type[ProviderError]) -> None:
    with pytest.raises(expected) as caught:
        await provider.launch(ORDER)
    assert type(caught.value) is expected


async def test_a_quota_is_the_accounts_in_every_region() -> None:
    with pytest.raises(QuotaReached) as caught:
        await error(400, "global/quota-exceeded").launch(ORDER)
    assert caught.value.scope is BlockScope.ACCOUNT


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (error(404, "global/object-does-not-exist"), MachineNotFound),
        (error(400, "global/invalid-parameters"), NotYet),
        (always(404, text="<html>"), OutcomeUnknown),
        (always(200, json={"data": {"terminated_instances": []}}), NotYet),
        (always(200, json={"data": {"terminated_instances": [{"id": "x", "status": "?"}]}}), NotYet),
        (always(200, json={}), OutcomeUnknown),
    ],
)
async def test_what_an_answer_to_a_terminate_means(
    provider: LambdaCloud, expected: type[ProviderError]
) -> None:
    with pytest.raises(expected):
        await provider.terminate(ProviderRef("y"))


async def test_a_retry_after_is_believed_and_otherwise_the_limit_decides() -> None:
    with pytest.raises(Throttled) as advised:
        await always(429, headers={"Retry-After": "7"}).launch(ORDER)
    with pytest.raises(Throttled) as guessed:
        await always(429, text="slow down").launch(ORDER)
    assert (advised.value.retry_after_seconds, guessed.value.retry_after_seconds) == (7.0, 12.0)


async def test_a_list_with_more_pages_or_one_broken_instance_is_an_error() -> None:
    sound = {"id": "1", "status": "active", "name": a_key()}
    for answer in (
        {"data": [sound], "page_token": "more"},
        {"data": [sound, {"id": "2"}]},
        {"data": None},
    ):
        with pytest.raises(Unavailable):
            await always(200, json=answer).inventory()


async def test_an_instance_is_ours_by_tag_or_by_name_and_a_missing_ip_is_none() -> None:
    instances = [
        {
            "id": "1",
            "status": "active",
            "name": "renamed",
            "tags": [{"key": "sp-launch-key", "value": a_key(1)}],
        },
        {"id": "2", "status": "preempted", "name": a_key(2), "ip": "", "tags": None, "new_field": {}},
        {"id": "3", "status": "active", "name": "sp-looks-like-ours"},
    ]
    sightings = await always(200, json={"data": instances}).inventory()
    assert [(each.provider_ref, each.launch_key, each.state, each.address) for each in sightings] == [
        ("1", a_key(1), ListedState.RUNNING, None),
        ("2", a_key(2), ListedState.FAILED, None),
    ]


async def test_a_redirect_is_followed_within_the_origin_and_the_key_goes_nowhere_else() -> None:
    asked: list[str] = []

    def elsewhere(location: str) -> Answer:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(str(request.url))
            assert request.headers["Authorization"] == "Bearer planted-secret-key"
            if "/v2/" in request.url.path:
                return httpx.Response(200, json={"data": []})
            return httpx.Response(308, headers={"Location": location})

        return answer

    assert await answering(elsewhere("/api/v2/instances")).inventory() == ()
    assert asked == ["https://lambda.test/api/v1/instances", "https://lambda.test/api/v2/instances"]
    for location in ("https://evil.test/v2/instances", "http://lambda.test/v2/instances", "//evil.test/v2/"):
        asked.clear()
        with pytest.raises(Unavailable):
            await answering(elsewhere(location)).inventory()
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, OutcomeUnknown),
        (302, OutcomeUnknown),
        (303, OutcomeUnknown),
        (307, Unavailable),
        (308, Unavailable),
    ],
)
async def test_a_launch_is_not_turned_into_something_else_by_a_redirect(
    status: int, expected: type[ProviderError]
) -> None:
    """301, 302 and 303 may also mean that the launch was done; 307 and 308 ask for it elsewhere."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(status, headers={"Location": "https://elsewhere.test/launch"})

    with pytest.raises(expected):
        await answering(answer).launch(ORDER)
    assert asked == ["POST"]


async def test_a_message_that_quotes_our_request_is_not_repeated() -> None:
    provider = error(400, "global/invalid-parameters", f"cannot read {ORDER.user_data!r}")
    with pytest.raises(OrderRefused) as caught:
        await provider.launch(ORDER)
    assert str(caught.value) == "launch: HTTP 400, global/invalid-parameters"
    plain = error(400, "global/invalid-parameters", "name is too long")
    with pytest.raises(OrderRefused, match="name is too long"):
        await plain.launch(ORDER)


async def test_our_ssh_key_is_registered_once_and_found_again_under_any_name_or_comment() -> None:
    asked: list[tuple[str, str]] = []
    registered: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path.rpartition("/")[2]))
        if request.url.path.endswith("/launch"):
            return httpx.Response(200, json={"data": {"instance_ids": ["1"]}})
        if request.method == "POST" and not registered:
            # Another replica was faster: the first try is a duplicate.
            registered.append({"id": "1", "name": "by-a-twin", "public_key": ORDER.ssh_public_key})
            return httpx.Response(400, json={"error": {"code": "global/duplicate", "message": ""}})
        return httpx.Response(200, json={"data": registered})

    provider = connect(Settings(api_key="k"), transport=httpx.MockTransport(answer))
    await provider.launch(ORDER)
    await provider.launch(ORDER)
    keys = [("GET", "ssh-keys"), ("POST", "ssh-keys"), ("GET", "ssh-keys")]
    assert asked == [*keys, ("POST", "launch"), ("POST", "launch")]
