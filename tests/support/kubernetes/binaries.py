"""Which programs of Kubernetes the tests run, and where they lie once `make kubernetes` has built them.

They are built from Go modules, whose versions `modules/*/go.mod` pins and whose contents `go.sum` checks. A module's
folder is named by a hash of all that the result depends on, so a changed pin builds anew and an old one stays whole.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

CACHE = Path.home() / ".cache" / "splitplane"
MODULES = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "v1.36.3"
"""What the API server says it is. Unless told so it says `v0.0.0-master`, which clients that compare versions refuse."""

_STAMP = "k8s.io/component-base/version"
FLAGS = (
    "-trimpath",
    "-ldflags",
    f"-s -w -X {_STAMP}.gitVersion={KUBERNETES_VERSION} -X {_STAMP}.gitMajor=1 -X {_STAMP}.gitMinor=36",
)
ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",  # Otherwise a go.mod could make Go download another Go.
    "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
    "GOWORK": "off",
}


@dataclass(frozen=True, slots=True)
class Binary:
    name: str
    module: str
    """The folder in `modules/`."""
    package: str
    cpu_seconds: int
    """What it took on an x86-64 core in November 2026, after those before it."""


def _kubernetes(name: str, cpu_seconds: int) -> Binary:
    return Binary(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", cpu_seconds)


CONTROL_PLANE = (
    _kubernetes("kube-apiserver", 528),
    _kubernetes("kube-controller-manager", 138),
    _kubernetes("kube-scheduler", 8),
    _kubernetes("kubectl", 47),
)
NODE = (_kubernetes("kubelet", 40), _kubernetes("kube-proxy", 20))
CONTAINER = Binary("container", "images", ".", 6)
"""The one file of the images that tests run."""
KWOK = Binary("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", 162)
KUEUE = Binary("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", 483)
BINARIES = (*CONTROL_PLANE, *NODE, CONTAINER, KWOK, KUEUE)
"""In the order in which they are built: those that most tests need come first."""

PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
}
"""What the tests need besides, by a program of each: packages of Debian."""


def digest(module: str, go: str) -> str:
    """A name for what Go of this version, such as `go1.26.8`, makes of a module as it is pinned now."""
    folder = MODULES / module
    settings = json.dumps([go, FLAGS, ENVIRONMENT])
    files = [folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))]
    parts = [settings.encode(), *(file.read_bytes() for file in files if file.exists())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def folder_of(module: str, go: str, cache: Path = CACHE) -> Path:
    return cache / "kubernetes" / f"{module}-{digest(module, go)}"


def path_of(binary: Binary, go: str, cache: Path = CACHE) -> Path:
    return folder_of(binary.module, go, cache) / binary.name


def unbuilt(go: str, cache: Path = CACHE) -> list[Binary]:
    return [binary for binary in BINARIES if not path_of(binary, go, cache).exists()]


def missing_packages() -> list[str]:
    return sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
