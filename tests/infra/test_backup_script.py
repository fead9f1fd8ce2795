"""The backup of a host never gives its name to a dump that is not whole. `pg_dump` is a stand-in here."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path("infra/host/backup").resolve()
DUMP = """\
#!/bin/sh
set -eu
for each in "$@"; do case $each in --file=*) file=${each#--file=} ;; esac; done
printf half > "$file"
"""
AGAIN = '[ -n "${INNER-}" ] || INNER=1 timeout 0.5 "$SCRIPT" || true\n'
"""Another backup begins while this one is half done. It may wait for its turn."""
REST = 'printf " and half" >> "$file"\n'


def _backup(folder: Path, pg_dump: str) -> subprocess.CompletedProcess[str]:
    programs, dumps = folder / "programs", folder / "dumps"
    for each in (programs, dumps):
        each.mkdir(exist_ok=True)
    (programs / "pg_dump").write_text(pg_dump)
    (programs / "pg_dump").chmod(0o755)
    around = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SCRIPT": str(SCRIPT),
        "STATE_DIRECTORY": str(dumps),
        "PGHOST": "/run/postgresql",
        "PGUSER": "splitplane-backup",
        "PGDATABASE": "splitplane",
    }
    return subprocess.run([SCRIPT], env=around, capture_output=True, text=True, check=False)


def _dumps(folder: Path) -> list[str]:
    return [dump.read_text() for dump in (folder / "dumps").glob("*.dump")]


@pytest.mark.parametrize("between", ["", AGAIN], ids=["alone", "two at once"])
def test_a_dump_is_whole(tmp_path: Path, between: str) -> None:
    ran = _backup(tmp_path, DUMP + between + REST)
    assert ran.returncode == 0, ran.stderr
    assert _dumps(tmp_path) == ["half and half"]


def test_a_dump_that_failed_gets_no_name_and_ends_no_older_one(tmp_path: Path) -> None:
    old = tmp_path / "dumps" / "20260101T030000Z.dump"
    old.parent.mkdir()
    old.write_text("old")
    os.utime(old, (0, 0))
    assert _backup(tmp_path, DUMP + "exit 1").returncode == 1, "the disk is full"
    assert _dumps(tmp_path) == ["old"]
    assert _backup(tmp_path, DUMP + REST).returncode == 0
    assert _dumps(tmp_path) == ["half and half"]
