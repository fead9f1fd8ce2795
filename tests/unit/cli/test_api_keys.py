"""API keys on the command line: a new key is in force before the old one is revoked."""

import io
import json
from pathlib import Path

import httpx
import pytest

from control_plane.cli import config
from control_plane.cli.config import Login
from tests.unit.cli import answers
from tests.unit.cli.stand import KEY, URL, Answer, Stand, Typed

FIRST, CI = (key["id"] for key in answers.API_KEYS["items"][:2])
NEW = answers.ISSUED["secret"]
KNOWN: dict[str, Answer] = {
    "GET /v1/api-keys": answers.API_KEYS,
    "POST /v1/api-keys": httpx.Response(201, json=answers.ISSUED),
    f"DELETE /v1/api-keys/{FIRST}": httpx.Response(204),
    f"DELETE /v1/api-keys/{CI}": httpx.Response(204),
    f"DELETE /v1/api-keys/{answers.ISSUED['key']['id']}": httpx.Response(204),
}


def _logged_in(folder: Path, known: dict[str, Answer] = KNOWN) -> Stand:
    config.store({"HOME": str(folder)}, Login(URL, KEY, "typed"))
    return Stand(folder, known, environ={})


def _calls(stand: Stand) -> list[tuple[str, str, str]]:
    return [
        (request.method, request.url.path.rpartition("/")[2], request.headers["authorization"])
        for request in stand.requests
    ]


def test_rotating_the_key_in_use_changes_the_login_and_then_revokes_the_old_key(tmp_path: Path) -> None:
    stand = _logged_in(tmp_path)
    shown = stand.run("api-key", "rotate", "--yes")
    assert shown.code == 0
    assert NEW not in shown.out + shown.err
    assert config.current({"HOME": str(tmp_path)}).api_key == NEW
    assert _calls(stand) == [
        ("GET", "api-keys", f"Bearer {KEY}"),
        ("POST", "api-keys", f"Bearer {KEY}"),
        ("DELETE", FIRST, f"Bearer {NEW}"),
    ]
    assert json.loads(stand.requests[1].content) == {"name": "first key"}


def test_a_key_from_the_environment_is_printed_and_the_login_stays(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN)
    shown = stand.run("api-key", "rotate", "--yes", "--quiet")
    assert (shown.out, shown.code) == (f"{NEW}\n", 0)
    assert config.stored({"HOME": str(tmp_path)}) is None
    assert _calls(stand)[-1] == ("DELETE", FIRST, f"Bearer {NEW}")


def test_another_key_is_rotated_by_its_name(tmp_path: Path) -> None:
    stand = _logged_in(tmp_path)
    shown = stand.run("api-key", "rotate", "ci runner @ forge", "--yes")
    assert NEW in shown.out
    assert config.current({"HOME": str(tmp_path)}).api_key == KEY
    assert _calls(stand)[-1] == ("DELETE", CI, f"Bearer {KEY}")


def test_a_login_that_cannot_be_changed_keeps_the_old_key_and_revokes_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = _logged_in(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config, "_replace", full)
    shown = stand.run("api-key", "rotate", "--yes")
    assert (shown.code, "No space left on device" in shown.err) == (1, True)
    assert config.current({"HOME": str(tmp_path)}).api_key == KEY
    assert _calls(stand)[-1] == ("DELETE", answers.ISSUED["key"]["id"], f"Bearer {KEY}")


def test_a_secret_that_the_api_does_not_repeat_leaves_the_old_key_in_force(tmp_path: Path) -> None:
    replayed = httpx.Response(201, json=answers.ISSUED | {"secret": None})
    stand = _logged_in(tmp_path, KNOWN | {"POST /v1/api-keys": replayed})
    shown = stand.run("api-key", "rotate", "--yes")
    assert (shown.code, "secret_missing" in shown.err) == (1, True)
    assert [call[0] for call in _calls(stand)] == ["GET", "POST"]


def test_nothing_is_rotated_or_revoked_without_a_yes(tmp_path: Path) -> None:
    for command in ("rotate", "revoke ci"):
        for stdin, code in ((Typed("n\n"), 1), (io.StringIO(), 2)):
            stand = Stand(tmp_path, KNOWN, stdin=stdin)
            assert stand.run("api-key", *command.replace("ci", CI).split()).code == code
            assert [call[0] for call in _calls(stand)] == ["GET"]


def test_a_key_is_revoked_by_its_name_or_the_beginning_of_its_id(tmp_path: Path) -> None:
    for word in ("ci runner @ forge", CI, CI[:16]):
        stand = Stand(tmp_path, KNOWN)
        assert stand.run("api-key", "revoke", word, "--yes").code == 0
        assert _calls(stand)[-1][:2] == ("DELETE", CI)


def test_a_name_of_two_keys_is_refused_with_their_ids(tmp_path: Path) -> None:
    keys = [answers.an_api_key("ci", "01", hint="spk_a...b"), answers.an_api_key("ci", "02")]
    stand = Stand(tmp_path, {"GET /v1/api-keys": {"items": keys}})
    shown = stand.run("api-key", "revoke", "ci", "--yes")
    assert (shown.code, keys[0]["id"] in shown.err, keys[1]["id"] in shown.err) == (1, True, True)


def test_the_role_is_sent(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN)
    stand.run("api-key", "create", "on-call", "--role", "operator")
    assert json.loads(stand.requests[0].content) == {"name": "on-call", "role": "operator"}
