"""Files with private keys, which nobody but their owner may read."""

import os
import stat
from pathlib import Path


class TooOpen(ValueError):  # noqa: N818 - reads as a sentence
    """A file with a private key that other users may read or change. The message says what to do."""


def read_private(path: Path) -> bytes:
    """The content of a file that only its owner may access. Raises TooOpen or OSError."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TooOpen(
                f"{path} has mode {mode:04o}, so other users may access this private key; run: chmod 600 {path}"
            )
        return file.read()
