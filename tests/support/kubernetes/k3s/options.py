"""K3s' command line, environment and configuration file. A flag wins over the environment, and that over the file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.support.kubernetes.k3s.layout import CONFIG

FLAGS_OF_ALL = ("config", "data-dir", "debug", "token", "token-file", "v", "log")
FLAGS_OF_AGENTS = (
    "node-name",
    "with-node-id",
    "node-ip",
    "node-external-ip",
    "node-label",
    "node-taint",
    "kubelet-arg",
    "kube-proxy-arg",
    "flannel-iface",
    "flannel-conf",
    "flannel-cni-conf",
    "lb-server-port",
    "private-registry",
    "pause-image",
    "snapshotter",
    "resolv-conf",
    "protect-kernel-defaults",
    "selinux",
    "server",
)
FLAGS_OF_SERVERS = (
    "advertise-address",
    "advertise-port",
    "agent-token",
    "agent-token-file",
    "bind-address",
    "cluster-cidr",
    "cluster-dns",
    "cluster-domain",
    "cluster-init",
    "datastore-endpoint",
    "disable",
    "disable-agent",
    "disable-cloud-controller",
    "disable-helm-controller",
    "disable-kube-proxy",
    "disable-network-policy",
    "egress-selector-mode",
    "flannel-backend",
    "https-listen-port",
    "kube-apiserver-arg",
    "kube-controller-manager-arg",
    "kube-scheduler-arg",
    "secrets-encryption",
    "service-cidr",
    "service-node-port-range",
    "tls-san",
    "write-kubeconfig",
    "write-kubeconfig-group",
    "write-kubeconfig-mode",
)
SWITCHES = {
    "cluster-init",
    "debug",
    "disable-agent",
    "disable-cloud-controller",
    "disable-helm-controller",
    "disable-kube-proxy",
    "disable-network-policy",
    "protect-kernel-defaults",
    "secrets-encryption",
    "selinux",
    "with-node-id",
}
SHORT = {"s": "server", "t": "token", "c": "config", "d": "data-dir", "i": "node-ip", "o": "write-kubeconfig"}
ENVIRONMENT = {
    "K3S_URL": "server",
    "K3S_TOKEN": "token",
    "K3S_TOKEN_FILE": "token-file",
    "K3S_AGENT_TOKEN": "agent-token",
    "K3S_AGENT_TOKEN_FILE": "agent-token-file",
    "K3S_NODE_NAME": "node-name",
    "K3S_DATA_DIR": "data-dir",
    "K3S_CONFIG_FILE": "config",
    "K3S_KUBECONFIG_OUTPUT": "write-kubeconfig",
    "K3S_KUBECONFIG_MODE": "write-kubeconfig-mode",
}


class UsageError(Exception):
    """A flag or a key of the configuration file that K3s does not know."""


@dataclass(frozen=True, slots=True)
class Options:
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def one(self, name: str, default: str = "") -> str:
        """The last value wins, as with every flag that is given twice."""
        return self.values.get(name, (default,))[-1]

    def all(self, name: str) -> list[str]:
        """Every value, of repeated flags and of lists with commas."""
        return [part for value in self.values.get(name, ()) for part in value.split(",") if part]

    def each(self, name: str) -> list[str]:
        """Every value, whose commas are its own."""
        return list(self.values.get(name, ()))

    def is_on(self, name: str) -> bool:
        return self.one(name, "false").lower() in ("true", "1")

    def secret(self, name: str) -> str | None:
        """What a flag or the file that another flag names holds."""
        if self.one(name):
            return self.one(name)
        path = self.one(f"{name}-file")
        return Path(path).read_text().strip() if path else None


def read(command: str, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """The options of `k3s server` or `k3s agent`. Raises UsageError, or OSError when a file cannot be read."""
    known = {*FLAGS_OF_ALL, *FLAGS_OF_AGENTS, *(FLAGS_OF_SERVERS if command == "server" else ())}
    values: dict[str, list[str]] = {}
    for name, value in _flags(arguments):
        if name not in known:
            raise UsageError(f"flag provided but not defined: -{name}")
        values.setdefault(name, []).append(value)
    for variable, name in ENVIRONMENT.items():
        if environment.get(variable) and name in known and name not in values:
            values[name] = [environment[variable]]
    for name, given in _configured(Path(values.get("config", [str(CONFIG)])[-1]), known).items():
        values.setdefault(name, given)
    return Options({name: tuple(given) for name, given in values.items()})


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    left = list(arguments)
    while left:
        flag = left.pop(0)
        if not flag.startswith("-"):
            raise UsageError(f"unexpected argument: {flag}")
        name, equals, value = flag.lstrip("-").partition("=")
        name = SHORT.get(name, name)
        if equals:
            yield name, value
        elif name in SWITCHES:
            yield name, "true"
        elif left:
            yield name, left.pop(0)
        else:
            raise UsageError(f"flag needs an argument: -{name}")


def _configured(path: Path, known: set[str]) -> dict[str, list[str]]:
    """The configuration file, then the files of the folder beside it. `key+` adds to what was there."""
    merged: dict[str, list[str]] = {}
    for file in (path, *sorted(Path(f"{path}.d").glob("*.yaml"))):
        if not file.exists():
            continue
        for key, value in (yaml.safe_load(file.read_text()) or {}).items():
            name = key.removesuffix("+")
            if name not in known:
                continue  # K3s reads what it knows and warns about the rest.
            given = [_text(item) for item in (value if isinstance(value, list) else [value])]
            merged[name] = [*(merged.get(name, []) if key.endswith("+") else []), *given]
    return merged


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
