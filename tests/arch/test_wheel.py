"""What is packaged: all of the product, and none of the cheats."""

import ast
import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages

from tests.arch.tree import PRODUCT, sources

INCLUDE = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"][
    "include"
]
CHEATS = Path("tests/support/cheats")


def _packaged() -> list[Path]:
    folders = [Path(*name.split(".")) for name in find_namespace_packages(include=INCLUDE)]
    return sorted(path for folder in folders for path in folder.glob("*.py"))


def _defined(path: Path) -> set[str]:
    """The classes of a file: a cheat keeps its class's name wherever it is put."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}


def test_all_of_the_product_is_packaged_and_nothing_else() -> None:
    assert {path.as_posix() for path in _packaged()} == {source.path for source in sources(*PRODUCT)}


def test_no_cheat_is_packaged() -> None:
    cheats = sorted(CHEATS.glob("*.py"))
    lies = set[str]().union(*map(_defined, cheats))
    assert {"Lie", "MissingMemory", "Altered", "AttackedLine"} <= lies
    for path in _packaged():
        assert not re.search(r"cheat|lies|attack", path.as_posix()), path
        assert not _defined(path) & lies, path


def test_nothing_of_the_data_plane_is_there_for_tests_and_benchmarks_only() -> None:
    imported = {name for source in sources(*PRODUCT) for name in source.imports()}
    unused = [
        source.path
        for source in sources("data_plane")
        if source.path.removesuffix(".py").replace("/", ".") not in imported
        and not source.path.endswith(("__init__.py", "__main__.py"))
    ]
    assert not unused
