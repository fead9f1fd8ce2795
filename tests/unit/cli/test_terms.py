"""Leases that are committed to for a term, on the command line: what a release costs is accepted by whoever pays it."""

from pathlib import Path

import httpx
import pytest

from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand, Typed

LEASE = f"/v1/leases/{answers.LEASE_ID}"
FEE = answers.COMMITTED["release_fee"]
RELEASED = answers.COMMITTED | {"state": "ending", "release_fee": answers.usd(0)}


def _stand(home: Path, **answered: Answer) -> Stand:
    known: dict[str, Answer] = {f"GET {LEASE}": answers.COMMITTED, f"POST {LEASE}/release": RELEASED}
    return Stand(home, known | {f"POST {LEASE}/release": answer for answer in answered.values()})


def _accepted(stand: Stand) -> list[str | None]:
    return [
        request.url.params.get("accept_fee_usd") for request in stand.requests if request.method == "POST"
    ]


def test_what_a_person_was_shown_is_what_they_accept(tmp_path: Path) -> None:
    stand = _stand(tmp_path)
    stand.stdin = Typed("y\n")
    shown = stand.run("lease", "release", answers.LEASE_ID)
    assert shown.code == 0, shown.err
    assert "a release now costs 174,499.200000001 USD" in " ".join(shown.err.split())
    assert "The rest of the terms is charged at once" in " ".join(shown.err.split())
    assert _accepted(stand) == [FEE["usd"]]


@pytest.mark.parametrize("line", [("--yes", "--accept-fee", "200000"), ("--accept-fee", "200000", "--yes")])
def test_a_program_names_the_most_that_it_accepts(tmp_path: Path, line: tuple[str, ...]) -> None:
    stand = _stand(tmp_path)
    assert stand.run("lease", "release", answers.LEASE_ID, *line).code == 0
    assert _accepted(stand) == ["200000"]


def test_nothing_is_accepted_by_yes_alone_and_the_refusal_says_what_to_add(tmp_path: Path) -> None:
    problem = {"title": "Conflict", "status": 409, "detail": "It costs.", "code": "fee_not_accepted"}
    stand = _stand(tmp_path, refused=httpx.Response(409, json=problem))
    shown = stand.run("lease", "release", answers.LEASE_ID, "--yes")
    assert (shown.code, "--accept-fee USD" in shown.err) == (1, True), shown.err
    assert _accepted(stand) == [None]


def test_a_command_that_nobody_can_answer_says_the_whole_line_that_would_release(tmp_path: Path) -> None:
    stand = _stand(tmp_path)
    shown = stand.run("lease", "release", answers.LEASE_ID)
    line = f"splitplane lease release {answers.LEASE_ID} --yes --accept-fee 174499.200000001"
    assert (shown.code, line in " ".join(shown.err.split())) == (2, True), shown.err
    assert _accepted(stand) == []


def test_a_refusal_about_the_term_names_the_option(tmp_path: Path) -> None:
    problem = {"title": "Unprocessable content", "status": 422, "detail": "Which?", "code": "term_differs"}
    stand = Stand(tmp_path, {"POST /v1/quotes": httpx.Response(422, json=problem)})
    assert "--term DAYS" in stand.run("quote", "h100x8", "--committed").err


def test_whoever_commits_is_told_for_how_long_and_until_when_they_can_still_leave(tmp_path: Path) -> None:
    made = answers.COMMITTED | {"state": "placing", "ready_at": None, "committed_until": None}
    stand = Stand(tmp_path, {"POST /v1/leases": httpx.Response(202, json=made)})
    shown = stand.run("lease", "create", "h100x8", "--committed", "--term", "365", "--no-wait")
    told = " ".join(shown.err.split())
    assert (shown.code, "committed to for 365 days. Until it is ready, releasing it is free." in told) == (
        0,
        True,
    )
