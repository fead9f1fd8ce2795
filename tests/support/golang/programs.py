"""Programs that tests run and that are built from Go modules: where each lies once it is built.

A module's folder is named by a hash of all that the result depends on, so a changed pin builds anew and an old one
stays whole.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

CACHE = Path.home() / ".cache" / "splitplane"
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",  # Otherwise a go.mod could make Go download another Go.
    "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
    "GOWORK": "off",
}


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with a go.mod, which pins versions, and a go.sum, which holds their contents to a hash."""

    folder: Path
    shelf: str
    """The folder of the cache that its programs are kept in."""
    flags: tuple[str, ...]

    def digest(self, go: str) -> str:
        """A name for what Go of this version, such as `go1.26.8`, makes of the module as it is pinned now."""
        settings = json.dumps([go, self.flags, ENVIRONMENT])
        files = [self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("*.go"))]
        parts = [settings.encode(), *(file.read_bytes() for file in files if file.exists())]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def built(self, go: str, cache: Path = CACHE) -> Path:
        return cache / self.shelf / f"{self.folder.name}-{self.digest(go)}"


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: Module
    package: str
    cpu_seconds: int
    """What it took on an x86-64 core in November 2026, after those before it."""

    def path(self, go: str, cache: Path = CACHE) -> Path:
        return self.module.built(go, cache) / self.name


@dataclass(frozen=True, slots=True)
class Collection:
    """What one command builds."""

    title: str
    """As people read it: `real Kubernetes`."""
    programs: tuple[Program, ...]
    """In the order in which they are built: those that most tests need come first."""
    disk_bytes: int
    """What a build from nothing needs, most of it for Go's caches."""
    download_mb: int

    def unbuilt(self, go: str, cache: Path = CACHE) -> list[Program]:
        return [program for program in self.programs if not program.path(go, cache).exists()]
