"""Requests that fail, are repeated, and never show the key."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from control_plane.cli.client import TRIES_OF_A_FAULT_MAX, TRY_SECONDS, Client
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, Exit
from control_plane.wire.catalogue import SkuList
from control_plane.wire.common import Name, Request, View
from control_plane.wire.organizations import OrganizationView
from tests.support.cases import case
from tests.unit.cli.stand import Hours

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
        self.hours = Hours()
        self.reports: list[tuple[float, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self) -> Client:
        login = Login("http://127.0.0.1:8000", KEY, "stored in config.toml")
        return Client(
            login,
            transport=httpx.MockTransport(self),
            clock=self.hours.clock(),
            report=lambda sentence: self.reports.append((self.hours.now, sentence)),
        )


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
    assert api.hours.waits == [0.5, 1.0]


def test_two_posts_have_two_keys() -> None:
    api = Api(httpx.Response(202, json={"id": "le_1"}))
    client = api.client()
    client.post("/v1/leases", Made, Order())
    client.post("/v1/leases", Made, Order())
    assert len(_keys(api)) == 2


def test_an_api_that_is_away_is_tried_for_a_minute_and_then_given_up() -> None:
    api = Api(httpx.ConnectError("[Errno 111] Connection refused"))
    with pytest.raises(CliError, match="Connection refused") as caught:
        api.client().post("/v1/leases", Made, Order())
    assert TRY_SECONDS - 11 < api.hours.now <= TRY_SECONDS
    assert len(_keys(api)) == 1
    assert (caught.value.code, caught.value.exit_code) == ("unreachable", Exit.NETWORK)


def test_an_internal_error_is_repeated_a_few_times_only() -> None:
    api = Api(_problem(500, "internal", "Something broke."))
    with pytest.raises(CliError):
        api.client().get("/v1/skus", SkuList)
    assert len(api.requests) == TRIES_OF_A_FAULT_MAX


def _refusing(api: Api) -> httpx.ConnectError:
    return httpx.ConnectError("[Errno 111] Connection refused")


def _hanging(api: Api) -> httpx.ConnectTimeout:
    api.hours.spend(3.0)
    return httpx.ConnectTimeout("timed out")


def _silent(api: Api) -> httpx.ReadTimeout:
    api.hours.spend(30.0)
    return httpx.ReadTimeout("timed out")


def _failing(api: Api) -> httpx.Response:
    return httpx.Response(503)


class Away(Api):
    """Answers as `how` says, and from `back` seconds on with an empty list."""

    def __init__(self, how: Callable[["Away"], httpx.Response | Exception], *, back: float = 1e9) -> None:
        super().__init__(httpx.Response(200, json={"items": []}))
        self.how = how
        self.back = back

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.hours.now >= self.back:
            return super().__call__(request)
        answer = self.how(self)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_an_outage_is_reported_once_within_five_seconds_with_its_reason() -> None:
    for how, reason in (
        (_refusing, "cannot be reached: Connection refused. Retrying for up to 60 s"),
        (_hanging, "cannot be reached: it did not answer in time. Retrying"),
        (_silent, "has not answered for 4 s. Waiting, and then retrying, for up to 60 s"),
        (_failing, "answered 503 (http_503). Retrying"),
    ):
        with case(how.__name__):
            api = Away(how)
            with pytest.raises(CliError):
                api.client().get("/v1/skus", SkuList)
            assert len(api.reports) == 1
            if how is not _silent:  # The test's clock jumps over the four seconds of a silent request.
                assert api.reports[0][0] < 5
            assert reason in api.reports[0][1]
            assert api.hours.now <= TRY_SECONDS + 3


def test_an_outage_that_ends_is_over_for_the_person_too() -> None:
    api = Away(_refusing, back=9)
    assert api.client().get("/v1/skus", SkuList).value.items == ()
    assert [sentence for _, sentence in api.reports][1:] == ["http://127.0.0.1:8000 answers again."]


def test_a_restart_of_a_second_is_not_reported() -> None:
    api = Away(_refusing, back=1)
    api.client().get("/v1/skus", SkuList)
    assert api.reports == []


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
    assert api.hours.waits == [3.0, 10.0, 2.0]


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


def test_a_list_that_a_newer_api_divides_is_read_to_its_end() -> None:
    api = Api(
        httpx.Response(200, json={"items": [1, 2], "next_cursor": "b"}),
        httpx.Response(200, json={"items": [3], "next_cursor": None}),
    )
    assert api.client().whole("/v1/skus", Numbers).value == Numbers((1, 2, 3), None)
    assert [dict(request.url.params) for request in api.requests] == [{}, {"cursor": "b"}]


def test_a_list_without_an_end_is_refused_rather_than_cut() -> None:
    api = Api(httpx.Response(200, json={"items": [], "next_cursor": "again"}))
    with pytest.raises(CliError, match="narrow it down"):
        api.client().every("/v1/leases", Numbers)
