"""What is handled behind the port, against an API server that misbehaves at will. No socket: its answers are scripted."""

import asyncio
import gzip
import json
from collections.abc import Callable

import httpx2
import pytest

from data_plane.cluster import lightkube_port, transport
from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.port import (
    AnswerTooLong,
    Change,
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Snapshot,
    Token,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from data_plane.cluster.resource import NODE, POD, SECRET, Object

CLUSTER = Cluster("https://10.64.0.1:6443", "", Token("a.planted.token"))
Handler = Callable[[httpx2.Request], httpx2.Response]


class Script:
    """Answers one after the other, the last one for ever, and keeps the requests and the waits between them."""

    def __init__(self, *answers: httpx2.Response | Exception | Handler) -> None:
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.waits: list[float] = []

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)  # As a socket does: a limit on time can only bind where others have a turn.
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else answer(request)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def port(self) -> LightkubePort:
        return LightkubePort(CLUSTER, sleep=self._sleep, inner=httpx2.MockTransport(self._answer))


def _status(code: int, reason: str, message: str = "no", **details: object) -> Handler:
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
    return lambda _: httpx2.Response(code, json=body)


def _busy(after: str) -> Handler:
    return lambda _: httpx2.Response(
        429, headers={"Retry-After": after}, json={"kind": "Status", "code": 429}
    )


def _named(*names: str, version: str = "7", **metadata: object) -> Handler:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    body = {"items": items, "metadata": {"resourceVersion": version, **metadata}}
    return lambda _: httpx2.Response(200, json=body)


def _events(*events: tuple[str, Object]) -> Handler:
    lines = [json.dumps({"type": kind, "object": thing}) + "\n" for kind, thing in events]
    return lambda _: httpx2.Response(200, content="".join(lines).encode())


