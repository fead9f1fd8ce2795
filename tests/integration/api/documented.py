"""Every answer that a test of the API gets has a status that its document names for that endpoint."""

import json
import re
from functools import cache
from pathlib import Path

import httpx

_DOCUMENT = Path("docs/generated/openapi.json")
_EVERYWHERE = frozenset({404, 405})
"""Of requests that belong to no endpoint of the document, and so to none of its responses."""


@cache
def _statuses() -> list[tuple[re.Pattern[str], dict[str, frozenset[int]]]]:
    """The statuses of each method, by a pattern of the path. Exact paths come before those with parameters."""
    paths = json.loads(_DOCUMENT.read_text())["paths"]
    return [
        (
            re.compile(re.sub(r"\\\{[^/]+?\\\}", "[^/]+", re.escape(path)) + "/?"),
            {
                method.upper(): frozenset(map(int, operation["responses"]))
                for method, operation in paths[path].items()
                if "responses" in operation
            },
        )
        for path in sorted(paths, key=lambda path: path.count("{"))
    ]


async def check_documented(answer: httpx.Response) -> None:
    """A hook of a client. Raises AssertionError for a status that the document does not name."""
    request = answer.request
    if request.method == "OPTIONS":
        return
    method = "GET" if request.method == "HEAD" else request.method
    for pattern, methods in _statuses():
        if pattern.fullmatch(request.url.path):
            named = methods.get(method, _EVERYWHERE)
            what = f"{request.method} {request.url.path} answered {answer.status_code}"
            assert answer.status_code in named, f"{what}, and its document names {sorted(named)}"
            return
