"""What a process says when it starts with a private key that it must not use."""

import subprocess
import sys
from pathlib import Path

from data_plane.access.ssh import new_host_key


def test_the_reconciler_refuses_a_key_that_others_may_read_in_one_sentence(tmp_path: Path) -> None:
    loose, absent, text = tmp_path / "loose", tmp_path / "absent", tmp_path / "text"
    loose.write_text("no key")
    loose.chmod(0o644)
    text.write_text("no key")
    text.chmod(0o600)
    for path, said in (
        (loose, f"{loose} has mode 0644, so other users may access this private key; run: chmod 600 {loose}"),
        (absent, "No such file or directory"),
        (text, "it holds no private key in PEM"),
    ):
        done = _start(path)
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert done.returncode == 2, path.name
        assert line.startswith("reconciler: SPLITPLANE_UNSEALING_KEYS_PATH is "), line
        assert said in line, path.name


def test_the_reconciler_does_not_reach_machines_without_a_key_manager_for_its_ssh_authority() -> None:
    done = _start(None)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 2
    assert line.startswith("reconciler: set SPLITPLANE_KMS_KEY or SPLITPLANE_UNSEALING_KEYS_PATH"), line


def _start(key: Path | None) -> "subprocess.CompletedProcess[str]":
    """A reconciler whose database does not answer: the key is looked at before."""
    environment = {
        "SPLITPLANE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "SPLITPLANE_PROVIDER_ACCOUNTS": "local",
        "PROVIDER_LOCAL_URL": "http://127.0.0.1:1",
        "PROVIDER_LOCAL_TOKEN": "token",
        "SPLITPLANE_HUB": "127.0.0.1:22",
        "SPLITPLANE_HUB_HOST_KEY": new_host_key().public,
        "SPLITPLANE_RECONCILER_METRICS_LISTEN": "127.0.0.1:0",
    }
    if key is not None:
        environment["SPLITPLANE_UNSEALING_KEYS_PATH"] = str(key)
    command = [sys.executable, "-m", "reconciler", "run"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
