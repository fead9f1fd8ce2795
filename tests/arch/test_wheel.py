"""What is packaged, in two distributions that share no file: all of the product, and none of the cheats."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from setuptools import find_namespace_packages

from control_plane.cli.version import VERSION
from tests.arch.tree import PRODUCT, Source, sources

SERVER = tomllib.loads(Path("pyproject.toml").read_text())
CLI = tomllib.loads(Path("control_plane/cli/pyproject.toml").read_text())
CHEATS = "tests/support/cheats"


def _of(packages: Iterable[str]) -> list[Path]:
    return [path for name in packages for path in Path(*name.split(".")).glob("*.py")]


def _in_server() -> list[Path]:
    find = SERVER["tool"]["setuptools"]["packages"]["find"]
    return _of(find_namespace_packages(include=find["include"], exclude=find["exclude"]))


def _in_cli() -> list[Path]:
    return _of(CLI["tool"]["setuptools"]["packages"])


def _packaged() -> list[Path]:
    return sorted([*_in_server(), *_in_cli()])


def _defined(source: Source) -> set[str]:
    """The classes of a file: a cheat keeps its class's name wherever it is put."""
    return {node.name for node in source.nodes if isinstance(node, ast.ClassDef)}


def test_all_of_the_product_is_packaged_and_nothing_else() -> None:
    assert {path.as_posix() for path in _packaged()} == {source.path for source in sources(*PRODUCT)}


def test_the_two_distributions_share_no_file_and_the_server_requires_the_command_line() -> None:
    assert set(_in_server()) & set(_in_cli()) == set()
    assert SERVER["project"]["version"] == VERSION
    assert f"splitplane-cli=={VERSION}" in SERVER["project"]["dependencies"]
    assert "scripts" not in SERVER["project"], "a command that both install would belong to two"


def test_the_command_line_requires_what_it_imports_and_nothing_else() -> None:
    imported = {
        name.partition(".")[0]
        for source in sources("control_plane/cli", "control_plane/wire")
        for name in source.imports()
    }
    requirements = [*CLI["project"]["dependencies"], *CLI["project"]["optional-dependencies"]["s3"]]
    required = {re.split(r"[<>=]", requirement)[0] for requirement in requirements}
    distributions = {{"yaml": "pyyaml", "botocore": "boto3"}.get(name, name) for name in imported}
    assert distributions - sys.stdlib_module_names - {"control_plane"} == required


def test_no_cheat_is_packaged() -> None:
    lies = set[str]().union(*map(_defined, sources(CHEATS)))
    assert {"Lie", "MissingMemory", "Altered", "AttackedLine"} <= lies
    product = {source.path: source for source in sources(*PRODUCT)}
    for path in map(Path.as_posix, _packaged()):
        assert not re.search(r"cheat|lies|attack", path), path
        assert not _defined(product[path]) & lies, path


def test_nothing_of_the_data_plane_is_there_for_tests_and_benchmarks_only() -> None:
    imported = {name for source in sources(*PRODUCT) for name in source.imports()}
    unused = {
        source.path
        for source in sources("data_plane")
        if source.path.removesuffix(".py").replace("/", ".") not in imported
        and not source.path.endswith(("__init__.py", "__main__.py"))
    }
    assert not unused