def _compressed(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(
        200, headers={"Content-Encoding": "gzip"}, stream=httpx2.ByteStream(gzip.compress(b"{}"))
    )


async def test_a_list_of_large_objects_is_read_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node can make its own Node as large as etcd takes it, and so could hide all others."""
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1_000)

    def nodes(request: httpx2.Request) -> httpx2.Response:
        limit = int(request.url.params["limit"])
        return _named(*(f"{number:020}" for number in range(min(limit, 20))))(request)

    monkeypatch.setattr(lightkube_port, "PAGE_OF_LARGE", 5)
    script = Script(nodes)
    assert len(await script.port().list(NODE)) == 5
    assert [request.url.params["limit"] for request in script.requests] == ["500", "5"]


async def test_what_an_api_server_quotes_is_printable() -> None:
    script = Script(_status(409, "Conflict", "node \x00\x1b[2J was changed"))
    with pytest.raises(Conflict, match="was changed") as refused:
        await script.port().get(NODE, "n")
    assert str(refused.value).isprintable()


async def test_an_overloaded_api_server_is_asked_again_when_it_says() -> None:
    script = Script(_busy("3"), _busy("2"), _named("a"))
    assert [pod["metadata"]["name"] for pod in await script.port().list(POD)] == ["a"]
    assert script.waits == [3.0, 2.0]


async def test_an_api_server_that_stays_overloaded_is_given_up_within_a_bound() -> None:
    for after, most in (("1", transport.REPEATS_MAX), ("15", 1), ("100000", 0), ("soon", 0)):
        script = Script(_busy(after))
        with pytest.raises(TooManyRequests):
            await script.port().get(NODE, "n")
        assert len(script.waits) == most, after
        assert sum(script.waits) <= transport.WAIT_SECONDS_MAX


async def test_an_eviction_that_a_budget_forbids_is_not_repeated() -> None:
    script = Script(_busy("10"))
    with pytest.raises(TooManyRequests):
        await script.port().evict("p", "ns", uid="u")
    assert len(script.requests) == 1
    assert script.waits == []


async def test_each_refusal_is_an_error_of_the_port() -> None:
    cases: list[tuple[httpx2.Response | Exception | Handler, type[ClusterError]]] = [
        (_status(400, "BadRequest"), Invalid),
        (_status(401, "Unauthorized"), Unauthorized),
        (_status(403, "Forbidden"), Forbidden),
        (_status(404, "NotFound"), NotFound),
        (_status(409, "Conflict"), Conflict),
        (_status(410, "Gone"), NotFound),
        (_status(422, "Invalid"), Invalid),
        (_status(500, "InternalError"), Unreachable),
        (_status(503, "ServiceUnavailable"), Unreachable),
        (httpx2.Response(502, html="<h1>Bad gateway</h1>"), Unreachable),
        (httpx2.Response(200, html="<h1>Sign in</h1>"), Unreachable),
        (httpx2.Response(200, content=b'{"metadata": {'), Unreachable),
        (_compressed, Unreachable),
        (httpx2.ConnectError("refused"), Unreachable),
        (httpx2.ReadTimeout("silence"), Unreachable),
        (httpx2.RemoteProtocolError("cut"), Unreachable),
    ]
    for answer, error in cases:
        with pytest.raises(error) as caught:
            await Script(answer).port().get(NODE, "n")
        assert type(caught.value) is error, answer
        assert "planted" not in repr(caught.value), answer


async def test_a_conflict_names_whoever_owns_the_field() -> None:
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1', "field": ".x"}
    ]
    with pytest.raises(Conflict) as caught:
        await (
            Script(_status(409, "Conflict", causes=causes))
            .port()
            .apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        )
    assert caught.value.managers == ("kubectl-edit",)


async def test_a_list_that_expires_between_pages_starts_anew_and_is_complete() -> None:
    first = _named("a", **{"continue": "c1"})
    script = Script(first, _status(410, "Expired"), _named("a", "b", **{"continue": "c2"}), _named("c"))
    assert [pod["metadata"]["name"] for pod in await script.port().list(POD)] == ["a", "b", "c"]
    assert [request.url.params.get("continue") for request in script.requests] == [None, "c1", None, "c2"]


async def test_a_list_is_an_error_rather_than_incomplete() -> None:
    def pages(request: httpx2.Request) -> httpx2.Response:
        is_first = "continue" not in request.url.params
        return _named("a", **{"continue": "c"})(request) if is_first else _status(410, "Expired")(request)

    for second, error in ((pages, Unreachable), (_status(500, "InternalError"), Unreachable)):
        with pytest.raises(error):
            await Script(_named("a", **{"continue": "c"}), second).port().list(POD)


async def test_a_list_whose_pages_never_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightkube_port, "CALL_SECONDS_MAX", 0.05)
    for answer in (_named(**{"continue": "c"}), _status(410, "Expired"), _busy("1")):
        with pytest.raises((Unreachable, TooManyRequests)):
            await Script(answer).port().list(POD)


async def test_an_answer_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1_000)
    monkeypatch.setattr(transport, "LINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(lightkube_port, "OBJECTS_MAX", 3)
    long = _named("a" * 2_000)
    with pytest.raises(AnswerTooLong):
        await Script(long).port().list(POD)
    with pytest.raises(AnswerTooLong):
        await Script(_named("a", "b", **{"continue": "c"})).port().list(POD)
    events = Script(
        _named(), _events(("ADDED", {"metadata": {"name": "a" * 2_000}})), _status(403, "Forbidden")
    )
    with pytest.raises(AnswerTooLong):
        [seen async for seen in events.port().watch(POD)]


async def test_a_watch_begins_with_a_snapshot_and_with_another_one_once_it_expired() -> None:
    added = {"metadata": {"name": "b", "resourceVersion": "8"}}
    bookmark = {"metadata": {"resourceVersion": "12"}}
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    script = Script(
        _named("a", version="7"),
        _events(("ADDED", added), ("BOOKMARK", bookmark)),
        _events(("ERROR", expired)),
        _named("c", version="20"),
        _status(410, "Gone"),
        _named("d", version="30"),
        _status(403, "Forbidden"),
    )
    watch = script.port().watch(POD, "ns")
    seen = [await anext(watch) for _ in range(4)]
    with pytest.raises(Forbidden):
        await anext(watch)
    names = [
        [thing["metadata"]["name"] for thing in event.objects]
        if isinstance(event, Snapshot)
        else (event.kind, event.changed["metadata"]["name"])
        for event in seen
    ]
    assert names == [["a"], ("ADDED", "b"), ["c"], ["d"]]
    watched = [r.url.params["resourceVersion"] for r in script.requests if "watch" in r.url.params]
    assert watched == ["7", "12", "20", "30"]
    assert isinstance(seen[1], Change)


async def test_a_watch_ends_by_itself_before_its_silence_counts_as_death() -> None:
    seen: list[httpx2.Request] = []

    def keep(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return _status(403, "Forbidden")(request)

    with pytest.raises(Forbidden):
        [event async for event in Script(_named(), keep).port().watch(POD)]
    assert int(seen[0].url.params["timeoutSeconds"]) < seen[0].extensions["timeout"]["read"]


async def test_a_name_stays_one_segment_of_the_path() -> None:
    script = Script(_named())
    for name in ("../secrets", "a/b", "a?b", "", ".", "..", "a b", "é", "x" * 300):
        with pytest.raises(ValueError, match="no name"):
            await script.port().get(SECRET, name, "ns")
        with pytest.raises(ValueError, match="no name"):
            await script.port().list(SECRET, name)
    assert script.requests == []


async def test_what_an_answer_lacks_is_no_crash() -> None:
    answers: list[dict[str, object]] = [
        {},
        {"status": {}},
        {"status": {"token": "t", "expirationTimestamp": "?"}},
    ]
    for answer in answers:
        with pytest.raises(Unreachable):
            await Script(httpx2.Response(201, json=answer)).port().request_token("sa", "ns", life_s=600)


async def test_the_credential_goes_to_the_cluster_and_is_shown_nowhere() -> None:
    script = Script(_named())
    await script.port().list(POD)
    assert script.requests[0].headers["Authorization"] == "Bearer a.planted.token"
    assert "planted" not in repr(CLUSTER)
