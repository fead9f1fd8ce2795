"""The source tree as the rules of the house see it: files, their syntax, what they import."""

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

PRODUCT = ("environment", "tracing", "control_plane", "providers", "reconciler", "data_plane")
AROUND = ("infra", "demo", "benchmarks", "tests")


@dataclass(frozen=True)
class Source:
    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_migration(self) -> bool:
        return "/migrations/" in self.path

    def imports(self) -> Iterator[str]:
        """Absolute names of modules, as far as an import statement tells: `from a import b` is `a` and `a.b`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, walked once, in the order of `ast.walk`: most rules look at all of it."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # It grows on the way.
            for value in vars(node).values():
                if isinstance(value, ast.AST):
                    found.append(value)
                elif isinstance(value, list):
                    found += [part for part in value if isinstance(part, ast.AST)]
        return tuple(found)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def sources(*roots: str) -> tuple[Source, ...]:
    """Every Python file under `roots`, or of the whole tree."""
    found: list[Source] = []
    gc.disable()  # A collection would find nothing, and look at every tree for that.
    try:
        for root in roots or (*PRODUCT, *AROUND):
            found += [_source(path) for path in sorted(Path(root).rglob("*.py"))]
    finally:
        gc.enable()
    gc.freeze()  # The trees, of more than a million nodes, stay to the end of the run.
    return tuple(found)


@cache
def _source(path: Path) -> Source:
    """One file, parsed once, whichever roots it is asked for by."""
    text = path.read_text()
    return Source(path.as_posix(), text, ast.parse(text))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1
