"""The shell function of docs/deploying.md that runs a command as a task in the deployment."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cloud import aws_commands

PULUMI = """\
#!/bin/sh
case "$3" in
  cluster) echo splitplane-dev-services ;;
  private_subnets) echo '["subnet-a", "subnet-b"]' ;;
  groups_of_tasks) echo '{"admin": "sg-admin", "reconciler": "sg-reconciler"}' ;;
esac
"""
AWS = """\
#!/bin/sh
printf '%s\\037' "$@" >> calls; echo >> calls
case "$1 $2" in
  "ecs run-task") cat ran ;;
  "ecs describe-tasks") case "$*" in *stoppedReason*) cat reason ;; *) cat exit_code ;; esac ;;
esac
[ -s ran ]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page = Path("docs/deploying.md").read_text()
    found = re.search(r"^    run_task\(\) \{.*?^    \}$", page, re.MULTILINE | re.DOTALL)
    assert found
    (tmp_path / "function").write_text(found.group())
    for name, text in (("pulumi", PULUMI), ("aws", AWS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ran").write_text("arn:aws:ecs:eu-central-1:1:task/services/0f1e\n")
    (tmp_path / "exit_code").write_text("0\n")
    return tmp_path


def _run(folder: Path, arguments: str) -> int:
    ended = subprocess.run(
        ["bash", "-c", f". ./function; run_task {arguments}"],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        check=False,
    )
    return ended.returncode


def test_a_command_runs_with_the_group_of_its_process_and_is_waited_for(folder: Path) -> None:
    assert _run(folder, """reconciler '["python", "-m", "reconciler", "verify-audit"]'""") == 0
    calls = [line.split("\x1f")[:-1] for line in (folder / "calls").read_text().splitlines()]
    assert [fault for call in calls if (fault := aws_commands.fault(call))] == []
    started, waited, log, _ = (" ".join(call) for call in calls)
    assert "subnets=[subnet-a],securityGroups=[sg-reconciler]" in started
    assert '{"name": "reconciler", "command": ["python", "-m", "reconciler", "verify-audit"]}' in started
    assert "--task-definition splitplane-dev-reconciler " in started
    assert waited.startswith("ecs wait tasks-stopped")
    assert log.startswith("logs tail splitplane-dev-reconciler ")
    assert log.endswith("--log-stream-names reconciler/reconciler/0f1e")


def test_without_a_command_the_task_runs_its_own(folder: Path) -> None:
    assert _run(folder, "admin") == 0
    assert "--overrides" not in (folder / "calls").read_text()


def test_it_ends_with_the_exit_code_of_the_command(folder: Path) -> None:
    (folder / "exit_code").write_text("3\n")
    assert _run(folder, "admin") == 3


def test_a_task_whose_command_never_ran_says_why(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "exit_code").write_text("None\n")
    (folder / "reason").write_text("ResourceInitializationError: the secret database-admin has no value\n")
    assert _run(folder, "admin") == 1
    printed = capfd.readouterr()
    assert "the secret database-admin has no value" in printed.out
    assert printed.err == ""
    calls = [line.split("\x1f")[:-1] for line in (folder / "calls").read_text().splitlines()]
    assert [fault for call in calls if (fault := aws_commands.fault(call))] == []


def test_a_task_that_does_not_start_is_a_failure(folder: Path) -> None:
    (folder / "ran").write_text("")
    assert _run(folder, "admin") == 1
