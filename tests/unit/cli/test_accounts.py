"""Provider accounts on the command line: a permit to terminate machines is asked for twice."""

import io
import json
from pathlib import Path

import pytest

from tests.unit.cli import answers
from tests.unit.cli.stand import Stand, Typed

PERMIT = "POST /v1/operator/termination-permits"
KNOWN = {"GET /v1/operator/provider-accounts": {"items": [answers.an_account("lambda_cloud")]}}


def test_a_termination_permit_is_confirmed_by_a_person(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN | {PERMIT: answers.PERMIT}, stdin=Typed("y\n"))
    shown = stand.run(
        "account", "permit-terminations", "lambda_cloud", "--reason", "slices", "--minutes", "30"
    )
    assert shown.code == 0
    assert "lambda_cloud" in shown.err
    assert "30 min" in shown.err
    asked = json.loads(stand.requests[-1].content)
    assert asked == {"account": "lambda_cloud", "why": "slices", "minutes": 30}


def test_a_permit_for_missing_machines_names_the_freeze_and_the_machines_that_were_seen(
    tmp_path: Path,
) -> None:
    since = answers.at(minutes=7)
    frozen = answers.an_account("lambda_cloud", frozen_since=since, frozen_why="odd", frozen_missing=12)
    listed = {"GET /v1/operator/provider-accounts": {"items": [frozen]}}
    command = ("account", "permit-terminations", "lambda_cloud", "--missing", "--reason", "hall")
    stand = Stand(tmp_path, listed | {PERMIT: answers.MISSING_PERMIT}, stdin=Typed("y\n"))
    shown = stand.run(*command)
    assert (shown.code, "Give up 12 machines that the list of lambda_cloud misses?" in shown.err) == (0, True)
    asked = json.loads(stand.requests[-1].content)
    assert asked["missing"] == {"frozen_since": since, "machines": 12}
    stand = Stand(tmp_path, KNOWN, stdin=Typed("y\n"))
    shown = stand.run(*command, "--yes")
    assert shown.code == 1
    assert "lambda_cloud is not frozen: no machine is missing there." in shown.err
    assert [request.method for request in stand.requests] == ["GET"]


@pytest.mark.parametrize(("stdin", "code"), [(Typed("n\n"), 1), (Typed(""), 1), (io.StringIO(), 2)])
def test_without_a_yes_nothing_is_permitted(stdin: io.StringIO, code: int, tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN | {PERMIT: answers.PERMIT}, stdin=stdin)
    assert stand.run("account", "permit-terminations", "lambda_cloud", "--reason", "slices").code == code
    assert [request.method for request in stand.requests] == ["GET"]


def test_an_account_that_does_not_exist_is_said_before_anything_is_confirmed(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN, stdin=Typed("y\n"))
    assert stand.run("account", "limits", "nope").code == 1
    shown = stand.run("account", "permit-terminations", "nope", "--reason", "x")
    assert shown.code == 1
    assert "There is no provider account 'nope'." in shown.err
    assert "Terminate every machine" not in shown.err
    assert "see: splitplane account list" in shown.err
