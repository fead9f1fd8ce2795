"""Users, service accounts, roles and environments on the command line."""

import json
from pathlib import Path

import httpx

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand

ACCOUNT = answers.SERVICE_ACCOUNTS["items"][1]["id"]
BINDING = answers.ROLE_BINDINGS["items"][1]
DONE = httpx.Response(204)
KNOWN: dict[str, Answer] = answers.NAMES | {
    "GET /v1/role-bindings": answers.ROLE_BINDINGS,
    "POST /v1/role-bindings": httpx.Response(201, json=BINDING),
    "GET /v1/projects/research/environments": answers.ENVIRONMENTS,
    "POST /v1/projects/research/environments": httpx.Response(201, json=answers.ENVIRONMENTS["items"][1]),
    f"POST /v1/users/{answers.USER}/suspend": answers.USERS["items"][0],
    f"GET /v1/users/{answers.USER}": answers.USERS["items"][0],
    f"DELETE /v1/users/{answers.USER}": DONE,
    f"POST /v1/service-accounts/{ACCOUNT}/resume": answers.SERVICE_ACCOUNTS["items"][1],
    f"DELETE /v1/service-accounts/{ACCOUNT}": DONE,
    f"DELETE /v1/role-bindings/{BINDING['id']}": DONE,
}


def test_a_user_is_named_by_its_email_and_a_service_account_by_its_name(tmp_path: Path) -> None:
    for command, path in (
        ("user suspend ADA@example.com", f"/v1/users/{answers.USER}/suspend"),
        (f"user show {answers.USER}", f"/v1/users/{answers.USER}"),
        ("user remove ada@example.com --yes", f"/v1/users/{answers.USER}"),
        ("service-account resume ci-runner", f"/v1/service-accounts/{ACCOUNT}/resume"),
        ("service-account remove ci-runner --yes", f"/v1/service-accounts/{ACCOUNT}"),
        ("role revoke rb_019aa10 --yes", f"/v1/role-bindings/{BINDING['id']}"),
    ):
        with case(command):
            stand = Stand(tmp_path, KNOWN)
            shown = stand.run(*command.split())
            assert (shown.code, shown.err) == (0, "")
            assert stand.requests[-1].url.path == path


def test_nobody_is_removed_without_a_yes(tmp_path: Path) -> None:
    for command in (
        "user remove ada@example.com",
        "service-account remove ci-runner",
        "role revoke rb_019aa10",
    ):
        with case(command):
            stand = Stand(tmp_path, KNOWN)
            assert stand.run(*command.split()).code == 2
            assert {request.method for request in stand.requests} == {"GET"}


def test_a_role_is_granted_at_the_scope_that_is_named(tmp_path: Path) -> None:
    prod = answers.ENVIRONMENTS["items"][1]["id"]
    for options, scope in (
        ("", {"kind": "organization"}),
        ("--project research", {"kind": "project", "id": "research"}),
        ("--project research --environment prod", {"kind": "environment", "id": prod}),
        ("--platform", {"kind": "platform"}),
    ):
        with case(options):
            stand = Stand(tmp_path, KNOWN)
            assert stand.run("role", "grant", "viewer", "ci-runner", *options.split()).code == 0
            [sent] = [json.loads(request.content) for request in stand.requests if request.method == "POST"]
            assert sent == {"subject": ACCOUNT, "role": "viewer", "scope": scope}


def test_a_scope_that_cannot_be_meant_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    for options in ("--platform --project research", "--environment prod"):
        stand = Stand(tmp_path, KNOWN)
        shown = stand.run("role", "grant", "viewer", answers.USER, *options.split())
        assert (shown.code, stand.requests) == (2, []), options


def test_somebody_unknown_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    for command, code in (
        ("role grant viewer nobody", "subject_unknown"),
        ("user show nobody@example.com", "subject_unknown"),
        ("role revoke rb_ --yes", "role_binding_unknown"),
        ("role grant viewer ci-runner --project research --environment staging", "environment_unknown"),
    ):
        with case(command):
            shown = Stand(tmp_path, KNOWN).run(*command.split())
            assert (shown.code, f"error: {code}:" in shown.err) == (1, True), shown.err


def test_ids_alone_are_printed_when_asked_quietly(tmp_path: Path) -> None:
    for command, lines in (
        ("user list -q", 2),
        ("service-account list -q", 2),
        ("role list -q", 2),
        ("environment list --project research -q", 2),
        ("environment create prod --project research -q", 1),
        ("user remove ada@example.com --yes -q", 1),
    ):
        with case(command):
            shown = Stand(tmp_path, KNOWN).run(*command.split())
            assert len(shown.out.splitlines()) == lines


def test_a_scope_is_shown_by_its_names_and_by_its_ids_where_these_cannot_be_read(tmp_path: Path) -> None:
    prod, lease = answers.ENVIRONMENTS["items"][1]["id"], answers.LEASE_ID
    of_research = answers.a_scope("environment", project_id=answers.RESEARCH_ID, environment_id=prod)
    of_lease = of_research | {"kind": "lease", "lease_id": lease}
    known = KNOWN | {f"GET /v1/leases/{lease}": answers.a_lease(name="train-1")}
    for scope, words, ids in (
        (answers.a_scope(), "organization", "organization"),
        (of_research, "environment research @ heliotrope/prod", f"environment {answers.RESEARCH_ID}/{prod}"),
        (of_lease, "lease train-1", f"lease {lease}"),
    ):
        with case(scope["kind"]):
            bindings = {"items": [BINDING | {"scope": scope}], "next_cursor": None}
            shown = (
                Stand(tmp_path, known | {"GET /v1/role-bindings": bindings}, width=200)
                .run("role", "list")
                .out
            )
            assert words in shown
            assert "ada@example.com" in shown
            denied: dict[str, Answer] = dict.fromkeys(
                known, httpx.Response(403, json={"code": "permission_denied"})
            )
            denied |= {"GET /v1/role-bindings": bindings}
            shown = Stand(tmp_path, denied, width=200).run("role", "list").out
            assert ids in shown
            assert answers.USER in shown


def test_a_secret_is_shown_without_a_request_that_could_fail(tmp_path: Path) -> None:
    known: dict[str, Answer] = {
        "GET /v1/service-accounts": answers.SERVICE_ACCOUNTS,
        "POST /v1/api-keys": answers.ISSUED,
    }
    stand = Stand(tmp_path, known)
    assert answers.ISSUED["secret"] in stand.run("api-key", "create", "ci", "--owner", "ci-runner").out
    assert stand.requests[-1].method == "POST"


def test_a_session_is_ended_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    ids = [session["id"] for session in answers.SESSIONS["items"]]
    known = (
        KNOWN | {"GET /v1/sessions": answers.SESSIONS} | {f"DELETE /v1/sessions/{each}": DONE for each in ids}
    )
    for word in (ids[1], ids[1][:-1]):
        stand = Stand(tmp_path, known)
        expected = 0 if word == ids[1] else 1
        assert stand.run("session", "revoke", word).code == expected, word
    alone = {"items": [answers.SESSIONS["items"][0]], "next_cursor": None}
    stand = Stand(tmp_path, known | {"GET /v1/sessions": alone})
    assert stand.run("session", "revoke", "ses_019aa0", "-q").out == f"{ids[0]}\n"
    assert "error: session_unknown" in stand.run("session", "revoke", "ses_").err
