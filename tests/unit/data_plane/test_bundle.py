"""What travels to a rented machine: all that the agent imports, and nothing else."""

import ast
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from data_plane import bundle
from data_plane.bundle import build_agent

ROOT = Path(bundle.__file__).parent.parent


def _file(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    return next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    """Every name that is imported anywhere in a file, in a function as well; a folder's own name too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield str(node.module)
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _reached() -> tuple[dict[str, Path], dict[str, set[Path]]]:
    """Our files by module, and who imports what is not ours."""
    ours: dict[str, Path] = {}
    others: dict[str, set[Path]] = {}
    wanted = ["data_plane.agent.__main__"]
    while wanted:
        module = wanted.pop()
        path = _file(module) if module.startswith("data_plane") else None
        if module in ours or path is None:
            continue
        ours[module] = path
        wanted += [module.rpartition(".")[0], *_imports(path)]
        for name in _imports(path):
            if not name.startswith("data_plane"):
                others.setdefault(name.partition(".")[0], set()).add(path)
    return ours, others


def test_the_bundle_holds_what_the_agent_imports_and_nothing_else() -> None:
    ours, _ = _reached()
    with zipfile.ZipFile(BytesIO(build_agent().content)) as archive:
        held = set(archive.namelist()) - {"__main__.py", "pynvml.py"}
    assert held == {str(path.relative_to(ROOT)) for path in ours.values()}


def test_only_the_emulation_needs_more_than_python_and_the_bindings() -> None:
    _, others = _reached()
    foreign = {name: paths for name, paths in others.items() if name not in sys.stdlib_module_names}
    assert set(foreign) == {"numpy", "pynvml"}
    emulation = {ROOT / "data_plane" / name for name in bundle._EMULATION}
    assert foreign["numpy"] <= emulation
    assert {path.name for path in foreign["pynvml"]} == {"nvml.py", "attestation.py"}


def test_nothing_that_judges_or_cheats_travels() -> None:
    ours, _ = _reached()
    words = {word for module in ours for word in module.split(".")}
    assert not words & {"challenger", "verifier", "judgement", "reference", "cheats", "attackers", "lies"}
