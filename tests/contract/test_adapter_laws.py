"""What an adapter makes of answers that no emulator sends: every status with garbage, for every verb.

The error law decides; an adapter that judges an answer by itself fails here, whatever its provider.
"""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count, product
from typing import cast
from urllib.parse import parse_qsl

import httpx
import pytest

from providers.base import OutcomeUnknown, ProviderError, Throttled, Unauthorized, Unavailable, Verb
from providers.error_law import ERRORS_OF, WRITES
from providers.guard import ANSWER_SECONDS_MAX
from providers.optional import HasFirewall, HasPower, NeedsPreparing
from tests.contract.clouds import Cloud, EmulatedCloud, a_key, clouds

STATUSES = (
    *(200, 201, 202, 203, 204, 205, 206, 207, 226),
    *(300, 301, 302, 303, 304, 307, 308),
    *(400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 422, 423, 425, 429, 451, 499),
    *(500, 501, 502, 503, 504, 507, 520, 522, 524, 530, 599),
)
GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "a proxy's page": b"<html><title>Just a moment...</title></html>",
    "text": b"API requests too frequent",
    "null": b"null",
    "a number": b"17",
    "a text": b'"ok"',
    "a list": b"[]",
    "an empty object": b"{}",
    "an object of somebody else": b'{"status": "ok", "result": {"items": []}}',
    "an error of somebody else": b'{"title": "Forbidden", "detail": "by the gateway", "errors": []}',
    "half a body": b'{"data": [{"id": "1", "sta',
    "no utf-8": b"\xff\xfe{}",
    "deep": b'{"data":' * 50_000,
    "an error without a code": b'{"error": null}',
    "an error of another type": b'{"error": {"code": 7}}',
}
STEPS_MAX = 8
"""More than any preparation takes."""

EVERY_GARBAGE = (200, 202, 206, 207, 307, 400, 401, 403, 404, 409, 429, 500, 503)
"""The statuses that are tried with all of it, and what every status is tried with: the others differ in nothing."""
EVERY_STATUS = ("nothing", "a proxy's page")

emulated = sorted(name for name, make in clouds().items() if isinstance(make(), EmulatedCloud))


@pytest.fixture(params=emulated)
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[EmulatedCloud]:
    made = cast("EmulatedCloud", clouds()[request.param]())
    yield made
    await made.provider.close()


async def prepare(cloud: EmulatedCloud) -> None:
    """Have everything registered that the launch in `calls` needs."""
    provider = cloud.provider
    if isinstance(provider, NeedsPreparing):
        for _ in range(STEPS_MAX):
            if not provider.prepared(cloud.order(2)):
                await provider.prepare(cloud.order(2))
        assert provider.prepared(cloud.order(2))


def calls(cloud: Cloud) -> dict[Verb, Callable[[], Awaitable[object]]]:
    """One call of each verb; `prepare` belongs to a launch that finds nothing registered."""
    provider = cloud.provider
    found: dict[Verb, Callable[[], Awaitable[object]]] = {
        Verb.OFFERS: provider.offers,
        Verb.INVENTORY: provider.inventory,
        Verb.LAUNCH: lambda: provider.launch(cloud.order(2)),
        Verb.TERMINATE: lambda: provider.terminate(cloud.absent_ref),
    }
    if isinstance(provider, HasPower) and provider.capabilities.power:
        action = min(provider.capabilities.power)
        found[Verb.POWER] = lambda: provider.power(action, cloud.absent_ref)
    if isinstance(provider, HasFirewall):
        found[Verb.FIREWALL] = lambda: provider.apply_ingress(cloud.absent_ref, a_key(), frozenset())
    return found


async def outcome(call: Callable[[], Awaitable[object]]) -> type[Exception] | None:
    """The type of what a call raises, or None."""
    try:
        await call()
    except Exception as error:  # noqa: BLE001 - that nothing but the port's errors comes is the test
        return type(error)
    return None


def expected(verb: Verb, status: int) -> type[ProviderError]:
    """What is known after this status with a body that is not in the provider's format."""
    if status == 401:
        return Unauthorized
    if status == 429:
        return Throttled
    if status in (307, 308):
        return Unavailable
    return OutcomeUnknown if verb in WRITES else Unavailable


def expected_of(cloud: EmulatedCloud, verb: Verb, status: int, content: bytes) -> type[ProviderError] | None:
    """The same, but None for what the provider documents: an answer without a body, an empty list of machines."""
    documented = not content and (verb, status) in cloud.empty_answers
    complete = status // 100 == 2 and status != httpx.codes.PARTIAL_CONTENT
    if cloud.lists_are_plain and verb is Verb.INVENTORY and complete and content == b"[]":
        documented = True
    return None if documented else expected(verb, status)


