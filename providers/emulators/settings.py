"""Where the emulated clouds keep the images of their machines, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from environment import reading
from environment.reading import Variable


@dataclass(frozen=True, slots=True)
class Settings:
    images: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_IMAGES",
            "folder that keeps the images of local machines",
            "`splitplane/images` in the user's cache",
        ),
    ] = None


def images(environ: Mapping[str, str]) -> Path:
    """The folder for images of machines. Raises SettingsError."""
    home = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return reading.read(Settings, environ).images or Path(home) / "splitplane" / "images"
