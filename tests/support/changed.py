"""Which tests a change can affect: `make test-changed`.

    python -m tests.support.changed               against origin/main where there is one, else against HEAD
    python -m tests.support.changed --base REF    against where the working tree left REF

Prints the test files that can come out otherwise than at the base: those that changed, those that import a changed
file, directly or through others, and those that name one in a string, as a path or as a module that a process of
its own runs. `tests/arch` looks at the whole tree and always belongs to them. Files at the root of the tree (pins,
settings of tools) may affect everything, and so may a file that nothing names: then every test is printed.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.arch.tree import Source, sources

ALWAYS = "tests/arch"
DOCUMENTS = re.compile(r".*\.md|LICENSE|\.gitignore")
"""Files that run nowhere. The rules of `tests/arch` hold them against the tree."""
Graph = Mapping[str, frozenset[str]]
"""By path: the paths that a file needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.changed", description="Tests to run.")
    parser.add_argument("--base", help="a commit; default: origin/main, or HEAD where there is none")
    base = parser.parse_args(arguments).base or _default_base()
    try:
        changed = _changed(base)
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().removeprefix("fatal: ") or "it has no commit in common with HEAD"
        sys.stderr.write(f"BASE={base} cannot be compared with the working tree: {why}\n")
        return 2
    every = all_tests(sources())
    chosen = affected(graph(sources(), data=_data(), gone=_gone(changed)), every, changed)
    sys.stderr.write(f"{len(chosen)} of {len(every)} test files, against {base}\n")
    sys.stdout.writelines(f"{path}\n" for path in chosen)
    return 0


def all_tests(files: Iterable[Source]) -> list[str]:
    """The test files among them."""
    return [file.path for file in files if _is_test(file.path)]


def affected(needs: Graph, every: Sequence[str], changed: Collection[str]) -> list[str]:
    """Those of `every` test file that a change of these paths can affect, and those that always run."""
    needed_by = _turned(needs)
    run = {path for path in changed if not DOCUMENTS.fullmatch(path)}
    if any("/" not in path or path not in needed_by for path in run):
        return list(every)
    reached = _reach(needed_by, changed)
    return [path for path in every if path in reached or path.startswith(f"{ALWAYS}/")]


def graph(files: Sequence[Source], *, data: Collection[str] = (), gone: Collection[str] = ()) -> Graph:
    """What every file needs of the others, of the `data` files beside them, and of modules that are `gone`.

    A test needs the `conftest.py` files above it. A file that imports modules by names that it finds out needs all
    of the packages that it names. So the answer is rather too much than too little.
    """
    tree = _Tree([*(file.path for file in files), *gone], data)
    needs = {file.path: frozenset(tree.needs(file)) - {file.path} for file in files}
    return needs | dict.fromkeys(gone, frozenset())


class _Tree:
    """Finds paths by the names of modules, files and folders."""

    def __init__(self, modules: Collection[str], data: Collection[str]) -> None:
        self._modules = frozenset(modules)
        self._by_name: defaultdict[str, set[str]] = defaultdict(set)
        for path in data:
            self._by_name[Path(path).name].add(path)
        self._below: defaultdict[str, set[str]] = defaultdict(set)
        for path in {*modules, *data}:
            for folder in Path(path).parents:
                self._below[folder.as_posix()].add(path)
        self._data = frozenset(data)

    def needs(self, file: Source) -> Iterator[str]:
        for name in file.imports():
            yield from self.module(name)
        if any(_finds_out(node) for node in file.nodes):
            for name in _brought_in(file):
                yield from self.package(name)
        for text in _strings(file):
            yield from self.named(text)
        if file.path.startswith("tests/"):
            yield from (path for path in self._above(file.path) if path in self._modules)

    def module(self, name: str) -> Iterator[str]:
        """The file of a module, and the `__init__.py` of each package around it."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            yield from {f"{path}.py", f"{path}/__init__.py"} & self._modules

    def package(self, name: str) -> Iterable[str]:
        """Everything below a package; nothing when the name is of something else."""
        path = name.replace(".", "/")
        return self._below[path] & self._modules if f"{path}/__init__.py" in self._modules else ()

    def named(self, text: str) -> Iterator[str]:
        """What a string names: a file, a folder, a module or something in one, a package that is run."""
        text = text.rstrip("/")
        if "/" in text:
            yield from {text} & self._data
            yield from self._below.get(text, ())
        else:
            yield from self._by_name.get(text, ())
        if text.endswith("."):
            yield from self.package(text.rstrip("."))
        yield from {f"{text.replace('.', '/')}/__main__.py"} & self._modules
        if "." in text:
            yield from self.module(text.rstrip("."))

    def _above(self, path: str) -> Iterator[str]:
        return (f"{folder.as_posix()}/conftest.py" for folder in Path(path).parents)


def _finds_out(node: ast.AST) -> bool:
    """Whether it imports a module by a name that is not written there."""
    if isinstance(node, ast.Attribute):
        return node.attr.endswith("import_module")
    return isinstance(node, ast.Name) and node.id.endswith("import_module")


def _brought_in(file: Source) -> Iterator[str]:
    """What its import statements bind, by full names; a package's own `__init__.py` has its package too."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    if file.path.endswith("/__init__.py"):
        yield file.path.removesuffix("/__init__.py").replace("/", ".")


def _strings(file: Source) -> Iterator[str]:
    for node in file.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield node.value


def _turned(needs: Graph) -> dict[str, set[str]]:
    """By path: the paths that need it. Holds every file of the graph."""
    turned: dict[str, set[str]] = {path: set() for path in needs}
    for path, needed in needs.items():
        for other in needed:
            turned.setdefault(other, set()).add(path)
    return turned


def _reach(needed_by: Mapping[str, Collection[str]], begin: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    ahead = list(begin)
    while ahead:
        path = ahead.pop()
        if path not in reached:
            reached.add(path)
            ahead += needed_by.get(path, ())
    return reached


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _default_base() -> str:
    return "origin/main" if _git("branch", "--remotes", "--list", "origin/main") else "HEAD"


def _changed(base: str) -> set[str]:
    """Paths that differ from where the working tree left `base`, new ones included."""
    fork = _git("merge-base", base, "HEAD")[0]
    return {*_git("diff", "--name-only", fork), *_git("ls-files", "--others", "--exclude-standard")}


def _gone(changed: Iterable[str]) -> list[str]:
    """Modules that were deleted. Whoever still imports one comes out otherwise."""
    return [path for path in changed if path.endswith(".py") and not Path(path).exists()]


def _data() -> list[str]:
    """Files that are not Python, new ones included."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard")
    return [path for path in listed if not path.endswith(".py")]


def _git(*arguments: str) -> list[str]:
    """The lines of what git answers. Raises CalledProcessError, which has git's words."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
