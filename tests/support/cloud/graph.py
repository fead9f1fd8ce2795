"""The resources of a deployment, as the Pulumi program registers them: recorded once, and then looked at and changed."""

import fcntl
import json
import pickle
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

STACKS = ("dev", "staging", "prod")
SIGN_IN = {
    "issuer": "https://login.example.com/realms/acme",
    "client_id": "splitplane",
    "client_secret": True,
    "email_domains": ["example.com", "example.org"],
}
PYTHON = Path(".venv-infra/bin/python")
READY = Path(".venv-infra/.ready")


@dataclass(frozen=True, slots=True)
class Resource:
    urn: str
    id: str
    type: str
    name: str
    parent: str
    provider: str
    inputs: dict[str, Any]
    state: dict[str, Any]
    protect: bool
    ignore_changes: list[str]
    dependencies: list[str]
    """The URNs of what is made before it."""

    @property
    def kind(self) -> str:
        return self.type.rpartition(":")[2]

    @property
    def module(self) -> str:
        return self.type.partition(":")[2].partition("/")[0]

    @property
    def arn(self) -> str:
        return str(self.state["arn"])

    def policies(self) -> Iterator[dict[str, Any]]:
        """The documents of IAM that it has: its rights, or who may use it."""
        for name in ("policy", "assumeRolePolicy"):
            if name in self.inputs:
                yield json.loads(self.inputs[name])

    def statements(self) -> list[dict[str, Any]]:
        return [statement for policy in self.policies() for statement in policy["Statement"]]


@dataclass(frozen=True, slots=True)
class Graph:
    stack: str
    settings: Mapping[str, Any]
    resources: list[Resource]
    outputs: dict[str, Any]

    def of(self, kind: str) -> list[Resource]:
        """Those of a kind, such as `Subnet`; or of one module's, such as `ecs.Service`."""
        return [
            resource
            for resource in self.resources
            if kind in (resource.kind, f"{resource.module}.{resource.kind}")
        ]

    def one(self, kind: str, name: str) -> Resource:
        (found,) = [resource for resource in self.of(kind) if resource.name == name]
        return found

    def containers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every container, with the name of its service."""
        for task in self.of("TaskDefinition"):
            for container in json.loads(task.inputs["containerDefinitions"]):
                yield task.name, container

    def copy(self) -> "Graph":
        found: Graph = pickle.loads(pickle.dumps(self))  # Ten times as fast as copy.deepcopy.
        return found


def settings_of(stack: str) -> dict[str, Any]:
    """What the file of a stack says."""
    text = Path(f"infra/stacks/Pulumi.{stack}.yaml").read_text()
    settings: dict[str, Any] = yaml.safe_load(text)["config"]["splitplane:settings"]
    return settings


@cache
def graphs() -> Mapping[str, Graph]:
    """The graph of every stack, of `dev` with a service that does not exist yet, and of `dev` with sign-in."""
    asked = [{"name": name, "settings": settings_of(name), "added": []} for name in STACKS]
    grown = settings_of("dev")
    grown["services"]["newcomer"] = {"cpu": 256, "memory_mib": 512, "tasks_min": 1, "tasks_max": 1}
    asked.append({"name": "dev", "settings": grown, "added": ["newcomer"]})
    asked.append({"name": "dev", "settings": settings_of("dev") | {"sign_in": SIGN_IN}, "added": []})
    return dict(zip((*STACKS, "grown", "signing_in"), _record(asked), strict=True))


def _record(asked: Sequence[Mapping[str, Any]]) -> Iterator[Graph]:
    make_environment()
    done = subprocess.run(
        [PYTHON, "-m", "tests.support.cloud.inside.record"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for one, answer in zip(asked, json.loads(done.stdout), strict=True):
        resources = [Resource(**resource) for resource in answer["resources"]]
        yield Graph(one["name"], one["settings"], resources, answer["outputs"])


def make_environment() -> None:
    """Install what `infra/` runs on, where `make test` has not done so before."""
    if READY.exists() and READY.stat().st_mtime >= Path("requirements-infra.lock").stat().st_mtime:
        return
    Path("var").mkdir(exist_ok=True)
    with Path("var/venv-infra.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(["make", READY], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr[-3000:]
