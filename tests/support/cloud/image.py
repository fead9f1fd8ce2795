"""What a container of a deployment runs, without an image: the installed wheels in a root that nobody may write to.

The root is a file system in memory with this machine's system folders, Python, the packages that requirements.lock pins,
and the two wheels, each read-only; the process is the user 10001 without capabilities, as in `infra/components/containers.py`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

BUILD = "from setuptools import build_meta; build_meta.build_wheel({out!r})"
WHEELS = {"splitplane": Path(), "splitplane-cli": Path("control_plane/cli")}
LEFT_OUT = (".git", ".venv*", "var", "build", "*.egg-info", "__pycache__", ".*_cache", "tests")
ENTER = """\
set -eu
root=$1; installed=$2; files=$3; k3s=$4; python=$5; shift 5
mount -t tmpfs -o mode=755 root "$root"
mkdir "$root/tmp"; mount -t tmpfs -o mode=1777 tmp "$root/tmp"
for folder in /usr /bin /sbin /lib /lib64 /etc /dev; do
  [ -e "$folder" ] || continue
  mkdir -p "$root$folder"; mount --rbind "$folder" "$root$folder"
done
for folder in "$python" "$installed"; do
  mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; mount -o remount,bind,ro "$root$folder"
done
mkdir -p "$root/proc" "$root/run/splitplane" "$root/opt/k3s"
mount -t proc proc "$root/proc"
mount --bind "$files" "$root/run/splitplane"
mount --bind "$k3s" "$root/opt/k3s"
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \\
  "$@"
"""


def install(target: Path, *, scratch: Path) -> None:
    """Install our wheels, built here, and what they need, as it is installed here, into a folder."""
    source = scratch / "source"
    shutil.copytree(Path.cwd(), source, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    wheels = scratch / "wheels"
    wheels.mkdir()
    for project in WHEELS.values():
        _python("-c", BUILD.format(out=str(wheels)), cwd=source / project)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    _python(*pip, "--target", str(target), *(str(wheel) for wheel in wheels.glob("*.whl")), cwd=scratch)
    shutil.rmtree(source)
    for name in re.findall(r"^([a-z0-9][\w.-]*)==", Path("requirements.lock").read_text(), re.MULTILINE):
        _copy(name, target)


def _copy(name: str, target: Path) -> None:
    """Hard links or copies of a pinned package, as it is installed here."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return  # Pinned for another platform.
    for part in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        there = Path(str(found.locate_file(part)))
        if there.is_dir():
            shutil.copytree(there, target / part, dirs_exist_ok=True, copy_function=_link)
        elif there.exists():
            _link(there, target / part)


class Image:
    """The wheels and what they need, in a folder (`install`), and what a container has besides."""

    def __init__(self, folder: Path, installed: Path) -> None:
        folder.chmod(0o755)
        self.installed = installed
        self._root, self.files, self.k3s = folder / "root", folder / "files", folder / "k3s"
        for made in (self._root, self.files, self.k3s):
            made.mkdir()
        os.chown(self.files, 10001, 10001)

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Start a command of a container, in a new root with these variables alone."""
        python, *arguments = command
        assert python == "python"
        given = {**environment, "PYTHONPATH": str(self.installed), "PYTHONDONTWRITEBYTECODE": "1"}
        program = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S", *arguments]
        variables = ["env", "-i", *(f"{name}={value}" for name, value in given.items())]
        places = [self._root, self.installed, self.files, self.k3s, sys.base_prefix]
        return subprocess.Popen(  # Each program becomes the next one, so that signals reach the last.
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh",
             *map(str, places), *variables, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def write_files(self, writer: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run the container that writes the files of secrets."""
        process = self.start(writer, environment)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said


def _python(*arguments: str, cwd: Path) -> None:
    done = subprocess.run([sys.executable, *arguments], check=False, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:  # Another file system.
        shutil.copy2(source, target)
