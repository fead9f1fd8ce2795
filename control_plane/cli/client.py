"""HTTP to the API: requests with a limited number of retries, and a sentence for every failure.

A request is repeated after a lost connection, a 5xx and a 429. Repeating a POST is safe, because all tries of
one call have the same Idempotency-Key and the API takes action once. The API key is in one header and
nowhere else. It is removed from every error before that is shown, because a proxy may echo what it received.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import httpx
import msgspec

from control_plane.cli.answers import Answer, read
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, Exit, network
from control_plane.wire.common import Request

TRIES_MAX = 4
FIRST_WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 10.0
PAGES_MAX = 200
"""A longer listing is refused, because an incomplete list would be taken for the whole."""
PAGE_LIMIT = 200
STREAM_SILENCE_SECONDS = 45.0
"""The API sends heartbeats more often than this, so a stream that is silent for longer is dead."""

_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_RETRIED = frozenset({429, 500, 502, 503, 504})

T = TypeVar("T")


def user_agent() -> str:
    try:
        return f"splitplane-cli/{version('splitplane')}"
    except PackageNotFoundError:  # Run from a checkout that is not installed.
        return "splitplane-cli"


@dataclass(frozen=True, slots=True)
class Stream:
    """An open stream of server-sent events."""

    chunks: Iterator[bytes]


class Client:
    """A client with one login. `transport`, `sleep` and `new_key` are arguments so that tests can replace them."""

    def __init__(
        self,
        login: Login,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self.login = login
        self._sleep = sleep
        self._new_key = new_key
        self._http = httpx.Client(
            base_url=login.url,
            headers={
                "Authorization": f"Bearer {login.api_key}",
                "User-Agent": user_agent(),
                "Accept": "application/json, application/problem+json",
            },
            timeout=_TIMEOUT,
            transport=transport,
            follow_redirects=False,  # A redirect must not take the API key to another host.
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> Answer[T]:
        return self._read(self._answered("GET", path, params=params), kind)

    def text(self, path: str, params: Mapping[str, Any] | None = None) -> str:
        """A document that is not JSON. One that is cut short raises an error."""
        return self._answered("GET", path, params=params).text

    def post(self, path: str, kind: type[T], body: Request | None = None) -> Answer[T]:
        headers = {"Idempotency-Key": self._new_key()}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        return self._read(self._answered("POST", path, content=content, headers=headers), kind)

    def delete(self, path: str) -> None:
        with suppress(_GoneAfterRetry):  # The first try deleted it, and its answer was lost.
            self._answered("DELETE", path)

    def every(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> Answer[T]:
        """All pages of a listing, as one page of `kind`."""
        first, *others = self.pages(path, kind, params)
        items = [item for page in (first, *others) for item in page.content["items"]]
        return read({**first.content, "items": items, "next_cursor": None}, kind)

    def pages(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> Iterator[Answer[T]]:
        asked = {"limit": PAGE_LIMIT, **(params or {})}
        for _ in range(PAGES_MAX):
            page = self.get(path, kind, asked)
            yield page
            cursor = page.content.get("next_cursor")
            if not cursor:
                return
            asked["cursor"] = cursor
        raise CliError(f"The list has more than {PAGES_MAX} pages; narrow it down.", code="list_too_long")

    @contextmanager
    def stream(self, path: str, *, last_event_id: str) -> Iterator[Stream]:
        """Open an event stream after `last_event_id`. It is not retried here; the caller knows how far it got."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        timeout = httpx.Timeout(STREAM_SILENCE_SECONDS, connect=5.0)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    raise self._refusal(response)
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise network(f"{self.login.url}{path} does not answer with an event stream.")
                yield Stream(response.iter_bytes())
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _answered(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        wait = FIRST_WAIT_SECONDS
        for tries_left in range(TRIES_MAX - 1, -1, -1):
            try:
                response = self._http.request(method, path, params=params, content=content, headers=headers)
            except httpx.TransportError as error:
                if tries_left == 0:
                    raise self._unreachable(error) from None
                self._sleep(wait)
            else:
                if response.is_success:
                    return response
                if response.status_code == 404 and method == "DELETE" and tries_left < TRIES_MAX - 1:
                    raise _GoneAfterRetry
                if response.status_code not in _RETRIED or tries_left == 0:
                    raise self._refusal(response)
                self._sleep(_asked_wait(response, wait))
            wait = min(wait * 2, WAIT_SECONDS_MAX)
        raise AssertionError("the last try either returns or raises")

    def _read(self, response: httpx.Response, kind: type[T]) -> Answer[T]:
        try:
            return read(response.json(), kind)
        except ValueError as error:  # Not JSON, or JSON of another shape.
            detail = f" ({error})" if isinstance(error, msgspec.ValidationError) else ""
            raise network(
                self._redacted(
                    f"{self.login.url} answered with something that this version cannot read{detail};"
                    " is this the URL of the API?"
                )
            ) from None

    def _unreachable(self, error: httpx.TransportError) -> CliError:
        why = str(error) or type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            why = "it did not answer in time"
        return network(
            self._redacted(f"Cannot reach {self.login.url}: {why}. Check the URL and your network.")
        )

    def _refusal(self, response: httpx.Response) -> CliError:
        """An error answer as an error of ours, with its code and sentence where it is a problem document."""
        status = response.status_code
        if response.is_redirect:
            target = response.headers.get("location", "elsewhere")
            return network(self._redacted(f"{self.login.url} redirects to {target}; log in with that URL."))
        problem = _problem(response)
        code = str(problem.get("code") or f"http_{status}")
        sentence = problem.get("detail") or problem.get("title")
        if not isinstance(sentence, str) or not sentence:
            sentence = f"{self.login.url} answered {status} {response.reason_phrase} without a reason."
        faults = [fault for fault in problem.get("errors") or [] if isinstance(fault, dict)]
        for fault in faults:
            if str(fault.get("detail")) not in sentence:
                sentence += f"\n  {fault.get('field')}: {fault.get('detail')}"
        if status == 401:
            sentence = f"{sentence} The API key used is {self.login.source}."
        if status >= 500 and (
            request_id := problem.get("request_id") or response.headers.get("x-request-id")
        ):
            sentence = f"{sentence} Request {request_id}."
        exit_code = Exit.NETWORK if status in (502, 503, 504) and "code" not in problem else Exit.REFUSED
        return CliError(
            self._redacted(sentence),
            code=self._redacted(code),
            exit_code=exit_code,
            status=status,
            fields=tuple(str(fault.get("field")) for fault in faults),
        )

    def _redacted(self, text: str) -> str:
        return text.replace(self.login.api_key, "(your key)") if self.login.api_key else text


class _GoneAfterRetry(Exception):  # noqa: N818 - It is not an error, and ends a repeated DELETE.
    pass


def _asked_wait(response: httpx.Response, wait: float) -> float:
    """Seconds to wait: what the API asks for, up to our limit; otherwise our own back-off."""
    asked = response.headers.get("retry-after", "")
    return min(float(asked), WAIT_SECONDS_MAX) if asked.isascii() and asked.isdigit() else wait


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
