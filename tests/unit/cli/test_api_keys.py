"""API keys on the command line: with owners and limits, and rotated without a gap."""

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
    f"POST /v1/api-keys/{FIRST}/rotations": httpx.Response(201, json=answers.ISSUED),
    f"POST /v1/api-keys/{CI}/rotations": httpx.Response(201, json=answers.ISSUED),
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


def test_rotating_the_key_in_use_changes_the_login(tmp_path: Path) -> None:
    stand = _logged_in(tmp_path)
    shown = stand.run("api-key", "rotate")
    assert shown.code == 0
    assert NEW not in shown.out + shown.err
    assert "ends in 24 h" in shown.err
    assert config.current({"HOME": str(tmp_path)}).api_key == NEW
    assert _calls(stand) == [("GET", "api-keys", f"Bearer {KEY}"), ("POST", "rotations", f"Bearer {KEY}")]
    assert stand.requests[1].url.path.split("/")[3] == FIRST
    assert json.loads(stand.requests[1].content) == {}


def test_a_key_from_the_environment_is_printed_and_the_login_stays(tmp_path: Path) -> None:
    stand = Stand(tmp_path, KNOWN)
    shown = stand.run("api-key", "rotate", "--quiet")
    assert (shown.out, shown.code) == (f"{NEW}\n", 0)
    assert config.stored({"HOME": str(tmp_path)}) is None


def test_another_key_is_rotated_by_its_name_and_the_overlap_is_sent(tmp_path: Path) -> None:
    stand = _logged_in(tmp_path)
    shown = stand.run("api-key", "rotate", "ci runner @ forge", "--overlap-hours", "0", "--yes")
    assert NEW in shown.out
    assert config.current({"HOME": str(tmp_path)}).api_key == KEY
    assert stand.requests[1].url.path.split("/")[3] == CI
    assert json.loads(stand.requests[1].content) == {"overlap_hours": 0}


def test_a_login_that_cannot_be_changed_shows_the_new_secret_because_the_old_key_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = _logged_in(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config, "_replace", full)
    shown = stand.run("api-key", "rotate")
    assert (shown.code, "No space left on device" in shown.err) == (1, True)
    assert config.current({"HOME": str(tmp_path)}).api_key == KEY
    assert NEW in shown.out


def test_a_secret_that_the_api_does_not_repeat_is_an_error(tmp_path: Path) -> None:
    replayed = httpx.Response(201, json=answers.ISSUED | {"secret": None})
    stand = _logged_in(tmp_path, KNOWN | {f"POST /v1/api-keys/{FIRST}/rotations": replayed})
    shown = stand.run("api-key", "rotate")
    assert (shown.code, "secret_missing" in shown.err) == (1, True)


def test_nothing_is_rotated_or_revoked_without_a_yes(tmp_path: Path) -> None:
    for command in ("rotate --overlap-hours 0", "revoke ci"):
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


def test_owner_limits_and_end_of_a_key_are_sent(tmp_path: Path) -> None:
    accounts: Answer = answers.SERVICE_ACCOUNTS
    stand = Stand(tmp_path, KNOWN | {"GET /v1/service-accounts": accounts})
    options = ["--owner", "ci-runner", "--scope", "leases.read", "--project", "research", "--days", "90"]
    assert stand.run("api-key", "create", "nightly", *options).code == 0
    sent = json.loads(stand.requests[1].content)
    assert sent.pop("expires_at").startswith("2027-02-18T")
    assert sent == {
        "name": "nightly",
        "subject": answers.SERVICE_ACCOUNTS["items"][1]["id"],
        "scopes": ["leases.read"],
        "projects": ["research"],
    }


@pytest.mark.parametrize("days", ["100000", "4000000", "9999999999"])
def test_a_key_that_would_end_too_late_says_so_and_is_not_asked_for(tmp_path: Path, days: str) -> None:
    stand = _logged_in(tmp_path)
    refused = stand.run("api-key", "create", "ci", "--days", days)
    assert refused.code == 2
    assert "2200" in refused.err
    assert stand.requests == []
