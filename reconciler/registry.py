"""Discovers the loops: every module of a wing in `reconciler/loops/` defines one, as LOOP. There is no list."""

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from reconciler import loops
from reconciler.loop import AccountLoop, Loop

AnyLoop = Loop[Any] | AccountLoop[Any]
"""A loop of any wing. The caller passes a world that has what the wing needs."""


@cache
def wings() -> tuple[str, ...]:
    """The wings, sorted by name: the folders of `reconciler/loops/`."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(loops.__path__) if entry.ispkg))


@cache
def of_wing(wing: str) -> Mapping[str, AnyLoop]:
    """The loops of a wing by name. Imports no other wing."""
    package = importlib.import_module(f"{loops.__name__}.{wing}")
    found: dict[str, AnyLoop] = {}
    for entry in pkgutil.iter_modules(package.__path__):
        loop = importlib.import_module(f"{package.__name__}.{entry.name}").LOOP
        if not isinstance(loop, Loop | AccountLoop) or loop.name != entry.name:
            raise TypeError(f"reconciler/loops/{wing}/{entry.name}.py has no LOOP named {entry.name!r}")
        found[loop.name] = loop
    return MappingProxyType(found)


def discovered(only: Collection[str] | None = None) -> Mapping[str, AnyLoop]:
    """Every loop by name, sorted by name; with `only`, those of these wings."""
    chosen = wings() if only is None else tuple(only)
    found = {name: loop for wing in chosen for name, loop in of_wing(wing).items()}
    return MappingProxyType(dict(sorted(found.items())))
