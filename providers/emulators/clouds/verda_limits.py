"""The rate limits of the emulated Verda, with the headers that tell what is left of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

WINDOW_SECONDS = 60
REQUESTS_OF_PROJECT = 500
REQUESTS_OF_ENDPOINT = 60
REQUESTS_OF_LISTS = 120
LISTS = frozenset({("GET", "/v1/instances"), ("GET", "/v1/volumes")})


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}


@dataclass
class Limiter:
    """Requests in each minute of the clock: of the project, and of each method and path."""

    now: Callable[[], datetime]
    refused: int = 0
    _minute: datetime | None = None
    _drawn: dict[str, int] = field(default_factory=dict[str, int])

    def draw(self, method: str, path: str) -> dict[str, str]:
        """Count a request; returns the headers that say what is left. Raises Refusal."""
        now = self.now()
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._drawn = minute, {}
        of_endpoint = REQUESTS_OF_LISTS if (method, path) in LISTS else REQUESTS_OF_ENDPOINT
        limits = {"project": REQUESTS_OF_PROJECT, f"{method} {path}": of_endpoint}
        for bucket in limits:
            self._drawn[bucket] = self._drawn.get(bucket, 0) + 1
        left = [most - self._drawn[bucket] for bucket, most in limits.items()]
        seconds = WINDOW_SECONDS - now.second
        headers = _limit_headers(of_endpoint, [max(0, each) for each in left], seconds)
        if min(left) < 0:
            self.refused += 1
            message = "Too many requests for the current project or endpoint window"
            raise Refusal(429, "rate_limit_exceeded", message, headers | {"Retry-After": str(seconds)})
        return headers


def _limit_headers(of_endpoint: int, left: list[int], seconds: int) -> dict[str, str]:
    project, endpoint = left
    return {
        "RateLimit-Policy": f'"project";q={REQUESTS_OF_PROJECT};w={WINDOW_SECONDS}, '
        f'"endpoint";q={of_endpoint};w={WINDOW_SECONDS}',
        "RateLimit": f'"project";r={project};t={seconds}, "endpoint";r={endpoint};t={seconds}',
    }
