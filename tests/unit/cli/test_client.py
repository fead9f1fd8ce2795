"""Requests that fail, are repeated, and never show the key."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from control_plane.cli.client import TRIES_MAX, Client
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, Exit
from control_plane.wire.catalogue import SkuList
from control_plane.wire.common import Name, Request, View
from control_plane.wire.organizations import OrganizationView

KEY = "spk_planted-0123456789"
Answer = Callable[[httpx.Request], httpx.Response]


class Order(Request):
    name: Name = "a"


class Made(View):
    id: str


class Numbers(View):
    items: tuple[int, ...]
    next_cursor: str | None


class Api:
    """Answers in turn; the last answer again and again. Remembers what was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self) -> Client:
        login = Login("http://127.0.0.1:8000", KEY, "stored in config.toml")
        return Client(login, transport=httpx.MockTransport(self), sleep=self.waits.append)


def _problem(status: int, code: str, detail: str, **more: Any) -> httpx.Response:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, "code": code, **more}
    return httpx.Response(
        status, content=json.dumps(body), headers={"content-type": "application/problem+json"}
    )


def _keys(api: Api) -> set[str]:
    return {request.headers["idempotency-key"] for request in api.requests}


@pytest.mark.parametrize(
    "first",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        httpx.Response(500),
        httpx.Response(503),
        httpx.Response(429),
    ],
)
def test_a_post_is_repeated_with_the_same_key(first: httpx.Response | Exception) -> None:
    api = Api(first, first, httpx.Response(202, json={"id": "le_1"}))
    assert api.client().post("/v1/leases", Made, Order()).value == Made("le_1")
    assert len(api.requests) == 3
    assert len(_keys(api)) == 1
    assert api.waits == [0.5, 1.0]


def test_two_posts_have_two_keys() -> None:
    api = Api(httpx.Response(202, json={"id": "le_1"}))
    client = api.client()
    client.post("/v1/leases", Made, Order())
    client.post("/v1/leases", Made, Order())
    assert len(_keys(api)) == 2


def test_repeating_has_an_end() -> None:
    api = Api(httpx.ConnectError("refused"))
    with pytest.raises(CliError) as caught:
        api.client().post("/v1/leases", Made, Order())
    assert len(api.requests) == TRIES_MAX
    assert caught.value.exit_code is Exit.NETWORK


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_refusal_is_not_repeated_and_keeps_its_code_and_sentence(status: int) -> None:
    api = Api(_problem(status, "quota_exceeded", "65 GPUs would be held and the quota is 64."))
    with pytest.raises(CliError) as caught:
        api.client().post("/v1/leases", Made, Order())
    assert len(api.requests) == 1
    assert (caught.value.code, caught.value.exit_code) == ("quota_exceeded", Exit.REFUSED)
    assert caught.value.sentence.startswith("65 GPUs would be held and the quota is 64.")


def test_field_errors_are_printed_with_their_fields() -> None:
    errors = [{"field": "regions[0]", "detail": "Expected `str` matching regex"}]
    api = Api(_problem(400, "invalid_request", "The request is malformed.", errors=errors))
    with pytest.raises(CliError, match=r"regions\[0\]: Expected"):
        api.client().post("/v1/leases", Made, Order())


def test_the_wait_that_the_api_asks_for_is_kept_within_our_bound() -> None:
    api = Api(
        httpx.Response(429, headers={"retry-after": "3"}),
        httpx.Response(429, headers={"retry-after": "86400"}),
        httpx.Response(429, headers={"retry-after": "soon"}),
        httpx.Response(200, json={"items": []}),
    )
    api.client().get("/v1/skus", SkuList)
    assert api.waits == [3.0, 10.0, 2.0]


def test_an_internal_error_names_its_request() -> None:
    api = Api(_problem(500, "internal", "Something broke.", request_id="req_1"))
    with pytest.raises(CliError, match="Request req_1"):
        api.client().get("/v1/skus", SkuList)


def test_a_gateway_without_a_problem_document_is_a_network_fault() -> None:
    api = Api(httpx.Response(502, text="<html>bad gateway</html>"))
    with pytest.raises(CliError) as caught:
        api.client().get("/v1/skus", SkuList)
    assert caught.value.exit_code is Exit.NETWORK


