"""kubectl as a customer uses it, and pods that answer each other."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.kubernetes.parts import SERVER_IMAGE

SECONDS_MAX = 120


class KubectlError(subprocess.SubprocessError):
    """What kubectl said when it failed."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """What it prints. Raises KubectlError."""
        done = subprocess.run(
            [*self._command, *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments[:3])} failed: {done.stderr.strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--output=json"))

    @contextmanager
    def forwarded(self, pod: str) -> Iterator[str]:
        """The URL at which the pod answers while a port is forwarded to it."""
        port = _free_port()
        process = subprocess.Popen(
            [*self._command, "port-forward", f"pod/{pod}", f"{port}:8080"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url)
            yield url
        finally:
            process.kill()
            process.wait()

    @property
    def _command(self) -> list[str]:
        return [str(self.program), f"--kubeconfig={self.kubeconfig}"]


def answer(url: str, through: str) -> str:
    """What the pod at a URL answers to the pod that is forwarded to us."""
    got = httpx.get(f"{through}/fetch", params={"url": url}, timeout=30)
    return got.raise_for_status().text.strip()


def server_pod(name: str, node: str, text: str, *, gpus: int = 0) -> dict[str, Any]:
    """A pod that answers with a text at port 8080, as restricted as the namespaces of tenants demand."""
    container = {
        "name": "main",
        "image": SERVER_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", text],
        "resources": {
            "limits": {"cpu": "100m", "memory": "64Mi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            httpx.get(url, timeout=5).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
