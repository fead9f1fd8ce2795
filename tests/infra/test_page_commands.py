"""Blocks of commands that people paste into a shell stop at the first command that fails, although that shell goes on after errors.

Every command is a stand-in here, which writes down its arguments; one of them fails.
"""

import re
import subprocess
from pathlib import Path

import pytest

# It fails when the file `fails` has the number of its call, counted from 1.
STAND_IN = """\
#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
if [ "$*" = "stack output cluster" ]; then echo control; fi
case " $* " in *" run-task "*) echo arn:task ;; *" describe-tasks "*) cat "$EXIT_CODE" ;; esac
[ "$(wc -l < "$CALLS")" != "$(cat "$FAILS")" ]
"""
COMMANDS = (
    *("aws", "pulumi", "sha256sum", "mkdir", "tar", "python3", "ln", "cp"),
    *("systemctl", "systemd-sysusers", "runuser", "docker"),
)
BLOCKS = {
    "a new version on AWS": ("deploying.md", "A new version"),
    "the first release on a host": ("installing.md", "The release"),
    "a new version on a host": ("installing.md", "A new version"),
    "the version before on a host": ("installing.md", "Back to the version before"),
    "a restore on a host": ("installing.md", "Backup and restore"),
    "a restore with containers": ("installing.md", "With containers"),
}


def _block(page: str, heading: str) -> str:
    """The lines in parentheses below a heading, those directly above them that set a variable, and the functions of the page."""
    text = Path("docs", page).read_text()
    functions = re.findall(r"^ *\w+\(\) \{.*?^ *\}$", text, re.MULTILINE | re.DOTALL)
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"^ *(?:[A-Z]+=\S+.*\n)* *\(\n(?:.*\n)*? *\)$", section, re.MULTILINE)
    assert found, f"{page} has no block in parentheses below {heading}"
    return "\n".join([*functions, found.group()])


class Shell:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COMMANDS:
            (folder / name).write_text(STAND_IN)
            (folder / name).chmod(0o755)
        self.exit_code = "0"
        """Of the task that migrates, as AWS tells it."""

    def calls(self, block: str, *, failing: int = 0) -> list[str]:
        """The commands that were run when a shell that goes on after errors is given the block."""
        calls = self._folder / "calls"
        calls.write_text("")
        for name, text in (("fails", str(failing)), ("exit_code", self.exit_code)):
            (self._folder / name).write_text(f"{text}\n")
        dump = self._folder / "dump"
        dump.touch()
        here = re.sub(r"(?m)^ *DUMP=\S+", f"DUMP={dump}", block)
        here = re.sub(r"(?m)^ *exec 9< \S+", f"exec 9< {self._folder}", here)  # The lock of backups.
        subprocess.run(
            ["bash", "-c", here],
            env={
                "PATH": f"{self._folder}:/usr/bin:/bin",
                "HOME": str(self._folder),
                "VERSION": "4f2a1c9b03de",
                "CALLS": str(calls),
                "FAILS": str(self._folder / "fails"),
                "EXIT_CODE": str(self._folder / "exit_code"),
            },
            capture_output=True,
            check=False,
        )
        return calls.read_text().splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_stops_at_the_first_command_that_fails(shell: Shell, name: str) -> None:
    block = _block(*BLOCKS[name])
    all_calls = shell.calls(block)
    assert len(all_calls) >= 4
    for failing in range(1, len(all_calls)):
        assert shell.calls(block, failing=failing) == all_calls[:failing], all_calls[failing - 1]


def test_new_tasks_start_only_after_the_task_that_migrates_ended_well(shell: Shell) -> None:
    block = _block(*BLOCKS["a new version on AWS"])
    assert shell.calls(block)[-1] == "pulumi up"
    for answer in ("1", "None", ""):
        shell.exit_code = answer
        assert "describe-tasks" in shell.calls(block)[-1], answer


@pytest.mark.parametrize(
    ("name", "stopping"),
    [
        (
            "a restore on a host",
            "systemctl stop nginx splitplane-api splitplane-ingest splitplane-reconciler splitplane-backup.timer",
        ),
        ("a restore with containers", "docker compose stop proxy api ingest reconciler"),
    ],
)
def test_a_dump_is_read_to_its_end_before_anything_is_stopped(shell: Shell, name: str, stopping: str) -> None:
    first, second, *_ = shell.calls(_block(*BLOCKS[name]))
    assert first.endswith(" pg_restore --file=/dev/null")
    assert second == stopping


def test_a_dump_is_restored_whole_or_not_at_all() -> None:
    for page in Path("docs").glob("*.md"):
        for command in re.findall(r"pg_restore -[^\n]*", page.read_text()):
            assert "--file=" in command or "--single-transaction" in command, f"{page.name}: {command}"


def test_a_key_that_is_there_is_kept_and_one_that_was_not_written_is_made(tmp_path: Path) -> None:
    page = Path("docs/installing.md").read_text()
    making = re.findall(r"^\[ .*openssl genpkey .* -out (\S+)$", page, re.MULTILINE)
    commands = re.findall(r"^\[ .*openssl genpkey .*$", page, re.MULTILINE)
    assert making == ["unsealing.pem", "token-key.pem"]
    (tmp_path / making[0]).write_text("kept")
    (tmp_path / making[1]).touch()  # So a full disk leaves it.
    subprocess.run(["bash", "-c", "\n".join(commands)], cwd=tmp_path, check=True)
    assert (tmp_path / making[0]).read_text() == "kept"
    assert "BEGIN PRIVATE KEY" in (tmp_path / making[1]).read_text()
