"""Runs the Pulumi program with mocks, in the environment of `infra/`, and prints what it would make as JSON.

    .venv-infra/bin/python -m tests.support.cloud.inside.record < asked.json

`asked` is a list of stacks: name, settings, and names of services to add. The answer has a list of resources for each,
as the program registers them with the engine: type, inputs, parent, provider, options.
"""

import json
import runpy
import sys
from dataclasses import replace
from typing import Any, cast

import pulumi
from pulumi.runtime import get_root_resource, mocks, rpc, set_all_config
from pulumi.runtime.settings import set_root_resource
from pulumi.runtime.stack import Stack, run_pulumi_func
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

from infra import config, services
from infra.program import Deployment
from tests.support.cloud.answers import answer

ADDED = {
    # As a process may look one day: it is called by others, reads a file, and reaches the database.
    "newcomer": replace(
        services.VERIFIER,
        name="newcomer",
        reaches=frozenset({services.Reach.DATABASE}),
        connections=5,
        calls=frozenset({"verifier"}),
    ),
}


class Answers(mocks.Mocks):
    def __init__(self, account: str) -> None:
        self.account = account

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return answer(args.typ, args.name, args.inputs, self.account)

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise AssertionError(
            f"the program asks AWS for {args.token}, so its plan depends on more than its configuration"
        )


class Recorder(mocks.MockMonitor):
    """Keeps what the mocks alone do not see: parents, providers and options."""

    def __init__(self, account: str) -> None:
        super().__init__(Answers(account))
        self.recorded: list[dict[str, Any]] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - Pulumi's name
        answer = super().RegisterResource(request)  # type: ignore[no-untyped-call] # Pulumi's own has no types.
        _ensure_event_loop()  # type: ignore[no-untyped-call] # Pulumi's own has no types.
        self.recorded.append(
            {
                "urn": answer.urn,
                "id": answer.id,
                "type": request.type,
                "name": request.name,
                "parent": request.parent,
                "provider": request.provider,
                "inputs": rpc.deserialize_properties(request.object)
                if request.type != "pulumi:pulumi:Stack"
                else {},
                "state": rpc.deserialize_properties(answer.object)
                if request.type != "pulumi:pulumi:Stack"
                else {},
                "protect": request.protect,
                "ignore_changes": list(request.ignoreChanges),
                "dependencies": list(request.dependencies),
            }
        )
        return answer


def record(name: str, settings: dict[str, Any], added: list[str]) -> dict[str, Any]:
    recorder = Recorder(settings["account"])
    set_root_resource(None)  # type: ignore[arg-type] # As it is before the first stack.
    mocks.set_mocks(recorder.mocks, project="splitplane", stack=name, preview=False, monitor=recorder)
    set_all_config({"splitplane:settings": json.dumps(settings)})
    exported: dict[str, Any] = {}

    def program() -> None:
        if added:
            catalogue = (*services.SERVICES, *(ADDED[one] for one in added))
            made = Deployment(config.read(name, settings, catalogue), catalogue).outputs()
        else:  # As Pulumi's language host runs it.
            runpy.run_path("infra", run_name="__main__")
            made = cast("Stack", get_root_resource()).outputs
        pulumi.Output.all(**made).apply(exported.update)

    _sync_await(run_pulumi_func(program))
    return {"resources": recorder.recorded, "outputs": exported}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump([record(one["name"], one["settings"], one["added"]) for one in asked], sys.stdout)
