"""Projects on the command line: what is sent, and what is said of a project that does not exist."""

import json
from pathlib import Path

import httpx

from tests.unit.cli import answers
from tests.unit.cli.stand import Stand

UNKNOWN = httpx.Response(
    422, json={"code": "project_unknown", "detail": "There is no project called 'reserch'."}
)


def test_a_project_is_created_once_however_often_the_request_is_repeated(tmp_path: Path) -> None:
    replies = iter([httpx.Response(503), httpx.Response(201, json=answers.PROJECTS["items"][1])])
    stand = Stand(tmp_path, {"POST /v1/projects": lambda _: next(replies)})
    assert stand.run("project", "create", "research").code == 0
    first, again = stand.requests
    assert json.loads(again.content) == {"name": "research"}
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]


def test_leases_are_listed_by_project(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/leases": {"items": [], "next_cursor": None}})
    stand.run("lease", "list", "--project", "research", "--all")
    assert dict(stand.requests[0].url.params) == {"limit": "200", "project": "research"}


def test_a_project_that_does_not_exist_is_answered_with_where_to_look(tmp_path: Path) -> None:
    stand = Stand(
        tmp_path,
        {
            "GET /v1/leases": UNKNOWN,
            "GET /v1/ssh-keys": answers.SSH_KEYS,
            "POST /v1/leases": UNKNOWN,
        },
    )
    for command in (("lease", "list"), ("lease", "create", "h100x8")):
        shown = stand.run(*command, "--project", "reserch")
        assert (shown.code, shown.out) == (1, "")
        assert "There is no project called 'reserch'." in shown.err
        assert "see: splitplane project list" in shown.err


def test_usage_and_the_bill_are_asked_for_by_project(tmp_path: Path) -> None:
    stand = Stand(
        tmp_path,
        {
            "GET /v1/usage": {"items": [], "next_cursor": None},
            "GET /v1/usage.csv": httpx.Response(200, text="charge_id\r\n"),
            "GET /v1/bill": answers.BILL,
        },
    )
    for command in ("usage", "usage --csv", "bill"):
        for words, sent in ((["--project", "research"], "research"), ([], None)):
            assert stand.run(*command.split(), *words).code == 0
            assert stand.requests[-1].url.params.get("project") == sent, command


def test_a_project_is_shown_and_renamed_by_a_name_that_is_quoted_in_the_path(tmp_path: Path) -> None:
    project = answers.PROJECTS["items"][1]
    stand = Stand(tmp_path, {"GET /v1/projects/a b@c": project, "POST /v1/projects/a b@c/rename": project})
    assert stand.run("project", "show", "a b@c").code == 0
    assert stand.run("project", "rename", "a b@c", "research").code == 0
    assert json.loads(stand.requests[-1].content) == {"name": "research"}
    assert stand.requests[-1].url.raw_path == b"/v1/projects/a%20b%40c/rename"


def test_an_empty_argument_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    for words, said in (
        (["lease", "list", "--project", ""], "--project has an empty value"),
        (["lease", "list", "--project="], "--project has an empty value"),
        (["usage", "--since", ""], "--since has an empty value"),
        (["bill", "--project", ""], "--project has an empty value"),
        (["offers", "--gpu", ""], "--gpu has an empty value"),
        (["lease", "show", ""], "an argument is empty"),
    ):
        shown = stand.run(*words)
        assert (shown.code, shown.out) == (2, ""), words
        assert said in shown.err, words
    assert stand.requests == []
