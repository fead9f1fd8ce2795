"""Which loops exist: every module of `reconciler/loops/` is one, and has a LOOP. Nothing lists them by hand."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from reconciler import loops
from reconciler.loop import AccountLoop, Loop


@cache
def discovered() -> Mapping[str, Loop | AccountLoop]:
    """Every loop by name, in order of name. A loop is called like its file."""
    found: dict[str, Loop | AccountLoop] = {}
    for entry in pkgutil.iter_modules(loops.__path__):
        module = importlib.import_module(f"{loops.__name__}.{entry.name}")
        loop = module.LOOP
        if not isinstance(loop, Loop | AccountLoop) or loop.name != entry.name:
            raise TypeError(f"reconciler/loops/{entry.name}.py has no LOOP of its own name")
        found[loop.name] = loop
    unknown = {name for loop in found.values() for name in loop.wakes} - found.keys()
    if unknown:
        raise LookupError(f"a loop wakes {', '.join(sorted(unknown))}, which does not exist")
    return MappingProxyType(found)
