"""From a rented machine that answers to a Ready node, step by step, and back to a clean machine.

On two local machines with the stand-in for K3s, or with a real one (`tests/support/kubernetes/k3s_machines.py`).
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.results import Figure, median
from data_plane.cluster.node import forget
from tests.support.kubernetes.clients import eventually
from tests.support.kubernetes.nodes import FIRST, Nodes, prepared_nodes
from tests.support.kubernetes.requirements import reasons

RUNS = 5
STEPS = {
    "prepare": "K3s' files sent and in place",
    "tunnel": "key made, three ends told, first packet",
    "start": "agent started until its Node is registered",
    "ready": "registered until Ready",
    "clean": "everything taken off, and looked for",
}


async def measure() -> list[Figure]:
    absent = reasons(nodes=True)
    if absent:
        print("node_join is left out: " + "; ".join(absent))
        return []
    with TemporaryDirectory() as folder:
        async with prepared_nodes(Path(folder)) as nodes:
            await nodes.agents.clean(nodes.target(FIRST))
            runs = [await _run(nodes, number) for number in range(RUNS)]
    figures = [
        Figure(f"{step}: {what}, p50 of {RUNS}", median([run[step] for run in runs]), "s")
        for step, what in STEPS.items()
    ]
    joined = [sum(run.values()) - run["clean"] for run in runs]
    return [
        Figure(f"a machine that answers becomes a Ready node, p50 of {RUNS}", median(joined), "s"),
        *figures,
    ]


async def _run(nodes: Nodes, number: int) -> dict[str, float]:
    """Seconds of each step."""
    target, agents = nodes.target(FIRST), nodes.agents
    order = await nodes.order(FIRST, number)
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "prepare": lambda: agents.prepare(target),
        "tunnel": lambda: _tunnel(nodes),
        "start": lambda: agents.start(order),
        "ready": lambda: eventually("the node is ready", lambda: nodes.is_ready(FIRST)),
        "clean": lambda: agents.clean(target),
    }
    seconds: dict[str, float] = {}
    for name, step in steps.items():
        began = time.monotonic()
        await step()
        seconds[name] = time.monotonic() - began
    await forget(nodes.port, FIRST)
    return seconds


async def _tunnel(nodes: Nodes) -> None:
    await nodes.tunnel()
    if await nodes.members.probe(nodes.target(FIRST), nodes.server_address) is None:
        raise RuntimeError("the server does not answer through the tunnel")
