"""What `make release` packs, and how the packages get there. Python and pip are stand-ins, so nothing is fetched."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

# The Python of the hosts. In its environment, pip writes down its arguments and leaves what pip would leave.
PYTHON = """\
#!/bin/sh
case "$1" in
  -c) echo 3.11 ;;
  -m) mkdir -p "$3/bin" && cp "$(dirname "$0")/pip" "$(dirname "$0")/cyclonedx-py" "$3/bin" ;;
esac
"""
PIP = """\
#!/bin/sh
shift 2  # --quiet --disable-pip-version-check
echo "$*" >> "$CALLS"
while [ $# -gt 0 ]; do
  case "$1" in
    --wheel-dir) mkdir -p "$2" && touch "$2/splitplane-0.whl" ;;
    --target) mkdir -p "$2/control_plane" "$2/bin" && touch "$2/control_plane/__init__.py" "$2/bin/script" ;;
  esac
  shift
done
"""
SBOM = """\
#!/bin/sh
while [ "$1" != -o ]; do shift; done
cp "$3" "$2"
"""
REFUSED = "#!/bin/sh\nexit 1\n"
SOURCES = ("Makefile", "requirements.lock", "infra/image/requirements.lock", "docs/nginx.conf")


class Checkout:
    """A commit with what builds a release."""

    def __init__(self, folder: Path) -> None:
        self.root, self._bin, self._calls = folder / "checkout", folder / "bin", folder / "calls"
        for name in SOURCES:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, self.root / name)
        shutil.copytree("infra/host", self.root / "infra" / "host")
        (self.root / ".gitignore").write_text("var/\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all")
        self._bin.mkdir()
        programs = {"python3.11": PYTHON, "python3": REFUSED, "pip": PIP, "cyclonedx-py": SBOM}
        for name, text in programs.items():
            (self._bin / name).write_text(text)
            (self._bin / name).chmod(0o755)

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def release(self, umask: int = 0o022) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
        path = f"{self._bin}:{inherited['PATH']}"
        return subprocess.run(
            ["make", "--silent", "release"],
            umask=umask,
            cwd=self.root,
            env=inherited | {"PATH": path, "CALLS": str(self._calls)},
            capture_output=True,
            text=True,
            check=False,
        )

    def pip_calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_release_has_the_packages_for_the_python_of_the_hosts_and_what_else_a_host_needs(
    checkout: Checkout,
) -> None:
    built = checkout.release()
    assert built.returncode == 0, built.stderr
    assert "for Python 3.11" in built.stdout
    commit = checkout.git("rev-parse", "HEAD")[:12]
    folder = checkout.root / "var" / "release"
    assert {path.name for path in folder.iterdir()} == {
        f"splitplane-{commit}.tar.gz",
        f"splitplane-{commit}.tar.gz.sha256",
    }
    checked = ["sha256sum", "--check", "--strict", f"splitplane-{commit}.tar.gz.sha256"]
    subprocess.run(checked, cwd=folder, check=True, capture_output=True)
    with tarfile.open(folder / f"splitplane-{commit}.tar.gz") as archive:
        files = {member.name.removeprefix("./") for member in archive.getmembers() if member.isfile()}
        assert {(member.uid, member.gid) for member in archive.getmembers()} == {(0, 0)}
    of_hosts = {str(path.relative_to("infra")) for path in Path("infra/host").rglob("*") if path.is_file()}
    packages = {"lib/python3.11/site-packages/control_plane/__init__.py"}
    assert files == of_hosts | packages | {"host/nginx.conf", "sbom.cdx.json"}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_users_of_the_host_read_all_of_a_release_and_change_nothing(checkout: Checkout, umask: int) -> None:
    built = checkout.release(umask)
    assert built.returncode == 0, built.stderr
    (packed,) = (checkout.root / "var" / "release").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        modes = {(member.isdir(), member.mode & 0o066) for member in archive.getmembers()}
    assert modes == {(True, 0o044), (False, 0o044)}


def test_nothing_is_installed_that_is_neither_pinned_by_its_hash_nor_built_here(checkout: Checkout) -> None:
    assert checkout.release().returncode == 0
    calls = checkout.pip_calls()
    assert len(calls) == 4
    for call in calls:
        verb = call.split()[0]
        assert verb == "wheel" or "--require-hashes" in call or "--no-index" in call, call
        assert verb != "wheel" or "--no-build-isolation" in call, call


def test_a_release_is_made_of_a_commit(checkout: Checkout) -> None:
    (checkout.root / "changed").touch()
    refused = checkout.release()
    assert refused.returncode != 0
    assert "a release is made of a commit" in refused.stderr
