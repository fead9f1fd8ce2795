"""ARCHITECTURE.md against the tree: every folder is on the map, and nothing that is not there."""

import re
from pathlib import Path

from tests.arch.tree import AROUND, PRODUCT

NAMED = set(re.findall(r"`([\w./-]+)`", Path("ARCHITECTURE.md").read_text()))


def _folders() -> set[str]:
    """Folders with something of ours in them; caches and what was built are not."""
    found = set()
    for root in (*PRODUCT, *AROUND, "docs"):
        for path in Path(root).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                found |= {f"{folder.as_posix()}/" for folder in path.parents if folder != Path()}
    return found


def _mirrored(folder: str) -> str:
    """The product's folder whose tests are in this one."""
    for tests in ("tests/unit/", "tests/integration/"):
        if folder.startswith(f"{tests}data_plane/"):
            return folder.removeprefix(tests)
    return folder


def test_every_folder_is_on_the_map() -> None:
    assert not {_mirrored(folder) for folder in _folders()} - NAMED


def test_the_map_names_nothing_that_is_not_there() -> None:
    paths = {name for name in NAMED if "/" in name and not name.startswith("/")}
    by_recipe = {"reconciler/loops/WING/verb_noun.py"}
    assert not {name for name in paths - by_recipe if not Path(name).exists()}


def test_every_entry_of_a_process_is_on_the_map() -> None:
    entries = {
        "control_plane/__main__.py",
        "reconciler/__main__.py",
        "data_plane/proof/verifier/service/__main__.py",
        "data_plane/agent/__main__.py",
    }
    assert entries <= NAMED
