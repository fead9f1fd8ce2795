"""Files that only their owner can read, replaced as a whole."""

import os
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write a file. Another process that reads finds the old one, or this one as a whole. Raises OSError."""
    draft = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    draft.touch(mode=0o600, exist_ok=False)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
