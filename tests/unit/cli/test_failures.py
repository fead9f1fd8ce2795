"""A failure is never taken for an answer: nothing on standard output, an error on standard error, as JSON with --json."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, a_lease
from tests.unit.cli.stand import URL, Answer, Stand

LISTS = (
    "skus", "offers", "lease list", "ssh-key list", "api-key list", "project list", "organization list", "usage", "loops",
    "orphan list", "account list", "proof record",
)  # fmt: skip


class All(dict[str, Answer]):
    """One answer to everything."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def get(self, key: str, default: Any = None) -> Answer:
        return self.answer


def _refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("[Errno 111] Connection refused")


AWAY: dict[str, Answer] = {
    "unreachable": _refuse,
    "http_503": httpx.Response(503),
    "not_the_api": httpx.Response(200, text="<html>"),
}


def _error(stderr: str) -> dict[str, Any]:
    """The error, which is the last line."""
    error: dict[str, Any] = json.loads(stderr.splitlines()[-1])
    return error


def test_a_list_that_cannot_be_had_is_an_error_and_never_empty(tmp_path: Path) -> None:
    for code, answer in AWAY.items():
        for command in LISTS:
            with case(code, command):
                shown = Stand(tmp_path, All(answer)).run(*command.split())
                assert (shown.out, shown.code) == ("", 3)
                assert f"error: {code}: " in shown.err
                shown = Stand(tmp_path, All(answer)).run(*command.split(), "--json")
                assert (shown.out, shown.code) == ("", 3)
                assert _error(shown.err)["code"] == code


def test_a_list_without_its_items_is_not_an_empty_list(tmp_path: Path) -> None:
    for command in LISTS:
        for content in ({}, {"items": None}, {"error": "maintenance"}):
            with case(command, content):
                shown = Stand(tmp_path, All(httpx.Response(200, json=content))).run(
                    *command.split(), "--json"
                )
                assert (shown.out, shown.code) == ("", 3)


def test_a_watch_of_an_api_that_is_away_shows_no_empty_table(tmp_path: Path) -> None:
    for answer in AWAY.values():
        for words in (["lease", "watch", LEASE_ID], ["lease", "watch", "train-1"]):
            for form in ([], ["--json"]):
                shown = Stand(tmp_path, All(answer)).run(*words, *form)
                assert (shown.out, shown.code) == ("", 3)


def test_a_watch_that_loses_the_api_shows_no_list_at_all(tmp_path: Path) -> None:
    """It knew the lease, and then the API went away for good."""
    known: dict[str, Answer] = {
        "GET /v1/leases": {"items": [a_lease("starting")], "next_cursor": None},
        f"GET /v1/leases/{LEASE_ID}/events": _refuse,
        f"GET /v1/leases/{LEASE_ID}": _refuse,
    }
    for form in ([], ["--json"]):
        stand = Stand(tmp_path, known)
        shown = stand.run("lease", "watch", "train-1", "--timeout", "5", *form)
        assert (shown.out, shown.code) == ("", 3)
        assert "cannot be reached: Connection refused. Retrying for up to 5 s." in shown.err


def test_an_error_of_the_api_is_its_problem_document_with_a_hint(tmp_path: Path) -> None:
    problem = {
        "type": "urn:splitplane:error:invalid_request",
        "title": "Unprocessable content",
        "status": 422,
        "detail": "The request is malformed.",
        "code": "invalid_request",
        "request_id": "req_1",
        "errors": [{"field": "sku", "detail": "is not a SKU"}],
        "only_a_newer_api_knows": 1,
    }
    refused = httpx.Response(422, json=problem)
    shown = Stand(tmp_path, {"POST /v1/quotes": refused}).run("quote", "H", "--json")
    assert (shown.out, shown.code) == ("", 1)
    assert _error(shown.err) == problem | {"hint": "SKU is a name as `splitplane skus` shows it"}


