"""What travels to a rented machine: the folders of what runs there, and nothing that is not needed there."""

import ast
import hashlib
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import data_plane
from data_plane.inspection.bundle import FOLDERS, build_agent

ROOT = Path(data_plane.__file__).parent.parent


def _file(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    return next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)


def _statements(node: ast.AST, *, in_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if in_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _statements(child, in_functions=in_functions)


def _imports(path: Path, *, in_functions: bool) -> Iterator[str]:
    """Every name that a file imports, a folder's own name too; with or without the imports inside functions."""
    for node in _statements(ast.parse(path.read_text()), in_functions=in_functions):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield str(node.module)
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _reached(*, in_functions: bool) -> tuple[dict[str, Path], dict[str, set[Path]]]:
    """From the agent's start: our files by module, and which of them import what is not ours."""
    ours: dict[str, Path] = {}
    others: dict[str, set[Path]] = {}
    wanted = ["data_plane.agent.__main__"]
    while wanted:
        module = wanted.pop()
        path = _file(module) if module.startswith("data_plane") else None
        if module in ours or path is None:
            continue
        ours[module] = path
        imported = list(_imports(path, in_functions=in_functions))
        wanted += [module.rpartition(".")[0], *imported]
        for name in imported:
            if not name.startswith("data_plane"):
                others.setdefault(name.partition(".")[0], set()).add(path)
    return ours, others


def _foreign(others: dict[str, set[Path]]) -> dict[str, set[str]]:
    """What comes neither from us nor from Python, with the folders that import it."""
    return {
        name: {path.parent.relative_to(ROOT).as_posix() for path in paths}
        for name, paths in others.items()
        if name not in sys.stdlib_module_names
    }


def _held() -> set[str]:
    with zipfile.ZipFile(BytesIO(build_agent().content)) as archive:
        return set(archive.namelist())


def test_the_same_sources_give_the_same_bytes() -> None:
    one, two = build_agent(), build_agent()
    assert one == two
    assert one.sha256 == hashlib.sha256(one.content).hexdigest()
    with zipfile.ZipFile(BytesIO(one.content)) as archive:
        assert archive.testzip() is None
        ours = sorted(name for name in archive.namelist() if name.startswith("data_plane/"))
        assert archive.namelist() == ["__main__.py", *ours, "pynvml.py"]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_bundle_holds_what_the_agent_imports_and_nothing_else() -> None:
    ours, _ = _reached(in_functions=True)
    needed = {path.relative_to(ROOT).as_posix() for path in ours.values()}
    assert _held() - {"__main__.py", "pynvml.py"} == needed


def test_the_bundle_is_whole_folders() -> None:
    of_folders = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / "data_plane" / folder).rglob("*.py")
    }
    above = {"data_plane/__init__.py", "data_plane/proof/__init__.py"}
    assert _held() == of_folders | above | {"__main__.py", "pynvml.py"}


def test_a_machine_with_gpus_needs_nothing_but_python_and_the_bindings() -> None:
    """What is imported when it is first needed, and nowhere else, may need more: only emulated GPUs do."""
    _, at_start = _reached(in_functions=False)
    assert set(_foreign(at_start)) == {"pynvml"}
    _, ever = _reached(in_functions=True)
    assert _foreign(ever) == {
        "pynvml": {"data_plane/nvml", "data_plane/proof/prover"},
        "numpy": {"data_plane/proof/prover/emulation", "data_plane/proof/protocol/arithmetic"},
    }


def test_the_call_that_blocks_is_never_used() -> None:
    for path in _reached(in_functions=True)[0].values():
        assert '"nvmlDeviceGetPcieThroughput"' not in path.read_text(), path
