"""Texts that a person reads, kept as files: a change to one is a diff to review.

`GOLDEN=write pytest ...` writes the current texts; review the diff before you commit it.
"""

import os
from pathlib import Path


def check(path: Path, text: str) -> None:
    """Hold `text` against the file, or write the file when GOLDEN=write is set."""
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.exists(), f"there is no {path}; write it with GOLDEN=write and review it"
    assert text == path.read_text(encoding="utf-8"), (
        f"{path} differs; GOLDEN=write writes it, the diff shows how"
    )
