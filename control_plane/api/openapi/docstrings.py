"""The docstrings below the fields of a class, which Python does not keep: read from the source, once per module."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise


def of_fields(kind: type) -> Mapping[str, str]:
    """The docstring of each field of a class, those of its bases included; a field without one is left out."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _of_module(base.__module__).get(base.__name__, {})
    return found


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    if not name.startswith("control_plane."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: dict(_documented(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in pairwise(node.body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text).replace("\n", " ")