def test_a_hint_about_the_form_of_a_value_is_given_only_where_the_form_is_wrong(tmp_path: Path) -> None:
    for code, field, status in (
        ("name_taken", "name", 409),
        ("price_above_ceiling", "price_usd_per_hour_max", 422),
    ):
        problem = {"code": code, "detail": "It is so.", "errors": [{"field": field, "detail": "is so"}]}
        known: dict[str, Answer] = {"POST /v1/projects": httpx.Response(status, json=problem)}
        shown = Stand(tmp_path, known).run("project", "create", "research")
        assert shown.err == f"error: {code}: It is so.\n", shown.err


def test_what_to_type_next_is_said_once(tmp_path: Path) -> None:
    nothing: dict[str, Answer] = {
        "GET /v1/leases": {"items": [], "next_cursor": None},
        "GET /v1/api-keys": {"items": [], "next_cursor": None},
        "GET /v1/operator/organizations": {"items": [], "next_cursor": None},
    }
    for command, see in (
        ("lease show nobody", "splitplane lease list --all"),
        ("api-key revoke nobody --yes", "splitplane api-key list"),
        ("organization show nobody", "splitplane organization list"),
    ):
        with case(command):
            assert Stand(tmp_path, nothing).run(*command.split()).err.count(see) == 1


def test_an_error_of_our_own_has_the_same_shape(tmp_path: Path) -> None:
    stand = Stand(tmp_path, All(_refuse))
    cases: dict[str, tuple[Stand, list[str], int]] = {
        "unreachable": (stand, ["skus"], 3),
        "usage": (stand, ["skus", "--colour"], 2),
        "not_logged_in": (Stand(tmp_path, environ={}), ["skus"], 1),
        "api_key_unknown": (
            Stand(tmp_path, {"GET /v1/api-keys": answers.API_KEYS}),
            ["api-key", "revoke", "nobody"],
            1,
        ),
    }
    for code, (at, command, exit_code) in cases.items():
        with case(code):
            shown = at.run(*command, "--json")
            error = _error(shown.err)
            assert {"type", "title", "detail", "code"} <= error.keys()
            assert (error["code"], shown.code, shown.out) == (code, exit_code, "")
            assert error["type"] == f"urn:splitplane:error:{code}"


def test_all_errors_of_a_command_that_does_several_things_are_in_one_object(tmp_path: Path) -> None:
    other = f"le_{'0' * 32}"
    gone = httpx.Response(404, json={"detail": "No such lease.", "code": "lease_not_found"})
    known: dict[str, Answer] = {}
    for lease_id in (LEASE_ID, other):
        known |= {
            f"GET /v1/leases/{lease_id}": a_lease(id=lease_id),
            f"POST /v1/leases/{lease_id}/release": gone,
        }
    shown = Stand(tmp_path, known).run("lease", "release", LEASE_ID, other, "--yes", "--json")
    error = _error(shown.err)
    assert [part["code"] for part in (error, *error["others"])] == ["lease_not_found"] * 2
    shown = Stand(tmp_path, known).run("lease", "release", LEASE_ID, other, "--yes")
    assert shown.err.count("error: lease_not_found: No such lease.") == 2


def test_the_timeout_bounds_how_long_a_command_waits(tmp_path: Path) -> None:
    for seconds, least in (("5", 2), ("600", 500)):
        stand = Stand(tmp_path, All(_refuse))
        assert stand.run("skus", "--timeout", seconds).code == 3
        assert least < stand.hours.now <= float(seconds)
    for wrong in ("0", "-1", "soon", "1e9", "99999999"):
        assert Stand(tmp_path, All(_refuse)).run("skus", f"--timeout={wrong}").code == 2


def test_an_outage_is_reported_even_when_remarks_are_not_wanted(tmp_path: Path) -> None:
    shown = Stand(tmp_path, All(_refuse)).run("lease", "list", "--quiet", "--timeout", "10")
    assert shown.err.startswith(f"{URL} cannot be reached: Connection refused. Retrying for up to 10 s.\n")
