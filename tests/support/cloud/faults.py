"""Faults that are planted in the graph of a deployment, to see that a rule finds them."""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from tests.support.cloud.graph import Graph, Resource

Fault = Callable[[Graph], None]
Rule = Callable[[Graph], Iterable[str]]


def unbroken(module: ModuleType, whole: Graph, faults: Sequence[tuple[Rule, Fault]]) -> list[str]:
    """What is left to break: faults that their rules let pass, and refusals in a module that no fault was met with."""
    passed = []
    with _yielding(module) as lines:
        for number, (rule, fault) in enumerate(faults):
            broken = whole.copy()
            fault(broken)
            if not list(rule(broken)):
                passed.append(f"fault {number} passes {rule.__name__}")
    source = inspect.getsource(module)
    refusals = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Yield | ast.YieldFrom)]
    silent = [node for node in refusals if lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1))]
    return passed + [f"{module.__name__}:{node.lineno}: {ast.unparse(node)}" for node in silent]


@contextmanager
def _yielding(module: ModuleType) -> Iterator[set[int]]:
    """The lines of a module from which its generators yield meanwhile."""
    lines: set[int] = set()

    def within(frame: FrameType, event: str, value: object) -> Any:
        if event == "return" and value is not None:
            lines.add(frame.f_lineno)
        return within

    def entered(frame: FrameType, _: str, __: object) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_lines = False
        return within

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield lines
    finally:
        sys.settrace(before)


def put(kind: str, name: str, *path: str | int, to: object) -> Fault:
    """An input of a resource has another value; None takes it away."""

    def fault(graph: Graph) -> None:
        *above, last = path
        place: Any = graph.one(kind, name).inputs
        for step in above:
            place = place[step]
        if to is None:
            del place[last]
        else:
            place[last] = to

    return fault


def statement(kind: str, name: str, added: dict[str, Any], *, to_api: bool = False) -> Fault:
    """A policy has one statement more; `to_api`: for the role of the API."""

    def fault(graph: Graph) -> None:
        resource = graph.one(kind, name)
        document = json.loads(resource.inputs["policy"])
        principal = {"Principal": {"AWS": graph.one("Role", "api").arn}} if to_api else {}
        document["Statement"].append(added | principal)
        resource.inputs["policy"] = json.dumps(document)

    return fault


def replaced(kind: str, name: str, words: str, by: str) -> Fault:
    """The text of a policy has other words."""

    def fault(graph: Graph) -> None:
        resource = graph.one(kind, name)
        assert words in resource.inputs["policy"]
        resource.inputs["policy"] = resource.inputs["policy"].replace(words, by)

    return fault


def container(name: str, **changed: object) -> Fault:
    def fault(graph: Graph) -> None:
        task = graph.one("TaskDefinition", name)
        containers = json.loads(task.inputs["containerDefinitions"])
        containers[-1] |= changed
        task.inputs["containerDefinitions"] = json.dumps(containers)

    return fault


def registered(kind: str, name: str, **changed: object) -> Fault:
    """A resource is registered otherwise."""

    def fault(graph: Graph) -> None:
        old = graph.one(kind, name)
        new = {field: getattr(old, field) for field in Resource.__slots__} | changed
        graph.resources[graph.resources.index(old)] = Resource(**new)

    return fault


def drop(kind: str, name: str) -> Fault:
    return lambda graph: graph.resources.remove(graph.one(kind, name))