def test_a_page_that_is_not_json_is_no_api() -> None:
    api = Api(httpx.Response(200, text="<html>welcome</html>"))
    with pytest.raises(CliError, match="URL of the API") as caught:
        api.client().get("/v1/skus", SkuList)
    assert caught.value.exit_code is Exit.NETWORK


@pytest.mark.parametrize("answer", [[], {"items": 7}, {"items": [{"name": None}]}, {"item": []}, "ok"])
def test_json_of_another_shape_is_no_answer_of_the_api(answer: object) -> None:
    api = Api(httpx.Response(200, json=answer))
    with pytest.raises(CliError, match=r"cannot read.*URL of the API") as caught:
        api.client().get("/v1/skus", SkuList)
    assert caught.value.exit_code is Exit.NETWORK


def test_a_field_that_only_a_newer_api_knows_is_passed_over_and_kept_for_machines() -> None:
    answer = {"id": "le_1", "colour": "green"}
    got = Api(httpx.Response(200, json=answer)).client().get("/v1/leases/le_1", Made)
    assert (got.value, got.content) == (Made("le_1"), answer)


def test_what_is_left_at_its_default_is_not_sent_so_that_an_older_api_accepts_it() -> None:
    api = Api(httpx.Response(202, json={"id": "le_1"}))
    api.client().post("/v1/leases", Made, Order())
    api.client().post("/v1/leases", Made, Order("b"))
    assert [json.loads(request.content) for request in api.requests] == [{}, {"name": "b"}]


def test_the_key_does_not_follow_a_redirect() -> None:
    api = Api(httpx.Response(308, headers={"location": "https://elsewhere.example/"}))
    with pytest.raises(CliError, match="redirects to https://elsewhere"):
        api.client().get("/v1/skus", SkuList)
    assert len(api.requests) == 1


def test_a_delete_whose_answer_was_lost_and_that_finds_nothing_then_has_succeeded() -> None:
    api = Api(httpx.ReadTimeout("slow"), _problem(404, "not_found", "There is no such SSH key."))
    api.client().delete("/v1/ssh-keys/ssh_1")
    assert [request.method for request in api.requests] == ["DELETE", "DELETE"]


def test_a_delete_of_nothing_is_refused() -> None:
    api = Api(_problem(404, "not_found", "There is no such SSH key."))
    with pytest.raises(CliError, match="no such SSH key"):
        api.client().delete("/v1/ssh-keys/ssh_1")
    assert [request.method for request in api.requests] == ["DELETE"]


@pytest.mark.parametrize(
    "answer",
    [
        _problem(401, "unauthenticated", f"The key {KEY} is not known."),
        httpx.Response(307, headers={"location": f"https://elsewhere.example/?key={KEY}"}),
        httpx.ConnectError(f"proxy said: Bearer {KEY}"),
        httpx.Response(503, text=KEY),
    ],
)
def test_a_planted_key_shows_in_no_error(answer: httpx.Response | Exception) -> None:
    api = Api(answer)
    with pytest.raises(CliError) as caught:
        api.client().get("/v1/organization", OrganizationView)
    assert KEY not in f"{caught.value} {caught.value.code} {caught.value!r}"
    # Not in what a traceback would add either.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_all_pages_are_read_in_order() -> None:
    api = Api(
        httpx.Response(200, json={"items": [1, 2], "next_cursor": "b"}),
        httpx.Response(200, json={"items": [3], "next_cursor": None}),
    )
    whole = api.client().every("/v1/leases", Numbers, {"state": "ready"})
    assert whole.content == {"items": [1, 2, 3], "next_cursor": None}
    assert whole.value == Numbers((1, 2, 3), None)
    assert [dict(request.url.params) for request in api.requests] == [
        {"limit": "200", "state": "ready"},
        {"limit": "200", "state": "ready", "cursor": "b"},
    ]


def test_a_list_without_an_end_is_refused_rather_than_cut() -> None:
    api = Api(httpx.Response(200, json={"items": [], "next_cursor": "again"}))
    with pytest.raises(CliError, match="narrow it down"):
        api.client().every("/v1/leases", Numbers)
