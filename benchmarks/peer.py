"""Peers that benchmarks are compared with: each in a Python environment of its own, made when it is first needed.

An environment lies in ~/.cache/splitplane, outside of any checkout, in a folder named by its pins, so that changed pins
make a new one and an interrupted installation is begun again.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

_CACHE = Path.home() / ".cache" / "splitplane" / "benchmarks"


def interpreter(pins: Path) -> Path | None:
    """The Python of the environment with these pins. None when they cannot be installed; stderr says why."""
    home = _CACHE / hashlib.sha256(pins.read_bytes()).hexdigest()[:16]
    python, complete = home / "bin" / "python", home / "complete"
    if complete.exists():
        return python
    print(f"installing {pins.name} for the comparison (half a minute, once)", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    try:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, *install, "-r", pins], check=True)
    except subprocess.CalledProcessError:
        return None
    complete.touch()
    return python
