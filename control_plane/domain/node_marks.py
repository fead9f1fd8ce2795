"""Labels and taints that a customer puts on the nodes of a pool, by the rules of Kubernetes.

The rules are those of `apimachinery/pkg/util/validation`: a key is a name of up to 63 characters, with a DNS subdomain
before it where it has a prefix; a value is such a name, or empty.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_SUBDOMAIN_LENGTH_MAX = 253

RESERVED = ("kubernetes.io", "k8s.io", "k3s.io", "cattle.io", "splitplane.io")
"""Kubernetes, K3s and we set labels and taints below these domains, and some of them decide whose pods run where."""


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    """Pods that do not tolerate it are not scheduled there."""
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    """They are scheduled there only when nothing else is free."""
    NO_EXECUTE = "NoExecute"
    """They are not scheduled there, and those that run there are evicted."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: TaintEffect

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


def label_problem(labels: Mapping[str, str]) -> str | None:
    """What is wrong with the labels of nodes, as a sentence; None when nothing is."""
    for key, value in labels.items():
        problem = _key_problem(key) or _value_problem(value)
        if problem is not None:
            return f"The label {f'{key}={value}'!r} cannot be set: {problem}."
    return None


def taint_problem(taints: Sequence[Taint]) -> str | None:
    """What is wrong with the taints of nodes, as a sentence; None when nothing is."""
    seen: set[tuple[str, TaintEffect]] = set()
    for taint in taints:
        problem = _key_problem(taint.key) or _value_problem(taint.value)
        if problem is None and (taint.key, taint.effect) in seen:
            problem = "a node has one taint with a key and an effect"
        if problem is not None:
            return f"The taint {str(taint)!r} cannot be set: {problem}."
        seen.add((taint.key, taint.effect))
    return None


def _key_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _SUBDOMAIN_LENGTH_MAX or not _SUBDOMAIN.fullmatch(prefix)):
        return "what is before the / in its key is not a DNS subdomain in lower case"
    if not _NAME.fullmatch(name):
        return (
            "its key is not 1 to 63 letters, digits or . _ -, starting and ending with a letter or digit"
            " (a domain and a / may be before it)"
        )
    reserved = next((domain for domain in RESERVED if f".{prefix}".endswith(f".{domain}")), None)
    return None if reserved is None else f"keys below {reserved} are reserved"


def _value_problem(value: str) -> str | None:
    if value and not _NAME.fullmatch(value):
        return (
            "its value is not up to 63 letters, digits or . _ -, starting and ending with a letter or digit"
        )
    return None
