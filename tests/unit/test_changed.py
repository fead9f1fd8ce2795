"""`make test-changed` leaves out only what a change cannot affect: a small tree, and then the real one."""

import ast
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.arch.tree import Source, sources
from tests.support.changed import affected, all_tests, graph, main

SMALL = {
    "shop/__init__.py": "",
    "shop/__main__.py": "from shop import till",
    "shop/money.py": "RATE = 3",
    "shop/till.py": "from shop.money import RATE",
    "shop/shelf.py": "",
    "shop/found.py": "import importlib\nfrom shop import plugins\nimportlib.import_module(NAME)",
    "shop/plugins/__init__.py": "",
    "shop/plugins/red.py": "from shop import shelf",
    "tests/conftest.py": "from tests import support",
    "tests/support.py": "",
    "tests/arch/test_rules.py": "",
    "tests/till/conftest.py": "from tests import weather",
    "tests/till/test_till.py": "from shop import till",
    "tests/weather.py": "",
    "tests/test_shelf.py": "import shop.shelf",
    "tests/test_found.py": "from shop.found import NAME",
    "tests/test_patched.py": "patch('shop.shelf.SIZE', 3)",
    "tests/test_process.py": "run(['-m', 'shop'])",
    "tests/test_golden.py": "GOLDEN = Path('texts/golden')",
    "tests/test_prices.py": "PRICES = 'prices.toml'",
    "tests/test_old.py": "from shop.gone import NAME",
}
DATA = ("texts/golden/bill.txt", "texts/prices.toml", "texts/read.md", "pins.lock", "unnamed/file.bin")


def _source(path: str, text: str) -> Source:
    return Source(path, text, ast.parse(text))


def _run(*changed: str, small: Mapping[str, str] = SMALL) -> set[str]:
    files = [_source(path, text) for path, text in small.items()]
    needs = graph(files, data=DATA, gone=("shop/gone.py",))
    return set(affected(needs, all_tests(files), changed)) - {"tests/arch/test_rules.py"}


@pytest.mark.parametrize(
    ("changed", "run"),
    [
        ("tests/test_shelf.py", {"tests/test_shelf.py"}),
        ("shop/till.py", {"tests/till/test_till.py", "tests/test_process.py"}),
        ("shop/money.py", {"tests/till/test_till.py", "tests/test_process.py"}),
        ("shop/shelf.py", {"tests/test_shelf.py", "tests/test_patched.py", "tests/test_found.py"}),
        ("shop/plugins/red.py", {"tests/test_found.py"}),
        ("shop/__main__.py", {"tests/test_process.py"}),
        ("shop/gone.py", {"tests/test_old.py"}),
        ("tests/weather.py", {"tests/till/test_till.py"}),
        ("texts/golden/bill.txt", {"tests/test_golden.py"}),
        ("texts/prices.toml", {"tests/test_prices.py"}),
        ("texts/read.md", set[str]()),
    ],
)
def test_a_change_runs_the_tests_that_need_what_changed(changed: str, run: set[str]) -> None:
    assert _run(changed) == run


@pytest.mark.parametrize("changed", ["tests/support.py", "pins.lock", "unnamed/file.bin"])
def test_a_change_that_may_affect_everything_runs_every_test(changed: str) -> None:
    assert _run(changed) == {path for path in SMALL if "/test_" in path} - {"tests/arch/test_rules.py"}


def test_the_rules_of_the_house_always_run() -> None:
    files = [_source(path, text) for path, text in SMALL.items()]
    assert affected(graph(files), all_tests(files), ()) == ["tests/arch/test_rules.py"]


def test_several_changes_run_what_each_of_them_runs() -> None:
    assert _run("shop/till.py", "texts/prices.toml") == _run("shop/till.py") | _run("texts/prices.toml")


@pytest.mark.xdist_group("tree")  # The worker of tests/arch has parsed it.
def test_in_the_real_tree_a_loop_reaches_the_scenarios_and_a_screen_only_its_own_tests() -> None:
    files = sources()
    needs, every = graph(files), all_tests(files)
    loop = affected(needs, every, {"reconciler/loops/money/fund_leases.py"})
    assert {"tests/scenario/test_crashes.py", "tests/scenario/test_funding.py"} <= set(loop)
    assert not [path for path in loop if path.startswith(("tests/unit/data_plane/", "tests/unit/cli/"))]
    screen = affected(needs, every, {"control_plane/cli/render/leases.py"})
    assert "tests/unit/cli/test_screens.py" in screen
    scenarios = [path for path in screen if path.startswith(("tests/scenario/", "tests/unit/domain/"))]
    assert scenarios == ["tests/scenario/test_killed_money.py"], "it kills the command line too"


def test_a_base_that_git_does_not_know_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(128, command, stderr="fatal: Not a valid object name nope\n")

    monkeypatch.setattr(subprocess, "run", git)
    assert main(["--base", "nope"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "BASE=nope cannot be compared with the working tree: Not a valid object name nope\n"


def test_recipes_that_write_below_var_make_it_first() -> None:
    recipes = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", Path("Makefile").read_text(), re.MULTILINE)
    writing = {name: lines for name, lines in recipes if "> var/" in lines}
    assert set(writing) == {"test-changed", "check"}
    for name, lines in writing.items():
        assert lines.index("mkdir -p var") < lines.index("> var/"), name
