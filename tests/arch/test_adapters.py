"""No adapter goes around the error law: it names the port's errors only to catch and pass them on."""

import ast
from collections.abc import Iterator

from providers import base
from providers.registry import discovered
from tests.arch.tree import sources

PORT_ERRORS = {
    name
    for name, found in vars(base).items()
    if isinstance(found, type) and issubclass(found, base.ProviderError)
}
IN_MEMORY = {"fake": "it answers nothing that has to be judged: it raises what a test injects"}
HTTPX_ALLOWED = {"AsyncBaseTransport", "Request"}
"""For the signatures of `connect` and of a Sign. Statuses, responses and errors are for rest.py."""
TOO_BROAD = {"", "Exception", "BaseException", "ProviderError", "TimeoutError", "OSError"}
FORBIDDEN_CALLS = {"sleep": "the guard waits", "environ": "the registry reads settings", "getenv": "so too"}


def around_the_law(tree: ast.Module) -> Iterator[str]:
    """What a module does about errors that is not for an adapter to do, with line numbers."""
    caught: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught |= set(ast.walk(node.type)) if node.type else set()
            yield from _handler(node)
    for node in ast.walk(tree):
        name = _last_name(node)
        if name in PORT_ERRORS and node not in caught:
            yield f"line {_line(node)}: {name} is decided by error_law.py; use error_for, error_of or Rest.call"
        if name in FORBIDDEN_CALLS:
            yield f"line {_line(node)}: {name}: {FORBIDDEN_CALLS[name]}"
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "httpx"
            and name not in HTTPX_ALLOWED
        ):
            yield f"line {_line(node)}: httpx.{name} is for rest.py"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "httpx":
            yield f"line {_line(node)}: import httpx as a whole, so that its use shows"


def _handler(handler: ast.ExceptHandler) -> Iterator[str]:
    names = {_last_name(node) for node in ast.walk(handler.type)} - {""} if handler.type else {""}
    if names & TOO_BROAD:
        yield f"line {_line(handler)}: catches everything; the law needs to know what happened"
    if not any(isinstance(node, ast.Raise) for node in ast.walk(handler)):
        yield f"line {_line(handler)}: an error is swallowed"


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def test_no_adapter_maps_errors_by_itself() -> None:
    adapters = {f"providers/{name}.py" for name in discovered().keys() - IN_MEMORY.keys()}
    checked = {source.path: list(around_the_law(source.tree)) for source in sources("providers")}
    assert adapters <= checked.keys()
    assert {path: checked[path] for path in adapters if checked[path]} == {}


def found_in(text: str) -> bool:
    return bool(list(around_the_law(ast.parse(text))))


def test_an_adapter_that_goes_around_the_law_is_found() -> None:
    for text in (
        "raise NoCapacity('sold out')",
        "raise base.NoCapacity('sold out')",
        "raise NoCapacity",
        "TABLE = {'sold-out': NoCapacity}",
        "TABLE = {'sold-out': base.OrderRefused}",
        "def meaning(status) -> type[Rejected]: ...",
        "if response == httpx.codes.OK: pass",
        "from httpx import Response",
        "try:\n    f()\nexcept httpx.HTTPError:\n    raise",
        "try:\n    f()\nexcept Exception:\n    raise",
        "try:\n    f()\nexcept:\n    raise",
        "try:\n    f()\nexcept (ProviderError, KeyError) as error:\n    raise",
        "try:\n    f()\nexcept OrderRefused:\n    pass",
        "await asyncio.sleep(1)",
        "key = os.environ['KEY']",
    ):
        assert found_in(text), text


def test_an_adapter_that_keeps_the_law_is_not_found() -> None:
    for text in (
        "raise error_for(Verb.TERMINATE, Meaning.BUSY, 'still creating it')",
        "raise UnreadableAnswer('two ids for one machine')",
        "try:\n    f()\nexcept OrderRefused as refusal:\n    if refusal.code == 'x':\n        return\n    raise",
        "try:\n    f()\nexcept ClientError as error:\n    raise error_of(verb, failure, RULES) from None",
        "def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None): ...",
        "async def __call__(self, request: httpx.Request) -> None: ...",
    ):
        assert not found_in(text), list(around_the_law(ast.parse(text)))
