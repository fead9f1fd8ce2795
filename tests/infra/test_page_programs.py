"""Every command in the pages about installing and deploying is one: the programs that it is for take its words.

What `splitplane` commands of the other pages say is in tests/unit/cli/test_docs.py; what `pulumi` takes, in test_engine.py.
"""

import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from control_plane import __main__ as control_plane
from control_plane.cli.errors import CliError
from control_plane.cli.main import parsed
from infra.logins import __main__ as logins
from infra.services import SERVICES
from infra.state import __main__ as state
from reconciler import __main__ as reconciler
from tests.support.cloud import aws_commands
from tests.support.cloud.graph import graphs
from tests.support.cloud.page_commands import Command, commands_of_pages, of_text

pytestmark = pytest.mark.xdist_group("infra")
COMPOSE = yaml.safe_load(Path("infra/host/compose.yaml").read_text())["services"]
HOST_RUN = "/opt/splitplane/current/host/run"
KEY = "eu-central-1:123456789012:key/0f1e2d3c-0000-4000-8000-000000000000"


def _fault(command: Command) -> str | None:
    """What is wrong with a command; None also for programs that nobody here knows."""
    program, *words = command.words
    match program:
        case "aws" if words:
            return aws_commands.fault(words) if command.whole or len(words) > 2 else None
        case "pulumi" if words[:2] == ["stack", "output"] and len(words) > 2:
            return None if words[2] in graphs()["prod"].outputs else f"there is no output {words[2]}"
        case "make":
            return _fault_of_make(words)
        case "splitplane" if command.page != "operating":  # There its commands are mentioned in many forms.
            return _exits(lambda: parsed(words)) if command.whole or len(words) > 2 else None
        case "run_task" if words:
            return _fault_of_task(words)
        case "docker":
            return _fault_of_compose(words)
    if program == HOST_RUN:
        module = {"admin": "control_plane", "reconciler": "reconciler"}[words[0]]
        return _fault_of_module(module, words[1:])
    if program.rpartition("/")[2] in ("python", "python3") and words[:1] == ["-m"]:
        return _fault_of_module(words[1], words[2:])
    return None


def _fault_of_module(module: str, words: Sequence[str]) -> str | None:
    parsers: dict[str, Callable[[list[str]], object]] = {
        "control_plane": control_plane._parser().parse_args,
        "reconciler": reconciler.parse,
        "infra.state": state.parser().parse_args,
        "infra.logins": logins.parser().parse_args,
    }
    filled = [word.replace("REGION:ACCOUNT:key/ID", KEY) for word in words]
    return _exits(lambda: parsers[module](filled)) if words and module in parsers else None


def _exits(parse: Callable[[], object]) -> str | None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parse()
    except CliError as error:
        return str(error).splitlines()[0]
    except SystemExit as end:
        return said.getvalue().strip().splitlines()[-1] if end.code else None
    return None


def _fault_of_task(words: Sequence[str]) -> str | None:
    """`run_task PROCESS [COMMAND]`: a process of the deployment, and a command that its module takes."""
    if words[0] not in {service.name for service in SERVICES}:
        return f"there is no process {words[0]}"
    if len(words) == 1:
        return None
    python, dash_m, module, *rest = json.loads(words[1])
    if (python, dash_m) != ("python", "-m"):
        return f"the image has python, not {python} {dash_m}"
    return _fault_of_module(module, rest)


def _fault_of_compose(words: Sequence[str]) -> str | None:
    """`docker compose VERB [OPTION...] SERVICE...`: the services are those of the file."""
    compose, verb, *rest = words
    if compose != "compose" or verb not in ("up", "run", "exec", "stop", "ps"):
        return f"docker {compose} {verb} is not looked at"
    rest = re.sub(r"-e \S+ ", "", " ".join(rest)).split()
    named = [word for word in rest if not word.startswith("-")]
    if verb in ("run", "exec"):
        named = named[:1]
        if not named:
            return f"docker compose {verb} names no service"
    unknown = set(named) - set(COMPOSE)
    return f"there is no service {', '.join(sorted(unknown))}" if unknown else None


def _fault_of_make(words: Sequence[str]) -> str | None:
    targets = set(
        re.findall(r"^([^\s:=]+):", Path("Makefile").read_text().replace("$(BIN)", ".venv/bin"), re.MULTILINE)
    )
    unknown = [word for word in words if "=" not in word and word not in targets]
    return f"make has no {unknown[0]}" if unknown else None


def test_every_command_of_the_pages_is_taken_by_its_program() -> None:
    commands = list(commands_of_pages())
    assert [(str(command), fault) for command in commands if (fault := _fault(command))] == []
    known = {"aws": 12, "pulumi": 20, "splitplane": 60, "run_task": 5, "docker": 10, "make": 3, HOST_RUN: 3}
    for program, least in known.items():
        assert sum(command.words[0] == program for command in commands) >= least, program


@pytest.mark.parametrize(
    "line",
    [
        "aws ecs run-task --cluster X",
        "aws ecs wait task-stopped --cluster X --tasks Y",
        "aws ecs describe-tasks --cluster X --tasks Y --query task",
        "aws logs tail GROUP --sinc 15m",
        "pulumi stack output egress",
        "splitplane account drain ACCOUNT",
        "splitplane orphans list",
        "run_task api2",
        """run_task admin '["python", "-m", "control_plane", "bootstrap"]'""",
        "docker compose run --rm migrater",
        "make images",
        f"{HOST_RUN} reconciler ssh-authority rotat",
        "python -m reconciler audit --none",
        'GROUP=$(aws ec2 describe-security-group --filters Name=group-name,Values=x --query "SecurityGroups[0]")',
        "aws ec2 describe-security-groups --filters Nam=group-name,Values=x",
    ],
)  # fmt: skip
def test_a_command_with_a_fault_is_found(line: str) -> None:
    assert [fault for command in of_text("runbooks", line, whole=True) if (fault := _fault(command))]
