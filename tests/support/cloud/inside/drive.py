"""Runs the Pulumi program under the real engine, in the environment of `infra/`, and prints what happened as JSON.

    .venv-infra/bin/python -m tests.support.cloud.inside.drive FOLDER < asked.json

`asked` is a list of steps: the name of the stack, what to do (preview [--target URN], up, destroy), and the stack's settings. FOLDER is
a copy of what the engine reads: Pulumi.yaml and infra/stacks.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import yaml
from pulumi import automation
from pulumi.automation import EngineEvent, LocalWorkspaceOptions, OpType


def program() -> None:
    """As Pulumi's language host runs it."""
    runpy.run_path("infra", run_name="__main__")


def step(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    name = asked["stack"]
    file = folder / "infra" / "stacks" / f"Pulumi.{name}.yaml"
    written = yaml.safe_load(file.read_text())
    written["config"]["splitplane:settings"] = asked["settings"]
    file.write_text(yaml.safe_dump(written))
    stack = automation.create_or_select_stack(
        name, project_name="splitplane", program=program, opts=LocalWorkspaceOptions(work_dir=str(folder))
    )
    steps: list[dict[str, Any]] = []
    said: list[str] = []

    def heard(event: EngineEvent) -> None:
        if event.resource_pre_event is not None:
            metadata = event.resource_pre_event.metadata
            operation = OpType(metadata.op).value
            steps.append({"operation": operation, "urn": metadata.urn, "changed": metadata.diffs or []})
        elif event.diagnostic_event is not None and event.diagnostic_event.severity == "error":
            said.append(event.diagnostic_event.message)

    outputs: dict[str, Any] = {}
    try:
        match asked["do"].split():
            case ["preview", *options]:
                stack.preview(on_event=heard, target=options[1:] or None)  # After `--target`.
            case ["up"]:
                done = stack.up(on_event=heard)
                outputs = {key: value.value for key, value in done.outputs.items()}
            case ["destroy"]:
                stack.destroy(on_event=heard)
    except automation.CommandError as refused:
        said.append(str(refused))
        return {"refused": "\n".join(said), "steps": steps, "outputs": {}}
    return {"refused": None, "steps": steps, "outputs": outputs}


if __name__ == "__main__":
    json.dump([step(Path(sys.argv[1]), one) for one in json.load(sys.stdin)], sys.stdout)