async def test_garbage_of_any_status_is_exactly_the_error_that_the_law_has_for_the_verb(
    cloud: EmulatedCloud,
) -> None:
    await prepare(cloud)
    for status, name in product(STATUSES, GARBAGE):
        if status not in EVERY_GARBAGE and name not in EVERY_STATUS:
            continue

        content = GARBAGE[name]

        def answer(_: httpx.Request, status: int = status, content: bytes = content) -> httpx.Response:
            return httpx.Response(status, content=content)

        cloud.network.answer = answer
        for verb, call in calls(cloud).items():
            got = await outcome(call)
            known = expected_of(cloud, verb, status, content)
            assert got is known, f"{verb}: HTTP {status} with {name}: {got}"
            assert got is None or got in ERRORS_OF[verb]


async def test_one_call_of_the_port_is_one_request_however_it_ends(cloud: EmulatedCloud) -> None:
    await prepare(cloud)
    for status in STATUSES:
        cloud.network.answer = lambda _, status=status: httpx.Response(status)
        for verb, call in calls(cloud).items():
            cloud.network.requests.clear()
            await outcome(call)
            assert len(cloud.network.requests) == 1, (verb, status)


async def test_garbage_before_a_launch_is_prepared_buys_nothing_and_says_so(cloud: EmulatedCloud) -> None:
    """Nothing was registered yet: where a launch needs that, its first request belongs to `prepare`."""
    provider = cloud.provider
    prepares = isinstance(provider, NeedsPreparing) and not provider.prepared(cloud.order())
    for status in STATUSES:
        cloud.network.requests.clear()
        cloud.network.answer = lambda _, status=status: httpx.Response(status)
        got = await outcome(calls(cloud)[Verb.LAUNCH])
        assert got is expected(Verb.PREPARE if prepares else Verb.LAUNCH, status), status


def parts_of(request: httpx.Request) -> list[str]:
    """Every header value and every text of the body."""

    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for each in value.values() for text in texts(each)]
        if isinstance(value, list):
            return [text for each in value for text in texts(each)]
        return [value] if isinstance(value, str) else []

    form = request.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded")
    body = dict(parse_qsl(request.content.decode())) if form else json.loads(request.content or b"null")
    return [*request.headers.values(), *texts(body)]


def plain(text: str) -> str:
    """What a text in base64 says, such as user data; any other text as it is."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return text


async def test_a_provider_that_quotes_any_part_of_our_request_gets_no_secret_into_an_error(
    cloud: EmulatedCloud,
) -> None:
    quoted: set[str] = set()
    shown = ""
    for verb in calls(cloud):
        for number in count():
            rest: list[str] = []

            def quote(request: httpx.Request, number: int = number, rest: list[str] = rest) -> httpx.Response:
                rest.extend(parts_of(request)[number:])
                return httpx.Response(400, content=cloud.refusal(next(iter(rest), "nothing left")))

            cloud.network.answer = None
            await prepare(cloud)  # A refused launch may have to be prepared anew.
            cloud.network.answer = quote
            with pytest.raises(ProviderError) as caught:
                await calls(cloud)[verb]()
            said = f"{verb} {caught.value} {caught.value!r} {caught.value.code}\n"
            shown += said
            if not rest:
                break
            if any(secret in plain(rest[0]) for secret in cloud.quotable()):
                assert rest[0][:40] not in said, "also not in base64"
            quoted |= {rest[0], plain(rest[0])}
    assert all(cloud.quotable())
    for secret in cloud.quotable():
        assert any(secret in quote for quote in quoted), "the provider quoted it"
        assert secret not in shown
    # A type that has the name of a cloud before it travels in two parts.
    assert (cloud.harmless or cloud.native_type.rpartition("/")[2]) in shown, "what is harmless shows"


async def test_without_an_answer_a_read_is_unavailable_and_a_write_unknown(cloud: EmulatedCloud) -> None:
    await prepare(cloud)

    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("the connection was cut", request=request)

    cloud.network.answer = cut
    for verb, call in calls(cloud).items():
        assert await outcome(call) is (OutcomeUnknown if verb in WRITES else Unavailable), verb


@pytest.mark.parametrize("name", sorted(clouds()))
def test_what_a_provider_declares_is_within_the_guards_bounds(name: str) -> None:
    capabilities = clouds()[name]().provider.capabilities
    assert all(0 < seconds <= ANSWER_SECONDS_MAX for seconds in capabilities.answer_seconds.values())
    assert len({limit.bucket for limit in capabilities.rate_limits}) == len(capabilities.rate_limits)
    for limit in capabilities.rate_limits:
        assert limit.calls > 0, limit
        assert limit.seconds > 0, limit
        assert limit.verbs, limit
    assert capabilities.list_lag_seconds >= 0
    assert capabilities.boot_seconds_max > 0
    assert capabilities.user_data_bytes_max > 0
