"""The memory of a cluster's control plane, with nodes that KWOK plays: each renews its lease like a kubelet.

Resident memory of etcd and of Kubernetes' three programs, as a server of a cluster runs them. A node has what ours
have: GPUs, our labels and one pod. The memory is read a minute after all nodes are ready and their pods run.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.results import Figure
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes.binaries import KWOK, OF_KUBERNETES
from tests.support.kubernetes.control_plane import ControlPlane, running
from tests.support.kubernetes.flags import Ranges
from tests.support.kubernetes.requirements import reasons

FLEETS = tuple(map(int, os.environ.get("BENCH_NODES", "0,100,500,1000").split(",")))
"""Numbers of nodes, rising."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SETTLE_SECONDS = 60
BATCH = 100
"""Nodes in one call of kubectl."""
PODS = Ranges(pods="10.128.0.0/12")
"""Room for a range of pods of each node."""
LEASE_SECONDS = 40
"""How long a kubelet's lease lasts; it is renewed four times as often."""
CAPACITY = {"cpu": "26", "memory": "225Gi", "pods": "110", "nvidia.com/gpu": "1"}
_MIB = 1 << 20
_NODE_READY = """
conditions:
- type: Ready
  status: "True"
  reason: KubeletReady
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
"""
_POD_RUNS = """
phase: Running
startTime: {{ Now | Quote }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
"""


async def measure() -> list[Figure]:
    absent = reasons(nodes=False)
    if not KWOK.path(expected_version()).exists():
        absent.append("kwok is not built: make kubernetes")
    if absent:
        raise SystemExit(f"real Kubernetes is needed: {'; '.join(absent)}")
    return await asyncio.to_thread(_measure)


def _measure() -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, _plane(Path(folder)) as plane:
        nodes = 0
        for wanted in FLEETS:
            began = time.monotonic()
            _add(plane, range(nodes, wanted))
            while _running(plane) < wanted:
                time.sleep(1)
            took, nodes = time.monotonic() - began, wanted
            time.sleep(SETTLE_SECONDS)
            figures += _memory(plane, nodes, took)
    return figures


@contextmanager
def _plane(folder: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, with KWOK, which keeps all nodes alive."""
    go = expected_version()
    stages = folder / "stages.yaml"
    ready = '.status.conditions.[] | select(.type == "Ready") | .status'
    stages.write_text(
        json.dumps(_stage("Node", ready, "True", _NODE_READY))
        + "\n---\n"
        + json.dumps(_stage("Pod", ".status.phase", "Running", _POD_RUNS))
    )
    with running(folder / "plane", OF_KUBERNETES.built(go), PODS) as plane:
        plane.start(
            "kwok",
            KWOK.path(go),
            [
                f"--kubeconfig={plane.admin_kubeconfig}",
                f"--config={stages}",
                "--manage-all-nodes",
                f"--node-lease-duration-seconds={LEASE_SECONDS}",
            ],
        )
        yield plane


def _stage(kind: str, field: str, reached: str, status: str) -> dict[str, Any]:
    """What KWOK does with an object until its field is as it should be (kwok.sigs.k8s.io, Stage Configuration)."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind.lower()}-{reached.lower()}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": [{"key": field, "operator": "NotIn", "values": [reached]}]},
            "next": {"statusTemplate": status},
        },
    }


def _add(plane: ControlPlane, numbers: range) -> None:
    """Nodes, with a pod on each."""
    for first in numbers[::BATCH]:
        batch = range(first, min(first + BATCH, numbers.stop))
        items = [made for number in batch for made in (_node(number), _pod(number))]
        plane.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )


def _node(number: int) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "node-restriction.kubernetes.io/node-pool": f"np-{number // BATCH}",
        "node-restriction.kubernetes.io/organization": f"org-{number // BATCH}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {"allocatable": CAPACITY, "capacity": CAPACITY},
    }


def _pod(number: int) -> dict[str, Any]:
    container = {"name": "work", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default"},
        "spec": {"nodeName": f"node-{number}", "containers": [container]},
    }


def _running(plane: ControlPlane) -> int:
    """How many pods run, which those of ready nodes do."""
    selector = "--field-selector=status.phase=Running"
    return len(plane.kubectl("get", "pods", selector, "--output=name").splitlines())


def _memory(plane: ControlPlane, nodes: int, ready_seconds: float) -> Sequence[Figure]:
    resident = {name: _resident_mib(plane.pid(name)) for name in PROGRAMS}
    parts = ", ".join(f"{name} {mib:.0f}" for name, mib in resident.items())
    figures = [
        Figure(f"{nodes} nodes: memory of the control plane", sum(resident.values()), "MiB", note=parts)
    ]
    if nodes:
        figures.append(Figure(f"{nodes} nodes: until the new ones are ready", ready_seconds, "s"))
    return figures


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB
