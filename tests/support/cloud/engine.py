"""Pulumi's own engine, which the tests of `infra/` run where `make engine` has built it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud.graph import PYTHON, make_environment
from tests.support.golang.build import main
from tests.support.golang.programs import Collection, Module, Program
from tests.support.golang.toolchain import expected_version

VERSION = "v3.230.0"
"""The newest that Go modules offer with its dependencies; what `modules/pulumi/go.mod` pins."""
PULUMI = Program(
    "pulumi",
    Module(
        Path(__file__).parent / "modules" / "pulumi",
        "pulumi",
        (
            "-trimpath",
            "-ldflags",
            f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={VERSION}",
        ),
    ),
    "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    264,
)
COLLECTION = Collection("Pulumi's engine", (PULUMI,), disk_bytes=5 << 30, download_mb=150)
COMMAND = "make engine"


def missing() -> list[str]:
    """What this machine lacks to run the engine, and the command that builds it. Empty if nothing."""
    if not COLLECTION.unbuilt(expected_version()):
        return []
    return [
        "the tests of infra/ on Pulumi's engine are left out: it is not built. This builds it, once, in 3 minutes",
        COMMAND,
    ]


@dataclass(frozen=True, slots=True)
class Done:
    """What the engine did, or planned, in one step."""

    refused: str | None
    """Why it did not do all of it."""
    steps: list[Mapping[str, Any]]
    """operation (create, same, update, replace, delete, ...), urn, changed inputs."""
    outputs: Mapping[str, Any]

    def operations(self) -> dict[str, set[str]]:
        """The resources of each operation, as `kind name`."""
        found: dict[str, set[str]] = {}
        for step in self.steps:
            _, _, kinds, name = step["urn"].split("::")
            kind = kinds.rpartition("$")[2].rpartition(":")[2]
            found.setdefault(step["operation"], set()).add(f"{kind} {name}")
        return found


class Engine:
    """A folder that the engine works in, with its state in a file and the stand-in of the AWS provider on its path."""

    def __init__(self, folder: Path) -> None:
        make_environment()
        self.folder = folder
        shutil.copytree("infra/stacks", folder / "infra" / "stacks")
        shutil.copy("Pulumi.yaml", folder)
        programs = folder / "programs"
        programs.mkdir()
        plugin = programs / "pulumi-resource-aws"
        plugin.write_text(
            f'#!/bin/sh\ncd {Path.cwd()} && exec {PYTHON.absolute()} -m tests.support.cloud.inside.aws_plugin "$@"\n'
        )
        plugin.chmod(0o755)
        (folder / "state").mkdir()
        self._environment = {
            "PATH": f"{programs}:{PULUMI.path(expected_version()).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "of a test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # The state is written once, at the end of a step, and not after each resource: half of the time.
            "PULUMI_EXPERIMENTAL": "true",
            "PULUMI_SKIP_CHECKPOINTS": "true",
            "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
        }

    def run(self, asked: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[Done]:
        """Do steps one after the other: stack, `preview [--target URN]`, `up` or `destroy`, and the stack's settings."""
        steps = [{"stack": stack, "do": verb, "settings": settings} for stack, verb, settings in asked]
        done = subprocess.run(
            [PYTHON, "-m", "tests.support.cloud.inside.drive", str(self.folder)],
            input=json.dumps(steps),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [Done(**one) for one in json.loads(done.stdout)]

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What a person types: `pulumi ...`, in the folder of Pulumi.yaml."""
        return subprocess.run(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def state(self, stack: str) -> str:
        """The state as the backend holds it."""
        return (self.folder / "state" / ".pulumi" / "stacks" / "splitplane" / f"{stack}.json").read_text()


ENGINE = pytest.mark.skipif(bool(missing()), reason=f"Pulumi's engine is not built: {COMMAND}")

if __name__ == "__main__":
    sys.exit(main(COLLECTION))
