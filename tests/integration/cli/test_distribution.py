"""The command line installed on its own: it starts without the server, and without what the server needs."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FORBIDDEN = (
    "alembic", "asyncpg", "asyncssh", "cryptography", "google", "granian", "grpc", "litestar", "numpy", "prometheus_client",
    "pynvml", "sqlalchemy", "structlog", "uvloop", "control_plane.api", "control_plane.db", "control_plane.domain",
    "control_plane.services", "data_plane", "providers", "reconciler",
)  # fmt: skip
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({out!r}))"
RUN = """
import json, sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + {path!r}
from control_plane.cli import main
for arguments in {runs!r}:
    sys.argv = ["splitplane", *arguments]
    try:
        main.run()
    except SystemExit as end:
        assert end.code in (0, None), (arguments, end.code)
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution, built from a copy of its sources, and nothing else of ours."""
    folder = tmp_path_factory.mktemp("distribution")
    for package in ("cli", "wire"):
        shutil.copytree(Path("control_plane", package), folder / "src" / "control_plane" / package)
    project, wheels, target = folder / "src/control_plane/cli", folder / "wheels", folder / "installed"
    wheels.mkdir()
    _python("-c", BUILD.format(out=str(wheels)), cwd=project)
    [wheel] = wheels.glob("splitplane_cli-*.whl")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    _python(*pip, "--target", str(target), str(wheel), cwd=folder)
    return target


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *arguments], check=False, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def _modules(installed: Path, *runs: list[str]) -> set[str]:
    """The modules that are loaded after these runs. Without `site`, so that the checkout is not on the path."""
    path = [str(installed), sysconfig.get_path("purelib")]
    done = _python("-I", "-S", "-c", RUN.format(path=path, runs=runs), cwd=installed)
    return set(json.loads(done.stderr))


def test_it_runs_without_the_server_and_imports_nothing_of_it(installed: Path) -> None:
    assert {path.name for path in (installed / "control_plane").iterdir()} == {"cli", "wire"}
    assert (installed / "bin" / "splitplane").exists()
    loaded = _modules(installed, ["--help"], ["lease", "create", "--help"], ["completion", "bash"])
    assert "control_plane.cli.commands.leases" in loaded
    assert sorted(name for name in FORBIDDEN if name in loaded) == []


def test_a_command_brings_its_own_file_and_the_version_brings_none(installed: Path) -> None:
    assert not {"httpx", "rich", "msgspec"} & _modules(installed, ["--version"])
    loaded = _modules(installed, ["skus", "--help"])
    assert "control_plane.cli.commands.catalogue" in loaded
    assert "control_plane.cli.commands.leases" not in loaded
