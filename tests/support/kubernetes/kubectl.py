"""kubectl as a customer uses it, and pods that answer each other."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from demo.ports import free_port
from tests.support.kubernetes.parts import SERVER_IMAGE

SECONDS_MAX = 120
FORWARDED_AGAIN_SECONDS = 10


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
        port = free_port()
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


def answer(url: str, through: str, *, seconds: float = 0) -> str:
    """What the pod at a URL answers to the pod that is forwarded to us.

    It is asked again for so many seconds: the rules of network policies follow new pods, and not at once. And our own
    way to the pod, which kubectl forwards, may break now and then on a busy machine.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            got = httpx.get(f"{through}/fetch", params={"url": url}, timeout=30)
        except httpx.TransportError:
            if time.monotonic() > end + FORWARDED_AGAIN_SECONDS:
                raise
        else:
            if got.is_success or time.monotonic() > end:
                return got.raise_for_status().text.strip()
        time.sleep(0.2)


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
