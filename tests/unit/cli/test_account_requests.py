"""Provider accounts are added and changed from the command line; credentials are in no argument and on no screen."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand, Typed

SECRET = "planted-9f27c1"
ACCOUNTS = "/v1/operator/provider-accounts"
REQUESTS = "/v1/operator/provider-account-requests"
DONE = answers.an_account_request("add")
OPEN = DONE | {"outcome": None, "code": None, "said": None, "finished_at": None}


def _answers(**outcome: Any) -> dict[str, Answer]:
    finished = DONE | outcome
    return {
        f"POST {ACCOUNTS}": OPEN,
        f"POST {ACCOUNTS}/rotate": OPEN,
        f"POST {REQUESTS}": OPEN,
        f"GET {REQUESTS}/{DONE['id']}": finished,
    }


def _stand(tmp_path: Path, **options: Any) -> Stand:
    return Stand(tmp_path, _answers(), **options)


def _sent(stand: Stand) -> Any:
    (posted,) = [request for request in stand.requests if request.method == "POST"]
    return json.loads(posted.content)


def test_a_key_is_asked_for_at_a_terminal_and_shown_nowhere(tmp_path: Path) -> None:
    stand = _stand(tmp_path, stdin=Typed(f"{SECRET}\n"), at_a_terminal=True)
    shown = stand.run("account", "add", "lambda_cloud")
    assert shown.code == 0, shown.err
    assert _sent(stand) == {"account": "lambda_cloud", "settings": {"api_key": SECRET}}
    assert SECRET not in shown.out + shown.err
    assert "lambda_cloud accepts the credentials" in shown.out


def test_settings_come_from_a_private_file_from_a_pipe_and_from_the_command_line_if_they_are_no_secrets(
    tmp_path: Path,
) -> None:
    text = f'token = "{SECRET}"\n'
    path = tmp_path / "local.toml"
    path.write_text(text)
    path.chmod(0o600)
    settings = {"token": SECRET, "url": "http://h:1"}
    for name, stdin, more in (
        ("file", Typed(""), ["--file", str(path)]),
        ("pipe", io.StringIO(text), []),
        ("prompt", Typed(f"{SECRET}\n"), ["--ask", "token"]),
    ):
        with case(name):
            stand = _stand(tmp_path, stdin=stdin)
            shown = stand.run("account", "rotate", "local", "--setting", "url=http://h:1", *more)
            assert shown.code == 0, shown.err
            assert _sent(stand) == {"account": "local", "settings": settings}
            assert stand.requests[0].url.path == f"{ACCOUNTS}/rotate"


def test_a_secret_as_an_argument_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    for setting in (
        f"api_key={SECRET}",
        f"TOKEN={SECRET}",
        f"client_secret={SECRET}",
        f"password={SECRET}",
        SECRET,
    ):
        with case(setting.partition("=")[0]):
            stand = _stand(tmp_path, stdin=Typed(""))
            shown = stand.run("account", "add", "lambda_cloud", "--setting", setting)
            assert (shown.code, stand.requests) == (2, [])
            assert SECRET not in shown.err


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_not_used(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "local.toml"
    path.write_text(f'api_key = "{SECRET}"')
    path.chmod(mode)
    stand = _stand(tmp_path)
    shown = stand.run("account", "add", "lambda_cloud", "--file", str(path))
    assert (shown.code, stand.requests) == (1, [])
    assert "file_exposed" in shown.err


def test_no_error_about_settings_repeats_them(tmp_path: Path) -> None:
    for text in ("", SECRET, f"api_key = {SECRET}", "api_key = 1", f'api_key = "{SECRET}', 'api_key = ""'):
        with case(text):
            stand = _stand(tmp_path, stdin=io.StringIO(text))
            shown = stand.run("account", "add", "lambda_cloud")
            assert (shown.code, stand.requests) == (1, [])
            assert SECRET not in shown.err
            assert "settings_malformed" in shown.err or "setting_empty" in shown.err


def test_an_outcome_that_is_no_yes_ends_the_command_with_its_code(tmp_path: Path) -> None:
    for outcome in (
        answers.REFUSED_CREDENTIALS,
        {"outcome": "unreachable", "code": "no_answer", "said": "No answer."},
    ):
        with case(outcome["code"]):
            stand = Stand(tmp_path, _answers(**outcome))
            shown = stand.run("account", "test", "lambda_cloud", "--json")
            assert shown.code == 1
            problem = json.loads(shown.err)
            assert (problem["code"], problem["detail"]) == (outcome["code"], outcome["said"])


def test_the_command_waits_for_the_reconciler_and_says_when_it_does_not_answer(tmp_path: Path) -> None:
    polls = 0

    def later(_: httpx.Request) -> httpx.Response:
        nonlocal polls
        polls += 1
        return httpx.Response(200, json=DONE if polls == 4 else OPEN)

    known = _answers() | {f"GET {REQUESTS}/{DONE['id']}": later}
    assert Stand(tmp_path, known).run("account", "test", "lambda_cloud").code == 0
    assert polls == 4
    polls = 5
    stand = Stand(tmp_path, known)
    shown = stand.run("account", "drain", "lambda_cloud", "--reason", "x")
    assert shown.code == 1
    assert "no_outcome" in shown.err
    assert sum(stand.hours.waits) < 200


def test_an_account_is_removed_after_a_yes_only(tmp_path: Path) -> None:
    for stdin, code, asked in ((Typed("n\n"), 1, 0), (io.StringIO(), 2, 0), (Typed("y\n"), 0, 1)):
        stand = _stand(tmp_path, stdin=stdin)
        shown = stand.run("account", "remove", "lambda_cloud", "--reason", "closed")
        assert shown.code == code
        assert sum(request.method == "POST" for request in stand.requests) == asked
    assert _sent(stand) == {"account": "lambda_cloud", "verb": "remove", "why": "closed"}
