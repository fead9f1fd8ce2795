"""The script that dumps the database of a host: what others on the host can see of it."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path("infra/host/backup").absolute()
# Writes down what a list of processes would show, and leaves a file as pg_dump does.
PG_DUMP = """\
#!/bin/sh
echo "$@" > seen
for argument; do case "$argument" in --file=*) echo dump > "${argument#--file=}" ;; esac; done
"""
SETTINGS = {
    "PGHOST": "database",
    "PGDATABASE": "splitplane",
    "PGUSER": "backup_login",
    "PGPASSWORD": "hunter2",
}


def _run(folder: Path, settings: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    for name, script in (("pg_dump", PG_DUMP), ("pg_restore", "#!/bin/sh\n")):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    (folder / "dumps").mkdir()
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "STATE_DIRECTORY": str(folder / "dumps")}
    return subprocess.run(
        ["sh", SCRIPT],
        cwd=folder,
        env=path | settings,
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_password_is_in_the_list_of_processes_and_nobody_else_reads_the_dump(tmp_path: Path) -> None:
    ended = _run(tmp_path, SETTINGS)
    assert ended.returncode == 0, ended.stderr
    seen = (tmp_path / "dumps" / "seen").read_text()
    assert seen.split()[-1] == "splitplane"
    assert "hunter2" not in seen
    (dump,) = (tmp_path / "dumps").glob("*.dump")
    assert dump.suffix == ".dump"
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600


@pytest.mark.parametrize("missing", ["PGHOST", "PGDATABASE", "PGUSER"])
def test_a_setting_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    ended = _run(tmp_path, {name: value for name, value in SETTINGS.items() if name != missing})
    assert ended.returncode != 0
    assert f"{missing}: is missing" in ended.stderr
    assert list((tmp_path / "dumps").iterdir()) == []
