"""What a shell is given to complete a command line with."""

from argparse import Action
from pathlib import Path

import httpx
import pytest

from control_plane.cli import completing
from control_plane.cli.main import parser
from control_plane.cli.terminal import Terminal
from tests.unit.cli import answers
from tests.unit.cli.answers import a_lease
from tests.unit.cli.stand import KEY, URL, Hours, Stand

ENVIRON = {"SPLITPLANE_URL": URL, "SPLITPLANE_API_KEY": KEY}


def _argument(metavar: str) -> Action:
    return Action([], "word", metavar=metavar)


def _names(answer: httpx.Response | Exception, metavar: str) -> list[str]:
    def api(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    terminal = Terminal(environ=ENVIRON, clock=Hours().clock(), transport=httpx.MockTransport(api))
    return completing.names(terminal, _argument(metavar))


def test_every_shell_has_its_script(tmp_path: Path) -> None:
    for shell, mark in (("bash", "complete "), ("zsh", "#compdef splitplane"), ("fish", "complete ")):
        shown = Stand(tmp_path).run("completion", shell)
        assert shown.code == 0
        assert mark in shown.out
        assert "splitplane" in shown.out
    assert Stand(tmp_path).run("completion", "csh").code == 2


def test_names_are_those_of_the_api() -> None:
    leases = httpx.Response(200, json={"items": [a_lease(), a_lease(name="two\x1b[2J")]})
    assert _names(leases, "LEASE") == ["train-1"]
    skus = httpx.Response(200, json=answers.SKUS)
    assert _names(skus, "SKU") == [sku["name"] for sku in answers.SKUS["items"]]


def test_a_shell_gets_nothing_where_there_are_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    for answer in (httpx.ConnectError("refused"), httpx.Response(401, json={}), httpx.Response(200, json={})):
        assert _names(answer, "LEASE") == []
    assert _names(httpx.Response(200, json=answers.SKUS), "USD") == []
    assert capsys.readouterr().err == ""


def test_a_command_is_complete_without_the_files_of_the_others() -> None:
    assert "skus" not in parser("lease").format_help()
    for unknown in (None, "", "leas"):
        assert "skus" in parser(unknown).format_help()
