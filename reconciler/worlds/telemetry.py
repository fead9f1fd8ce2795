"""The world of loops that pass on what machines measured."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.archive import Archive
from reconciler.remote_write.encoding import Encoder
from reconciler.remote_write.sending import send
from reconciler.world import World

Post = Callable[[str, Path | None, bytes, Mapping[str, str]], Awaitable[int]]
"""Posts a body to a URL with the bearer token of a file. Returns the status; raises OSError when there is no answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """A store that takes Prometheus remote write."""

    name: str
    url: str = field(repr=False)
    token_path: Path | None = None
    """The file with its bearer token, which is read for each request, so that it may be replaced."""


@dataclass(frozen=True, slots=True)
class SampleArchive:
    """Where hours of samples are written to as files, and by which rule."""

    store: Archive
    every_seconds: int
    """Of each machine, the last sample of so many seconds is kept, and every notable one."""
    kept_days: int
    """How long files are kept."""


@dataclass(frozen=True, kw_only=True)
class TelemetryWorld(World):
    targets: tuple[Target, ...] = ()
    """Where samples are written to."""
    archive: SampleArchive | None = None
    """None: hours of samples are emptied without being written to files."""
    post: Post = send
    encoder: Encoder = field(default_factory=Encoder)
