"""Which programs of Kubernetes the tests run; `make kubernetes` builds them."""

import shutil
import sys
from pathlib import Path

from tests.support.golang.build import main
from tests.support.golang.programs import Collection, Module, Program

MODULES = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "v1.36.3"
"""What the API server says it is. Unless told so it says `v0.0.0-master`, which clients that compare versions refuse."""

_STAMP = "k8s.io/component-base/version"
FLAGS = (
    "-trimpath",
    "-ldflags",
    f"-s -w -X {_STAMP}.gitVersion={KUBERNETES_VERSION} -X {_STAMP}.gitMajor=1 -X {_STAMP}.gitMinor=36",
)


def _module(name: str) -> Module:
    return Module(MODULES / name, "kubernetes", FLAGS)


OF_KUBERNETES = _module("kubernetes")


def _kubernetes(name: str, cpu_seconds: int) -> Program:
    return Program(name, OF_KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", cpu_seconds)


CONTROL_PLANE = (
    _kubernetes("kube-apiserver", 528),
    _kubernetes("kube-controller-manager", 138),
    _kubernetes("kube-scheduler", 8),
    _kubernetes("kubectl", 47),
)
NODE = (_kubernetes("kubelet", 40), _kubernetes("kube-proxy", 20))
CONTAINER = Program("container", _module("images"), ".", 6)
"""The one file of the images that tests run."""
NETWORK_POLICIES = Program("network-policies", _module("network_policies"), ".", 60)
"""The network policy controller that K3s has inside: kube-router's."""
KWOK = Program("kwok", _module("kwok"), "sigs.k8s.io/kwok/cmd/kwok", 162)
KUEUE = Program("kueue", _module("kueue"), "sigs.k8s.io/kueue/cmd/kueue", 483)
COLLECTION = Collection(
    "real Kubernetes",
    (*CONTROL_PLANE, *NODE, CONTAINER, NETWORK_POLICIES, KWOK, KUEUE),
    disk_bytes=10 << 30,  # Go's caches grow to 7 GB, and the programs are 0.7 GB.
    download_mb=200,
)

PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ipset": "ipset",
}
"""What the tests need besides, by a program of each: packages of Debian."""


def missing_packages() -> list[str]:
    return sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})


if __name__ == "__main__":
    sys.exit(main(COLLECTION))
