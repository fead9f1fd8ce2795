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
