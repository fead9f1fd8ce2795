"""Faults that are planted in the graph of a deployment, to see that a rule finds them."""

import json
from collections.abc import Callable
from typing import Any

from tests.support.cloud.graph import Graph, Resource

Fault = Callable[[Graph], None]


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
