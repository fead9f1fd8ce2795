"""Logging in and out: the key is checked before it is kept, and shows nowhere."""

import io
import stat
from pathlib import Path
from typing import cast

import httpx
import pytest

from control_plane.cli import config
from tests.unit.cli import answers
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
    assert _stand(tmp_path, Typed(f"{KEY}\n")).run("login", "--url", URL).code == 0


def test_a_refused_key_is_not_stored_and_not_shown(tmp_path: Path) -> None:
    shown = _stand(tmp_path, io.StringIO(f"{KEY}\n"), who=REFUSED).run("login", "--url", URL, "--key-stdin")
    assert shown.code == 1
    assert "error: unauthenticated: The API key is not valid." in shown.err
    assert KEY not in shown.out + shown.err
    assert config.stored({"HOME": str(tmp_path)}) is None


def test_without_a_terminal_to_type_at_the_command_fails_instead_of_waiting(tmp_path: Path) -> None:
    shown = _stand(tmp_path, io.StringIO()).run("login", "--url", URL)
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
