"""The stored login: who can read it, where its key may go, and what an error says about it."""

import os
import stat
from pathlib import Path

import pytest

from control_plane.cli import config
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, Exit

KEY = "spk_planted-0123456789"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def _stored(environ: dict[str, str], url: str = "https://a.example") -> Path:
    return config.store(environ, Login(url, KEY, "typed"))


def test_a_login_is_readable_for_its_owner_alone_whatever_the_umask(environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        path = _stored(environ)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name for file in path.parent.iterdir()} == {".lock", "config.toml"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


def test_a_second_login_replaces_the_first_and_its_mode(environ: dict[str, str]) -> None:
    path = _stored(environ)
    path.chmod(0o644)
    _stored(environ, "https://b.example")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config.current(environ).url == "https://b.example"


def test_what_is_stored_comes_back(environ: dict[str, str]) -> None:
    _stored(environ)
    assert config.current(environ).api_key == KEY


def test_a_login_that_others_can_read_is_refused_with_the_command_that_fixes_it(
    environ: dict[str, str],
) -> None:
    path = _stored(environ)
    path.chmod(0o640)
    with pytest.raises(CliError, match="chmod 600") as caught:
        config.current(environ)
    assert KEY not in str(caught.value)


def test_a_login_of_another_user_is_refused(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = _stored(environ)
    owner = path.stat().st_uid
    status = os.stat_result((0o600, 0, 0, 1, owner + 1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: owner + 2)
    with pytest.raises(CliError, match="belongs to another user"):
        config.check_private(path, status, "an API key")


def test_a_damaged_file_is_an_error_without_its_content(environ: dict[str, str]) -> None:
    path = _stored(environ)
    path.write_text(f'url = "https://a.example\napi_key = "{KEY}"')
    with pytest.raises(CliError, match="splitplane login") as caught:
        config.current(environ)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_environment_goes_before_the_file(environ: dict[str, str]) -> None:
    _stored(environ)
    login = config.current(environ | {config.ENV_URL: "https://b.example/", config.ENV_KEY: "spk_other"})
    assert (login.url, login.api_key) == ("https://b.example", "spk_other")


def test_a_stored_key_is_not_sent_to_another_address(environ: dict[str, str]) -> None:
    _stored(environ)
    with pytest.raises(CliError, match=r"belongs to https://a\.example"):
        config.current(environ | {config.ENV_URL: "https://b.example"})


def test_without_a_login_the_error_says_how_to_log_in(environ: dict[str, str]) -> None:
    with pytest.raises(CliError, match="splitplane login --url"):
        config.current(environ)


@pytest.mark.parametrize("url", ["http://api.example", "http://10.0.0.1:8000"])
def test_a_key_does_not_travel_unencrypted(environ: dict[str, str], url: str) -> None:
    with pytest.raises(CliError, match="unencrypted") as caught:
        config.checked_url(url, environ)
    assert caught.value.exit_code is Exit.USAGE
    assert config.checked_url(url, environ | {config.ENV_ALLOW_HTTP: "1"}) == url


@pytest.mark.parametrize("url", ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"])
def test_plain_http_is_fine_on_this_machine(environ: dict[str, str], url: str) -> None:
    assert config.checked_url(url, environ) == url


@pytest.mark.parametrize(
    "url",
    [
        "api.example",
        "ftp://api.example",
        "https://",
        "https://user:word@api.example",
        "https://a.example?x=1",
    ],
)
def test_an_invalid_address_is_refused(environ: dict[str, str], url: str) -> None:
    with pytest.raises(CliError):
        config.checked_url(url, environ)


def test_a_key_does_not_show_in_a_repr() -> None:
    assert KEY not in repr(Login("https://a.example", KEY, "typed"))


def test_logging_out_forgets_and_says_whether_there_was_anything(environ: dict[str, str]) -> None:
    path = _stored(environ)
    assert config.forget(environ) == path
    assert config.forget(environ) is None
