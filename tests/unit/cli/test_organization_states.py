"""Suspending, closing and deleting organizations on the command line: what cannot be undone is confirmed by its name."""

import io
import json
from pathlib import Path

import pytest

from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand, Typed

FRESH = answers.OTHER_ORGANIZATION
ORGANIZATIONS = "GET /v1/operator/organizations"
WAYS = ("suspensions", "resumptions", "closures", "deletions")
KNOWN: dict[str, Answer] = {
    ORGANIZATIONS: answers.ORGANIZATIONS,
    **{f"POST /v1/operator/organizations/{FRESH['id']}/{way}": answers.CLOSURE for way in WAYS},
}
ASKED = [("suspend", "--end-leases"), ("close",), ("delete",)]


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_what_cannot_be_undone_is_confirmed_by_the_organization_s_name(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    stand = Stand(tmp_path, KNOWN, stdin=Typed("fresh\n"))
    command, *flags = words
    shown = stand.run("organization", command, "fresh", "--reason", "unpaid", *flags)
    assert shown.code == 0
    assert "Type its name to confirm" in shown.err
    assert json.loads(stand.requests[-1].content)["reason"] == "unpaid"


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_without_the_name_nothing_is_done(words: tuple[str, ...], tmp_path: Path) -> None:
    command, *flags = words
    for stdin, code in ((Typed("y\n"), 1), (Typed("Fresh\n"), 1), (Typed(""), 1), (io.StringIO(), 2)):
        stand = Stand(tmp_path, KNOWN, stdin=stdin)
        shown = stand.run("organization", command, "fresh", "--reason", "unpaid", *flags)
        assert shown.code == code, repr(stdin)
        assert [request.method for request in stand.requests] == ["GET"]


def test_a_script_confirms_with_a_flag(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN, stdin=io.StringIO())
    assert stand.run("organization", "close", "fresh", "--reason", "unpaid", "--yes").code == 0
    assert stand.requests[-1].url.path.endswith("/closures")


def test_what_can_be_taken_back_is_not_asked_for_twice(tmp_path: Path) -> None:
    for command, way in (("suspend", "suspensions"), ("resume", "resumptions")):
        stand = Stand(tmp_path, KNOWN, stdin=io.StringIO())
        assert stand.run("organization", command, "fresh", "--reason", "unpaid").code == 0
        assert stand.requests[-1].url.path.endswith(f"/{way}")
        assert json.loads(stand.requests[-1].content) == {"reason": "unpaid"}


def test_a_closure_says_what_it_ended(tmp_path: Path) -> None:
    shown = Stand(tmp_path, KNOWN).run("organization", "close", "fresh", "--reason", "unpaid", "--yes")
    for words in ("4 ended: 3 ready, 1 waiting", "1 ending already", "2 refused from now on", "closing"):
        assert words in shown.out


def test_organizations_are_listed_by_state_and_name(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN)
    assert (
        stand.run("organization", "list", "--state", "closing", "--state", "closed", "--name", "fr").code == 0
    )
    query = stand.requests[-1].url.params
    assert (query.get_list("state"), query["name"]) == (["closing", "closed"], "fr")
    assert Stand(tmp_path, KNOWN).run("organization", "list", "--state", "gone").code == 2
