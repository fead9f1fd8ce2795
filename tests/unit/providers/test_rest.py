"""How a request leaves and how its answer is judged, whatever the provider."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from providers import rest
from providers.base import (
    Capabilities,
    MachineNotFound,
    NoCapacity,
    NotYet,
    OutcomeUnknown,
    ProviderError,
    Throttled,
    Unauthorized,
    Unavailable,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, error_for, rules_by_code
from providers.listings import UnreadableAnswer
from providers.rest import ErrorContract, Rest, detail_from, ignored
from providers.signing import Sign, bearer, header

KEY = "planted-secret-key"
Handler = Callable[[httpx.Request], httpx.Response]


class Refusal(msgspec.Struct):
    code: str
    message: str = ""


class Machine(msgspec.Struct):
    id: str


def contract(*, success: bool = False) -> ErrorContract:
    rules = rules_by_code({"sold_out": Meaning.NO_CAPACITY, "gone": Meaning.NOT_FOUND})
    detail_of = detail_from(Refusal, lambda refusal: ErrorDetail(refusal.code, refusal.message))
    return ErrorContract(detail_of, rules, failures_with_success_status=success)


def api(handler: Handler, *, sign: Sign | None = None, success: bool = False) -> Rest:
    return Rest(
        "https://api.test/v1",
        sign=sign or bearer(KEY),
        errors=contract(success=success),
        capabilities=Capabilities(list_lag_seconds=0.0, boot_seconds_max=1.0, user_data_bytes_max=1),
        transport=httpx.MockTransport(handler),
    )


def always(status: int, **content: Any) -> Handler:
    return lambda _: httpx.Response(status, **content)


async def ask(client: Rest, verb: Verb = Verb.LAUNCH, **changes: Any) -> object:
    arguments: dict[str, Any] = {"method": "POST", "path": "machines", "kind": Machine, "read": _id} | changes
    return await client.call(verb, **arguments)


def _id(machine: Machine) -> str:
    return machine.id


async def failure(client: Rest, verb: Verb = Verb.LAUNCH, **changes: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(client, verb, **changes)
    assert KEY not in repr(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


# What leaves.


async def test_a_request_has_its_query_its_body_and_its_signature() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"id": "m-1", "new_field": 1})

    query = {"cursor": "a/b&c=d", "limit": None}
    assert await ask(api(handler), query=query, body={"name": "x"}) == "m-1"
    assert await ask(api(handler, sign=header("X-API-KEY", KEY)), method="GET") == "m-1"
    first, second = seen
    assert str(first.url) == "https://api.test/v1/machines?cursor=a%2Fb%26c%3Dd"
    assert (first.method, json.loads(first.content)) == ("POST", {"name": "x"})
    assert (first.headers["Authorization"], second.headers["X-API-KEY"]) == (f"Bearer {KEY}", KEY)
    assert "X-API-KEY" not in first.headers


async def test_a_part_of_a_path_stays_one_part() -> None:
    paths: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"id": "m-1"})

    for part in ("m-1", "../users", "a?b#c", "%2e"):
        await ask(api(handler), path=("machines", part, "stop"))
    assert paths == [
        "/v1/machines/m-1/stop",
        "/v1/machines/..%2Fusers/stop",
        "/v1/machines/a%3Fb%23c/stop",
        "/v1/machines/%252e/stop",
    ]
    for part in ("", ".", ".."):
        error = await failure(api(handler), Verb.TERMINATE, path=("machines", part))
        assert type(error) is Unavailable, part
    assert len(paths) == 4


class Signature:
    """A scheme that covers the request and that a provider checks, as an HMAC would be."""

    async def __call__(self, request: httpx.Request) -> None:
        path = request.url.raw_path.decode()
        request.headers["X-Signature"] = f"signed-by-{KEY}:{request.method}:{path}:{request.content.decode()}"


async def test_a_signature_covers_the_finished_request_and_is_made_anew_after_a_redirect() -> None:
    signed: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        signed.append(request.headers["X-Signature"].partition(":")[2])
        if request.url.path == "/v1/machines":
            return httpx.Response(307, headers={"Location": "/v1/machines/"})
        return httpx.Response(200, json={"id": "m-1"})

    assert await ask(api(handler, sign=Signature()), query={"a": "b"}, body={"n": 1}) == "m-1"
    assert signed == ['POST:/v1/machines?a=b:{"n":1}', 'POST:/v1/machines/:{"n":1}']


class Token:
    """A scheme that fetches a token first, with a request of its own."""

    def __init__(self, handler: Handler) -> None:
        self._rest = api(handler, sign=header("X-Client", KEY))

    async def __call__(self, request: httpx.Request) -> None:
        token = await ask(self._rest, Verb.PREPARE, path="token")
        request.headers["Authorization"] = f"Bearer {token}"


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (always(401), Unauthorized),
        (always(429), Throttled),
        (always(500), Unavailable),
        (always(400, json={"code": "no", "message": "x"}), Unavailable),
        (always(200, text="<html>"), Unavailable),
    ],
    ids=["bad key", "throttled", "broken", "refused", "garbled"],
)
async def test_a_launch_whose_signing_fails_has_not_left_us(
    handler: Handler, expected: type[ProviderError]
) -> None:
    def must_not_be_asked(_: httpx.Request) -> httpx.Response:
        raise AssertionError("the launch was sent without its signature")

    error = await failure(api(must_not_be_asked, sign=Token(handler)))
    assert type(error) is expected


async def test_a_bug_in_a_signature_or_a_body_that_is_no_json_has_not_left_us_and_shows_no_secret() -> None:
    async def broken(request: httpx.Request) -> None:
        raise KeyError(KEY)

    assert type(await failure(api(always(200), sign=broken))) is Unavailable
    assert type(await failure(api(always(200)), body={"n": object()})) is Unavailable


# What comes back.


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (httpx.ConnectError, Unavailable, Unavailable),
        (httpx.ConnectTimeout, Unavailable, Unavailable),
        (httpx.PoolTimeout, Unavailable, Unavailable),
        (httpx.ReadTimeout, Unavailable, OutcomeUnknown),
        (httpx.ReadError, Unavailable, OutcomeUnknown),
        (httpx.WriteError, Unavailable, OutcomeUnknown),
        (httpx.RemoteProtocolError, Unavailable, OutcomeUnknown),
        (httpx.DecodingError, Unavailable, OutcomeUnknown),
    ],
)
async def test_what_a_broken_connection_means(
    error: type[httpx.RequestError], read: type[ProviderError], write: type[ProviderError]
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error(f"with {KEY}", request=request)

    for verb, expected in (
        (Verb.OFFERS, read),
        (Verb.PREPARE, read),
        (Verb.LAUNCH, write),
        (Verb.TERMINATE, write),
    ):
        assert type(await failure(api(handler), verb)) is expected, verb


class Huge(httpx.AsyncByteStream):
    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> Any:
        for _ in range(100):
            self.sent += 1
            yield b"x" * 1024


async def test_a_body_is_read_within_a_bound_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "BODY_BYTES_MAX", 10_000)
    for status in (200, 400, 503):
        stream = Huge()
        error = await failure(api(always(status, stream=stream)))
        assert type(error) is OutcomeUnknown, status
        assert stream.sent == 10, status
    assert type(await failure(api(always(200, stream=Huge())), Verb.INVENTORY)) is Unavailable


class Sent(httpx.AsyncByteStream):
    """Bytes as they come over the line: the library unpacks them only when somebody reads."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self) -> Any:
        yield self.content


