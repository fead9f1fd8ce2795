"""The backup of a host never gives its name to a dump that is not whole. `pg_dump` and
`pg_restore` are stand-ins here."""

import os
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path("infra/host/backup").resolve()
KEPT = 7
DUMP = """\
#!/bin/sh
set -eu
for each in "$@"; do case $each in --file=*) file=${each#--file=} ;; esac; done
printf half > "$file"
"""
AGAIN = '[ -n "${INNER-}" ] || INNER=1 timeout 0.5 "$SCRIPT" || true\n'
"""Another backup begins while this one is half done. It may wait for its turn."""
REST = 'printf " and half" >> "$file"\n'


def _old(folder: Path, number: int) -> None:
    """A dump of more than a week ago."""
    file = folder / "dumps" / f"{number:06}-20260101T030000Z.dump"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"old {number}")
    os.utime(file, (time.time() - 86_400 * (60 - number),) * 2)


def _backup(
    folder: Path, pg_dump: str, *, pg_restore: str = "", seconds: int = 20
) -> subprocess.CompletedProcess[str]:
    programs, dumps = folder / "programs", folder / "dumps"
    for each in (programs, dumps):
        each.mkdir(exist_ok=True)
    for name, script in (("pg_dump", pg_dump), ("pg_restore", f"#!/bin/sh\n{pg_restore}")):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    around = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SCRIPT": str(SCRIPT),
        "STATE_DIRECTORY": str(dumps),
        "PGHOST": "/run/postgresql",
        "PGUSER": "splitplane-backup",
        "PGDATABASE": "splitplane",
    }
    command = ["timeout", str(seconds), str(SCRIPT)]
    return subprocess.run(command, env=around, capture_output=True, text=True, check=False)


def _dumps(folder: Path) -> list[str]:
    return [dump.read_text() for dump in sorted((folder / "dumps").glob("*.dump"))]


@pytest.mark.parametrize("between", ["", AGAIN], ids=["alone", "two at once"])
def test_a_dump_is_whole(tmp_path: Path, between: str) -> None:
    ran = _backup(tmp_path, DUMP + between + REST)
    assert ran.returncode == 0, ran.stderr
    assert _dumps(tmp_path) == ["half and half"]


def test_a_dump_that_failed_gets_no_name_and_ends_no_older_one(tmp_path: Path) -> None:
    for number in range(1, KEPT + 1):
        _old(tmp_path, number)
    before = _dumps(tmp_path)
    assert _backup(tmp_path, DUMP + "exit 1").returncode == 1, "the disk is full"
    assert _dumps(tmp_path) == before
    assert _backup(tmp_path, DUMP + REST, pg_restore="exit 1\n").returncode == 1, "it cannot be read"
    assert _dumps(tmp_path) == before
    assert _backup(tmp_path, DUMP + REST).returncode == 0
    assert _dumps(tmp_path) == [*before[1:], "half and half"], "the oldest has made place for it"


@pytest.mark.parametrize(
    "clock", [-86_400 * 20_000, 0, 86_400 * 365 * 10], ids=["1970", "right", "ten years on"]
)
def test_a_wrong_clock_ends_none_of_the_last_seven_and_no_new_dump(tmp_path: Path, clock: int) -> None:
    dumps = tmp_path / "dumps"
    for number in range(3, 3 + KEPT):
        _old(tmp_path, number)
    for each in dumps.iterdir():
        os.utime(each, (each.stat().st_atime, max(1, each.stat().st_mtime + clock)))
    assert _backup(tmp_path, DUMP + REST).returncode == 0
    kept = sorted(each.name[:6] for each in dumps.glob("*.dump"))
    assert kept == [f"{number:06}" for number in range(4, 4 + KEPT)] if clock <= 0 else len(kept) == KEPT + 1
    assert kept[-1] == f"{3 + KEPT:06}"


def test_dumps_of_this_week_stay_however_many_they_are(tmp_path: Path) -> None:
    for _ in range(KEPT + 3):
        assert _backup(tmp_path, DUMP + REST).returncode == 0
    assert len(_dumps(tmp_path)) == KEPT + 3


def test_no_dump_is_made_while_a_restore_holds_the_lock_that_the_page_names(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    page = Path("docs/installing.md").read_text()
    assert "exec 9< /var/lib/splitplane-backup\nflock 9\n" in page
    restore = f"exec 9< {tmp_path}/dumps; flock 9; echo held; sleep 30"
    with subprocess.Popen(["sh", "-c", restore], stdout=subprocess.PIPE, text=True) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        assert _backup(tmp_path, DUMP + REST, seconds=1).returncode == 124, "it waits"
        holding.kill()
