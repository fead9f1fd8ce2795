"""Real Kubernetes answers as the product will meet it: its version, its controllers, its scheduler, its tokens."""

import json
import ssl
import subprocess
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.kubernetes.binaries import KUBERNETES_VERSION
from tests.support.kubernetes.control_plane import ControlPlane, ControlPlaneError, running
from tests.support.kubernetes.pki import Pair
from tests.support.kubernetes.tier import KUBERNETES

pytestmark = KUBERNETES


def _client(plane: ControlPlane, who: Pair, folder: Path) -> httpx.Client:
    certificate, key = folder / "client.crt", folder / "client.key"
    certificate.write_bytes(who.certificate)
    key.write_bytes(who.key)
    context = ssl.create_default_context(cadata=plane.authority.decode())
    context.load_cert_chain(certificate, key)
    return httpx.Client(base_url=plane.url, verify=context, trust_env=False)


def _node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"only": name}}}


def test_it_says_the_version_that_the_pins_name(kubernetes: ControlPlane, tmp_path: Path) -> None:
    with _client(kubernetes, kubernetes.admin, tmp_path) as admin:
        assert admin.get("/version").json()["gitVersion"] == KUBERNETES_VERSION


def test_a_node_with_capacity_gets_the_pods_that_fit(kubernetes: ControlPlane, tmp_path: Path) -> None:
    with _client(kubernetes, kubernetes.admin, tmp_path) as admin:
        admin.post("/api/v1/nodes", json=_node("fits")).raise_for_status()
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}
        status = {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
        patched = admin.patch(
            "/api/v1/nodes/fits/status",
            content=json.dumps({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        patched.raise_for_status()
        admin.post("/api/v1/namespaces", json={"metadata": {"name": "fits"}}).raise_for_status()

        def account() -> bool:
            return admin.get("/api/v1/namespaces/fits/serviceaccounts/default").status_code == 200

        kubernetes.wait_until("the namespace has its service account", account)
        asked = {"nvidia.com/gpu": "8"}
        container = {"name": "c", "image": "none", "resources": {"requests": asked, "limits": asked}}
        spec = {
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"only": "fits"},  # Other tests have nodes as well.
        }
        for name in ("one", "two"):
            pod = {"metadata": {"name": name}, "spec": spec}
            admin.post("/api/v1/namespaces/fits/pods", json=pod).raise_for_status()

        def nodes() -> list[str | None]:
            pods = admin.get("/api/v1/namespaces/fits/pods").json()["items"]
            return sorted(pod["spec"].get("nodeName", "") for pod in pods)

        kubernetes.wait_until("one pod has the node, the other waits", lambda: nodes() == ["", "fits"])
        admin.delete("/api/v1/namespaces/fits")
        admin.delete("/api/v1/nodes/fits")


def test_the_certificate_of_a_node_reads_its_own_node_and_no_other(
    kubernetes: ControlPlane, tmp_path: Path
) -> None:
    with _client(kubernetes, kubernetes.admin, tmp_path) as admin:
        for name in ("mine", "other"):
            admin.post("/api/v1/nodes", json=_node(name)).raise_for_status()
    node = kubernetes.client("system:node:mine", "system:nodes")
    with _client(kubernetes, node, tmp_path) as kubelet:
        assert kubelet.get("/api/v1/nodes/mine").status_code == 200
        assert kubelet.get("/api/v1/nodes/other").status_code == 403
    kubernetes.kubectl("delete", "node", "mine", "other")


def test_a_bootstrap_token_asks_for_a_certificate_and_expires(
    kubernetes: ControlPlane, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cadata=kubernetes.authority.decode())
    bearer = {"Authorization": "Bearer abcdef.0123456789abcdef"}

    def is_answered(status: int) -> bool:
        url = f"{kubernetes.url}/api/v1/nodes"
        return httpx.get(url, verify=context, headers=bearer, trust_env=False).status_code == status

    # In this order, because the API server remembers for ten seconds that a token was right.
    for expires, status in (("2020-01-01T00:00:00Z", 401), ("2126-01-01T00:00:00Z", 403)):
        token = {
            "token-id": "abcdef",
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "expiration": expires,
        }
        secret = {
            "metadata": {"name": "bootstrap-token-abcdef"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": token,
        }
        with _client(kubernetes, kubernetes.admin, tmp_path) as admin:
            admin.post("/api/v1/namespaces/kube-system/secrets", json=secret).raise_for_status()
            kubernetes.wait_until(f"the answer is {status}", partial(is_answered, status))
            admin.delete("/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef")


def test_a_part_that_cannot_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    broken = programs / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho the flag --nonsense is unknown\nexit 3\n")
    broken.chmod(0o755)
    with (
        pytest.raises(
            ControlPlaneError, match=r"kube-apiserver ended with 3: the flag --nonsense is unknown"
        ),
        running(tmp_path / "plane", programs),
    ):
        pytest.fail("it started")
    assert not list((tmp_path / "plane").glob("*/data")), "the data is removed"


def test_kubectl_says_why_it_failed(kubernetes: ControlPlane) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        kubernetes.kubectl("get", "node", "nobody")
    assert "not found" in failed.value.stderr