async def test_an_encoded_body_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(gzip.compress(b"x" * 4_000_000))
    for encoding in ("gzip", "gzip, gzip"):
        handler = always(200, stream=Sent(bomb), headers={"Content-Encoding": encoding})
        tracemalloc.start()
        assert type(await failure(api(handler), Verb.INVENTORY)) is Unavailable, encoding
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000, encoding


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{}", b"<html>", b"\xff\xfe", b"[" * 100_000, b'{"id": 1}', b'{"id": "\xff"}'],
    ids=[
        "nothing",
        "null",
        "a list",
        "an object",
        "a page",
        "no utf-8",
        "deep",
        "a wrong type",
        "a wrong byte",
    ],
)
async def test_a_success_that_cannot_be_read_is_no_answer(content: bytes) -> None:
    for status in (200, 201, 202):
        assert type(await failure(api(always(status, content=content)))) is OutcomeUnknown
        assert type(await failure(api(always(status, content=content)), Verb.INVENTORY)) is Unavailable


async def test_what_a_reader_raises_is_no_answer_unless_it_is_the_law_itself() -> None:
    client = api(always(200, json={"id": f"m-{KEY}"}))

    def bug(machine: Machine) -> str:
        return {"known": "x"}[machine.id]

    def unreadable(_: Machine) -> str:
        raise UnreadableAnswer("two ids for one machine")

    def busy(_: Machine) -> str:
        raise error_for(Verb.TERMINATE, Meaning.BUSY, "still creating it")

    assert str(await failure(client, read=bug)) == "launch: HTTP 200: an unreadable body (KeyError)"
    error = await failure(client, read=unreadable)
    assert (type(error), str(error)) == (OutcomeUnknown, "launch: HTTP 200: two ids for one machine")
    assert type(await failure(client, Verb.TERMINATE, read=busy)) is NotYet


