"""When the machine image is built again. The build itself runs in tests/contract/test_local_machines.py."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from providers.emulators.image import RECIPE, Recipe, Say, ensure_image, image_path, remove_unfinished


class Builder:
    """Fills a root with a few files; the build with the number `dies_at` dies halfway."""

    def __init__(self, dies_at: int = 0) -> None:
        self.builds = 0
        self.dies_at = dies_at

    def __call__(self, recipe: Recipe, root: Path, log: Path, say: Say) -> None:
        self.builds += 1
        (root / "etc").mkdir(parents=True)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        if self.builds == self.dies_at:
            raise KeyboardInterrupt
        (root / "bin").symlink_to("usr/bin")
        log.write_text("")
        say(recipe.suite)


def _quietly(_: str) -> None:
    pass


def test_an_image_is_built_once(tmp_path: Path) -> None:
    said: list[str] = []
    builder = Builder()
    for _ in range(2):
        root = ensure_image(tmp_path, said.append, build=builder)
        assert (root / "etc/hosts").exists()
    assert (builder.builds, said) == (1, [RECIPE.suite])


def test_an_image_that_is_not_as_it_was_built_is_built_again(tmp_path: Path) -> None:
    def unfinished(root: Path) -> None:
        (root.parent / "complete.json").unlink()

    def emptied(root: Path) -> None:
        shutil.rmtree(root)
        root.mkdir()

    def linked(root: Path) -> None:
        (root / "bin").unlink()
        (root / "bin").symlink_to("sbin")

    breaks: dict[str, Callable[[Path], object]] = {
        "emptied": emptied,
        "root removed": shutil.rmtree,
        "no marker": unfinished,
        "empty marker": lambda root: (root.parent / "complete.json").write_text(""),
        "marker of another kind": lambda root: (root.parent / "complete.json").write_text("[]"),
        "a file is missing": lambda root: (root / "etc/hosts").unlink(),
        "a file is truncated": lambda root: (root / "etc/hosts").write_text(""),
        "another mode": lambda root: (root / "etc/hosts").chmod(0o600),
        "another link": linked,
    }
    for name, spoil in breaks.items():
        said: list[str] = []
        builder = Builder()
        cache = tmp_path / name
        root = ensure_image(cache, said.append, build=builder)
        spoil(root)
        assert ensure_image(cache, said.append, build=builder) == root, name
        assert builder.builds == 2, name
        assert (root / "etc/hosts").read_text() == "127.0.0.1 localhost\n", name
        assert any("cannot be used" in line for line in said), name
        ensure_image(cache, said.append, build=builder)
        assert builder.builds == 2, name


def test_a_build_that_is_interrupted_leaves_no_image_and_the_old_one_until_the_new_one_is_ready(
    tmp_path: Path,
) -> None:
    for name, dies_at in (("first", 1), ("second", 2)):
        builder, cache = Builder(dies_at), tmp_path / name
        if dies_at == 2:
            shutil.rmtree(ensure_image(cache, _quietly, build=builder) / "etc")
        with pytest.raises(KeyboardInterrupt):
            ensure_image(cache, _quietly, build=builder)
        assert image_path(cache).exists() == (dies_at == 2), name
        assert list(cache.glob("*.building")) == [], name
        assert (ensure_image(cache, _quietly, build=builder) / "etc/hosts").exists(), name
        assert builder.builds == dies_at + 1, name


def test_what_a_killed_build_left_is_removed_and_a_build_that_runs_is_left_alone(tmp_path: Path) -> None:
    for name in ("dead", "alive"):
        (tmp_path / f"{name}.building/root").mkdir(parents=True)
    with (tmp_path / "alive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.glob("*.building")] == ["alive.building"]
