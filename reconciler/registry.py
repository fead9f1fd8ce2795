"""Discovers the loops: every module of a wing in `reconciler/loops/` defines one, as LOOP. There is no list."""

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from reconciler import loops
from reconciler.loop import AccountLoop, Loop

AnyLoop = Loop[Any] | AccountLoop[Any]
"""A loop of any wing. The caller passes a world that has what the wing needs."""
ROWS_ONLY = frozenset({"enforcement", "housekeeping", "money", "sla", "telemetry"})
"""Wings whose loops reach no provider and no machine. A process that runs only them has no provider accounts."""


class MalformedLoop(TypeError):  # noqa: N818 - says what is wrong with a file, not with a call
    """A file in `reconciler/loops/` does not define a loop as it has to."""


@cache
def wings() -> tuple[str, ...]:
    """The wings, sorted by name: the folders of `reconciler/loops/`."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(loops.__path__) if entry.ispkg))


@cache
def of_wing(wing: str) -> Mapping[str, AnyLoop]:
    """The loops of a wing by name. Imports no other wing."""
    package = importlib.import_module(f"{loops.__name__}.{wing}")
    found = (
        loop_of(importlib.import_module(f"{package.__name__}.{entry.name}"), wing)
        for entry in pkgutil.iter_modules(package.__path__)
    )
    return MappingProxyType({loop.name: loop for loop in found})


def loop_of(module: ModuleType, wing: str) -> AnyLoop:
    """The loop that a file of a wing defines. Raises MalformedLoop."""
    name = module.__name__.rpartition(".")[2]
    loop = getattr(module, "LOOP", None)
    if not isinstance(loop, Loop | AccountLoop) or loop.name != name:
        raise MalformedLoop(f"reconciler/loops/{wing}/{name}.py has no LOOP named {name!r}")
    if wing in ROWS_ONLY and isinstance(loop, AccountLoop):
        raise MalformedLoop(
            f"reconciler/loops/{wing}/{name}.py defines an AccountLoop, but the wing {wing} works on rows alone and "
            "has no provider accounts; use Loop, or move the file to another wing"
        )
    return loop


@cache
def names() -> Mapping[str, str]:
    """The wing of every loop, by the loop's name. Imports no loop."""
    return MappingProxyType(
        {
            entry.name: wing
            for wing in wings()
            for entry in pkgutil.iter_modules([f"{path}/{wing}" for path in loops.__path__])
        }
    )


def discovered(only: Collection[str] | None = None) -> Mapping[str, AnyLoop]:
    """Every loop by name, sorted by name; with `only`, those of these wings."""
    chosen = wings() if only is None else tuple(only)
    found = {name: loop for wing in chosen for name, loop in of_wing(wing).items()}
    return MappingProxyType(dict(sorted(found.items())))