async def test_a_body_that_is_not_needed_is_not_read_and_raw_bytes_may_be() -> None:
    assert await ask(api(always(204)), Verb.TERMINATE, kind=bytes, read=ignored) is None
    assert await ask(api(always(202, text="a-bare-id")), kind=bytes, read=bytes.decode) == "a-bare-id"
    assert await ask(api(always(202, json="a-bare-id")), kind=str, read=str) == "a-bare-id"


async def test_an_answer_without_a_body_is_a_success_only_with_the_status_that_the_adapter_names() -> None:
    for status, content, named, good in (
        (204, b"", 204, True),
        (200, b"", 204, False),
        (204, b"", None, False),
        (204, b"{}", 204, False),
        (204, b'{"id": "1"}', 204, True),
        (200, b'{"id": "1"}', 204, True),
    ):
        rest = api(always(status, content=content))
        call = rest.call(Verb.TERMINATE, "DELETE", "machines/1", Machine, ignored, empty_status=named)
        try:
            await call
        except OutcomeUnknown:
            assert not good, (status, content, named)
        else:
            assert good, (status, content, named)


async def test_a_part_of_a_listing_is_no_listing() -> None:
    assert type(await failure(api(always(206, json={"id": "m-1"})), Verb.INVENTORY)) is Unavailable


async def test_a_failure_in_the_providers_format_becomes_what_its_rules_say() -> None:
    sold_out = always(503, json={"code": "sold_out", "message": "come back tomorrow"})
    error = await failure(api(sold_out))
    assert (type(error), error.code) == (NoCapacity, "sold_out")
    assert str(error) == "launch: HTTP 503, sold_out (come back tomorrow)"
    assert type(await failure(api(always(404, json={"code": "gone"})), Verb.TERMINATE)) is MachineNotFound
    assert type(await failure(api(always(404, text="gone")), Verb.TERMINATE)) is OutcomeUnknown


async def test_a_success_status_with_a_failure_in_it_is_judged_where_the_provider_does_that() -> None:
    refused = always(200, json={"code": "sold_out", "id": "m-1"})
    unlisted = always(200, json={"code": "new_words", "id": "m-1"})
    assert await ask(api(refused)) == "m-1"
    assert type(await failure(api(refused, success=True))) is NoCapacity
    assert type(await failure(api(unlisted, success=True))) is OutcomeUnknown
    assert await ask(api(always(200, json={"id": "m-1"}), success=True)) == "m-1"


async def test_an_error_body_that_breaks_its_reader_is_not_in_the_providers_format() -> None:
    error = await failure(api(always(400, content=b'{"code": ' + b"[" * 100_000)), Verb.TERMINATE)
    assert type(error) is OutcomeUnknown


async def test_neither_the_signature_nor_what_is_private_shows_when_the_provider_quotes_it() -> None:
    def quoting(what: Callable[[httpx.Request], str]) -> Handler:
        return lambda request: httpx.Response(400, json={"code": "bad", "message": what(request)})

    hidden = "user-data-with-a-key"
    quoted: dict[str, Callable[[httpx.Request], str]] = {
        "the signature": lambda request: f"no such key: {request.headers['Authorization']}",
        "the body": lambda request: f"cannot read {request.content.decode()}",
    }
    for name, what in quoted.items():
        error = await failure(api(quoting(what)), body={"user_data": hidden}, private=hidden)
        assert str(error) == "launch: HTTP 400, bad", name
    harmless = await failure(api(quoting(lambda _: "the name is taken")), body={"user_data": hidden})
    assert str(harmless) == "launch: HTTP 400, bad (the name is taken)"


@pytest.mark.parametrize(
    "retry_after", ["7", "7.5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "٣", "9" * 400]
)
async def test_a_retry_after_is_believed_when_it_is_a_number_of_seconds(retry_after: str) -> None:
    headers = [(b"Retry-After", retry_after.encode())]
    error = await failure(api(always(429, headers=headers)))
    assert isinstance(error, Throttled)
    assert error.retry_after_seconds == {"7": 7.0, "9" * 400: 3_600.0}.get(retry_after, 5.0)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
async def test_a_redirect_that_leads_nowhere_or_away_is_followed_by_nobody(status: int) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        away = {} if status == 304 else {"Location": "https://evil.test/v1/machines"}
        return httpx.Response(status, headers=away)

    assert type(await failure(api(handler), Verb.INVENTORY, method="GET")) is Unavailable
    launch = await failure(api(handler))
    assert type(launch) is (Unavailable if status in (307, 308) else OutcomeUnknown)
    get = await failure(api(handler), Verb.TERMINATE, method="GET")
    assert type(get) is type(launch), "a write by GET is a write"
    assert {url.split("/")[2] for url in asked} == {"api.test"}


async def test_a_circle_of_redirects_ends() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(308, headers={"Location": str(request.url)})

    assert type(await failure(api(handler))) is Unavailable
    assert asked == ["POST"] * 3
