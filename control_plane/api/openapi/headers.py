"""The headers of requests and answers, as the OpenAPI document declares them."""

from collections.abc import Iterator
from typing import Any

_HEADERS: dict[str, tuple[str, str, str]] = {
    "X-Request-Id": (
        "The id of the request, which finds it in our logs.",
        "string",
        "req_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    ),
    "RateLimit": (
        "What is left of the rate: `r` requests now, `t` seconds until more (draft-ietf-httpapi-ratelimit-headers).",
        "string",
        '"key";r=199;t=1',
    ),
    "RateLimit-Policy": ("The rate: `q` requests in `w` seconds.", "string", '"key";q=200;w=2'),
    "Location": ("The path of the lease.", "string", "/v1/leases/le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"),
    "Idempotency-Replayed": ("`true` when this is the stored answer of an earlier request.", "string", "true"),
    "Retry-After": ("How many seconds to wait before the request is repeated.", "integer", "2"),
    "WWW-Authenticate": ("How to authenticate.", "string", 'Bearer realm="splitplane"'),
    "Allow": ("The methods that the endpoint has.", "string", "GET, POST"),
    "Content-Disposition": ("The name for the file.", "string", 'attachment; filename="usage.csv"'),
}  # fmt: skip
_OF_A_PROBLEM = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes the request safe to repeat: the first request with a key takes effect, and a repetition gets "
    "its answer again. Use a new key, such as a UUID, for each new request.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "example": "6f1d3c3e-6d0b-4a52-8d68-3d2b8a6a3f0e",
}
MONEY_KEY = {
    **IDEMPOTENCY_KEY,
    "required": True,
    "description": "Required, because the request moves money: the first request with a key takes effect, and a "
    "repetition gets its answer again. Use a new key, such as a UUID, for each new request.",
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that the client has; the stream goes on after it. Anything that is no "
    "such id starts the stream at the beginning.",
    "schema": {"type": "string"},
    "example": "751.12.1",
}
PARAMETERS = {
    "IdempotencyKey": IDEMPOTENCY_KEY,
    "RequiredIdempotencyKey": MONEY_KEY,
    "LastEventId": LAST_EVENT_ID,
}


def components() -> dict[str, Any]:
    return {
        name: {
            "description": text,
            "schema": {"type": kind},
            "example": int(example) if kind == "integer" else example,
        }
        for name, (text, kind, example) in _HEADERS.items()
    }


def of_success(method: str, status: int, *, media_type: str, limited: bool) -> dict[str, Any]:
    """The headers of an answer that is no error. `limited` says that the endpoint counts against the rate."""
    return _refs(_names_of_success(method, status, media_type=media_type, limited=limited))


def of_problem(status: int) -> dict[str, Any]:
    return _refs(iter(("X-Request-Id", "RateLimit", "RateLimit-Policy", *_OF_A_PROBLEM.get(status, ()))))


def _names_of_success(method: str, status: int, *, media_type: str, limited: bool) -> Iterator[str]:
    yield "X-Request-Id"
    if limited:
        yield from ("RateLimit", "RateLimit-Policy")
    if method == "post":
        yield "Idempotency-Replayed"
    if status == 202:
        yield "Location"
    if media_type in ("text/csv", "text/html", "application/x-ndjson"):
        yield "Content-Disposition"


def _refs(names: Iterator[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
