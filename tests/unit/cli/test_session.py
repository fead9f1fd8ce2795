"""Logging in and out: the key is checked before it is kept, and shows nowhere."""

import io
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import httpx
import pytest

from control_plane.cli import config
from control_plane.cli.config import Holder, Login, Session
from control_plane.cli.signing_in import SessionAuth
from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import NOW
from tests.unit.cli.stand import KEY, URL, Stand, Typed

WHO = {"GET /v1/me": answers.ME, "GET /v1/organization": answers.ORGANIZATION}
REFUSED = httpx.Response(
    401,
    json={
        "type": "t",
        "title": "t",
        "status": 401,
        "detail": "The API key is not valid.",
        "code": "unauthenticated",
    },
)


def _stand(home: Path, stdin: io.StringIO, **answer: httpx.Response) -> Stand:
    known = {"GET /v1/me": answer["who"]} if answer else WHO
    return Stand(home, known, environ={}, stdin=stdin)


def test_a_piped_key_is_checked_and_stored(tmp_path: Path) -> None:
    stand = _stand(tmp_path, io.StringIO(f"{KEY}\n"))
    shown = stand.run("login", "--url", URL, "--key-stdin")
    assert shown.code == 0
    assert "Heliotrope Labs" in shown.out
    assert [str(request.url) for request in stand.requests] == [
        f"{URL}/v1/me",
        f"{URL}/v1/organization",
    ]
    path = config.config_path({"HOME": str(tmp_path)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stand.run("whoami").code == 0


def test_a_typed_key_is_read_without_echo(tmp_path: Path) -> None:
    assert _stand(tmp_path, Typed(f"{KEY}\n")).run("login", "--key", "--url", URL).code == 0


def test_a_refused_key_is_not_stored_and_not_shown(tmp_path: Path) -> None:
    shown = _stand(tmp_path, io.StringIO(f"{KEY}\n"), who=REFUSED).run("login", "--url", URL, "--key-stdin")
    assert shown.code == 1
    assert "error: unauthenticated: The API key is not valid." in shown.err
    assert KEY not in shown.out + shown.err
    assert config.stored({"HOME": str(tmp_path)}) is None


def test_without_a_terminal_to_type_at_the_command_fails_instead_of_waiting(tmp_path: Path) -> None:
    shown = _stand(tmp_path, io.StringIO()).run("login", "--key", "--url", URL)
    assert (shown.code, "--key-stdin" in shown.err) == (2, True)


@pytest.mark.parametrize("typed", ["", " \n", "two words\n", "spk_\x1b[2J\n", "k" * 201, "ключ\n"])
def test_an_invalid_key_is_sent_nowhere(tmp_path: Path, typed: str) -> None:
    stand = _stand(tmp_path, io.StringIO(typed))
    shown = stand.run("login", "--url", URL, "--key-stdin")
    assert (shown.code, stand.requests) == (2, [])


def test_a_login_replaces_one_that_is_damaged(tmp_path: Path) -> None:
    path = config.config_path({"HOME": str(tmp_path)})
    path.parent.mkdir(parents=True)
    path.write_text("not toml =")
    assert _stand(tmp_path, io.StringIO(f"{KEY}\n")).run("login", "--key-stdin", "--url", URL).code == 0


def test_a_key_from_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    for mode, code in ((0o644, 1), (0o600, 0)):
        path.chmod(mode)
        with path.open() as file:
            stand = _stand(tmp_path, cast("io.StringIO", file))
            shown = stand.run("login", "--url", URL, "--key-stdin")
        assert (shown.code, "chmod 600" in shown.err) == (code, code == 1)
        assert bool(stand.requests) is (code == 0)


def test_logging_out_forgets_the_key(tmp_path: Path) -> None:
    stand = _stand(tmp_path, io.StringIO(f"{KEY}\n"))
    stand.run("login", "--url", URL, "--key-stdin")
    assert stand.run("logout").code == 0
    assert "Not logged in" in stand.run("whoami").err


def test_a_key_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    for arguments in (["login", KEY], ["login", KEY, "--json"], ["lease", KEY]):
        shown = _stand(tmp_path, io.StringIO()).run(*arguments)
        assert shown.code == 2
        assert KEY not in shown.err
        assert "Do not put an API key there" in shown.err


def test_no_api_is_exit_code_3(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    shown = Stand(tmp_path, {"GET /v1/me": refuse}).run("whoami")
    assert shown.code == 3
    assert shown.err.splitlines()[1].startswith(
        f"error: unreachable: Cannot reach {URL}: connection refused."
    )


def test_a_profile_with_another_login_is_replaced_only_when_it_is_named(tmp_path: Path) -> None:
    own = Holder(answers.ME["organization_id"], answers.ME["organization"], answers.ME["subject"])
    for before, taken in (
        (Login(URL, "spk_before", "", holder=own), False),
        (Login("https://b.example", "spk_before", "", holder=own), True),
        (Login(URL, "spk_before", "", holder=replace(own, organization_id="org_2")), True),
        (Login(URL, "spk_before", "", holder=replace(own, subject="sa_2")), True),
        (Login(URL, "", "", holder=own, session=Session("ses_1", "spr_1", "eyJ", 0.0)), True),
    ):
        environ = {"HOME": str(tmp_path)}
        config.forget(environ)
        config.store(environ, replace(before, profile="heliotrope-labs"))
        with case(str(before)):
            shown = _stand(tmp_path, io.StringIO(f"{KEY}\n")).run("login", "--url", URL, "--key-stdin")
            assert (shown.code, "error: profile_taken" in shown.err) == (int(taken), taken), shown.err
            held = config.stored(environ)
            assert held is not None
            assert (held.api_key == KEY) is not taken
        shown = _stand(tmp_path, io.StringIO(f"{KEY}\n")).run(
            "login", "--url", URL, "--key-stdin", "--profile", "heliotrope-labs"
        )
        assert shown.code == 0


# Signing in with a browser


TOKENS = {
    "access_token": "eyJ.planted-access.token",
    "refresh_token": "spr_planted-refresh",
    "expires_in": 900,
    "session": "ses_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "organization": "org_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
}
DEVICE = {
    "device_code": "spd_planted-device",
    "user_code": "BCDF-GHJK",
    "verification_uri": f"{URL}/device",
    "verification_uri_complete": f"{URL}/device?user_code=BCDF-GHJK",
    "expires_in": 600,
    "interval": 3,
}


class Issuing:
    """The API's OAuth endpoints: what each question for tokens is answered with, the last one again and again."""

    def __init__(self, *answers: dict[str, object] | str | int) -> None:
        self.answers = list(answers)
        self.forms: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.forms.append({name: values[0] for name, values in parse_qs(request.content.decode()).items()})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            return httpx.Response(answer, json={"error": "temporarily_unavailable"})
        if isinstance(answer, str):
            return httpx.Response(400, json={"error": answer, "error_description": "why"})
        return httpx.Response(200, json=answer)


def _browser(home: Path, tokens: Issuing, **more: Any) -> Stand:
    known: dict[str, Any] = {
        **WHO,
        "POST /oauth/device_authorization": DEVICE,
        "POST /oauth/token": tokens,
        "POST /oauth/revoke": {},
    }
    return Stand(home, known | more, environ={})


def _says(shown: str) -> None:
    for secret in ("planted", "spr_", "spd_", "eyJ"):
        assert secret not in shown


def test_a_person_signs_in_with_a_browser_and_the_profile_is_named_after_the_organization(
    tmp_path: Path,
) -> None:
    tokens = Issuing("authorization_pending", "slow_down", TOKENS)
    stand = _browser(tmp_path, tokens)
    shown = stand.run("login", "--url", URL)
    assert shown.code == 0, shown.err
    assert f"{URL}/device?user_code=BCDF-GHJK\n" in shown.err
    assert "confirm the code  BCDF-GHJK" in shown.err
    assert stand.hours.waits == [3, 3, 8]
    _says(shown.out + shown.err)
    assert [form["device_code"] for form in tokens.forms] == ["spd_planted-device"] * 3
    assert stand.requests[-1].headers["authorization"] == "Bearer eyJ.planted-access.token"
    path = config.config_path({"HOME": str(tmp_path)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "heliotrope-labs" in stand.run("profile", "list").out
    assert stand.run("whoami").code == 0


def test_no_line_of_the_sign_in_is_wrapped_at_eighty_columns(tmp_path: Path) -> None:
    stand = _browser(tmp_path, Issuing(TOKENS))
    stand.at_a_terminal = True
    shown = stand.run("login", "--url", URL, "--no-browser")
    assert f"{URL}/device?user_code=BCDF-GHJK" in shown.err


def test_a_sign_in_for_a_profile_that_is_taken_is_ended_and_not_stored(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    config.store(environ, Login("https://b.example", KEY, "", profile="heliotrope-labs", holder=ACME))
    stand = _browser(tmp_path, Issuing(TOKENS))
    shown = stand.run("login", "--url", URL)
    assert "error: profile_taken" in shown.err
    assert stand.requests[-1].url.path == "/oauth/revoke"
    assert config.current(environ).api_key == KEY


def test_a_refused_and_a_late_sign_in_store_nothing(tmp_path: Path) -> None:
    for error, code in (("access_denied", "sign_in_refused"), ("expired_token", "sign_in_expired")):
        shown = _browser(tmp_path, Issuing(error)).run("login", "--url", URL)
        assert (shown.code, f"error: {code}" in shown.err) == (1, True)
    stand = _browser(tmp_path, Issuing("authorization_pending"))
    shown = stand.run("login", "--url", URL)
    assert "error: sign_in_expired" in shown.err
    assert stand.hours.now >= 600
    assert config.stored({"HOME": str(tmp_path)}) is None


def test_a_sign_in_survives_an_api_that_is_away_for_a_moment(tmp_path: Path) -> None:
    assert _browser(tmp_path, Issuing(503, 429, TOKENS)).run("login", "--url", URL).code == 0


def test_a_sign_in_to_another_organization_is_ended_and_not_stored(tmp_path: Path) -> None:
    stand = _browser(tmp_path, Issuing(TOKENS))
    shown = stand.run("login", "--url", URL, "--organization", "other")
    assert "error: other_organization" in shown.err
    assert stand.requests[-1].url.path == "/oauth/revoke"
    assert config.stored({"HOME": str(tmp_path)}) is None


def test_an_api_without_sign_in_says_how_to_use_a_key(tmp_path: Path) -> None:
    refused = httpx.Response(409, json={"code": "sign_in_not_configured", "detail": "There is no issuer."})
    stand = Stand(tmp_path, {"POST /oauth/device_authorization": refused}, environ={})
    shown = stand.run("login", "--url", URL)
    assert "error: sign_in_not_configured: There is no issuer." in shown.err
    assert "splitplane login --key" in shown.err


ACME = Holder("org_1", "Acme", "user_1")


def _signed_in(home: Path, *, seconds: float) -> dict[str, str]:
    environ = {"HOME": str(home)}
    session = Session("ses_1", "spr_planted-old", "eyJ.planted-old.token", NOW.timestamp() + seconds)
    config.store(environ, Login(URL, "", "stored", stored=True, profile="acme", session=session, holder=ACME))
    return environ


def test_an_access_token_is_replaced_silently_before_it_ends(tmp_path: Path) -> None:
    environ = _signed_in(tmp_path, seconds=59)
    tokens = Issuing(TOKENS)
    stand = _browser(tmp_path, tokens)
    shown = stand.run("whoami")
    assert (shown.code, shown.err) == (0, "")
    assert tokens.forms == [{"grant_type": "refresh_token", "refresh_token": "spr_planted-old"}]
    _says(shown.out)
    login = config.stored(environ)
    assert login is not None
    assert login.session is not None
    assert login.session.refresh == "spr_planted-refresh"
    assert stand.run("whoami").code == 0
    assert len(tokens.forms) == 1


def test_a_token_that_another_command_has_replaced_is_taken_from_the_file(tmp_path: Path) -> None:
    environ = _signed_in(tmp_path, seconds=0)
    old = config.stored(environ)
    assert old is not None
    _signed_in(tmp_path, seconds=900)
    asked: list[str] = []

    def post(path: str, _: object) -> httpx.Response:
        asked.append(path)
        return httpx.Response(500)

    auth = SessionAuth(old, environ, post, NOW.timestamp)
    request = next(auth.auth_flow(httpx.Request("GET", URL)))
    assert request.headers["authorization"] == "Bearer eyJ.planted-old.token"
    assert asked == []


def test_the_end_of_a_session_is_one_clear_sentence(tmp_path: Path) -> None:
    _signed_in(tmp_path, seconds=0)
    shown = _browser(tmp_path, Issuing("invalid_grant")).run("whoami")
    assert shown.code == 1
    assert f"error: session_ended: Your session at {URL} has ended." in shown.err
    assert "splitplane login --profile acme" in shown.err


def test_a_refresh_that_the_api_cannot_do_now_is_repeated(tmp_path: Path) -> None:
    _signed_in(tmp_path, seconds=0)
    assert _browser(tmp_path, Issuing(503, 503, TOKENS)).run("whoami").code == 0


def test_logging_out_ends_the_session_at_the_api(tmp_path: Path) -> None:
    environ = _signed_in(tmp_path, seconds=900)
    stand = _browser(tmp_path, Issuing(TOKENS))
    assert "Signed out of acme." in stand.run("logout").out
    assert [request.url.path for request in stand.requests] == ["/oauth/revoke"]
    assert config.stored(environ) is None
    assert "Nothing was stored." in stand.run("logout").out


def test_profiles_are_listed_chosen_and_named_for_a_single_command(tmp_path: Path) -> None:
    environ = _signed_in(tmp_path, seconds=900)
    config.store(environ, Login("https://b.example", KEY, "typed", profile="other"))
    stand = _browser(tmp_path, Issuing(TOKENS))
    listed = " ".join(stand.run("profile", "list").out.split())
    assert f"acme Acme session {URL}" in listed
    assert "* other" in listed
    (acme, _) = json.loads(stand.run("profile", "list", "--json").out)["items"]
    assert (acme["organization_id"], acme["organization"], acme["subject"]) == ("org_1", "Acme", "user_1")
    assert stand.run("whoami", "--profile", "acme").code == 0
    assert stand.requests[-1].url.host == "127.0.0.1"
    assert stand.run("profile", "use", "acme").code == 0
    assert config.current(environ).profile == "acme"
    assert config.current(environ | {config.ENV_PROFILE: "other"}).url == "https://b.example"
    shown = stand.run("profile", "use", "nobody")
    assert "error: profile_unknown: There is no profile 'nobody'; there are acme, other" in shown.err
    assert stand.run("logout", "--profile", "acme").code == 0
    assert config.current(environ).profile == "other"
