"""HTTP to the API: requests with a limited number of retries, and a sentence for every failure.

A request is repeated after a lost connection, a 5xx and a 429, for a limited time. Repeating a POST is safe,
because all tries of one call have the same Idempotency-Key and the API takes action once. The API key is in one
header and nowhere else. It is removed from every error before that is shown, because a proxy may echo what it
received.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import msgspec

from control_plane.cli.answers import Answer, read
from control_plane.cli.clock import Clock
from control_plane.cli.config import Login
from control_plane.cli.errors import CliError, Exit, not_the_api, unreachable
from control_plane.cli.outage import Outage
from control_plane.cli.signing_in import SessionAuth
from control_plane.cli.version import VERSION
from control_plane.wire.common import Request

TRY_SECONDS = 60.0
"""For how long one call is tried, unless `--timeout` says otherwise."""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
"""After so long without an answer a try is given up and repeated."""
TRIES_OF_A_FAULT_MAX = 4
"""How often a request is sent that the API answers with 500, which a repetition rarely changes."""
FIRST_WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 10.0
PAGES_MAX = 200
"""A longer listing is refused, because an incomplete list would be taken for the whole."""
PAGES_SHOWN_MAX = 5_000
"""Of a listing that is shown page by page and not held: a million rows."""
PAGE_LIMIT = 200
STREAM_SILENCE_SECONDS = 45.0
"""The API sends heartbeats more often than this, so a stream that is silent for longer is dead."""

_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_RETRIED = frozenset({429, 500, 502, 503, 504})

T = TypeVar("T")


def user_agent() -> str:
    return f"splitplane-cli/{VERSION}"


@dataclass(frozen=True, slots=True)
class Stream:
    """An open stream of server-sent events."""

    chunks: Iterator[bytes]


class Client:
    """A client with one login. Each call is tried for up to `try_seconds`; `report` tells a person of an outage.

    `transport`, `clock` and `new_key` are arguments so that tests can replace them.
    """

    def __init__(
        self,
        login: Login,
        *,
        auth: SessionAuth | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        report: Callable[[str], None] = lambda _: None,
        try_seconds: float = TRY_SECONDS,
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self.login = login
        self.clock = clock or Clock()
        self.outage = Outage(login.url, self.clock, lambda sentence: report(self._redacted(sentence)))
        self._try_seconds = try_seconds
        self._auth = auth
        self.new_key = new_key
        self._http = httpx.Client(
            base_url=login.url,
            headers={
                **({"Authorization": f"Bearer {login.api_key}"} if auth is None else {}),
                "User-Agent": user_agent(),
                "Accept": "application/json, application/problem+json",
            },
            auth=auth,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
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

    def post(
        self, path: str, kind: type[T], body: Request | None = None, *, key: str | None = None
    ) -> Answer[T]:
        """POST once. `key` is the Idempotency-Key, where the caller chose one."""
        return self._once("POST", path, kind, body, key)

    def patch(self, path: str, kind: type[T], body: Request) -> Answer[T]:
        return self._once("PATCH", path, kind, body)

    def _once(
        self, method: str, path: str, kind: type[T], body: Request | None, key: str | None = None
    ) -> Answer[T]:
        """A request that takes effect once, however often it is sent until an answer arrives."""
        headers = {"Idempotency-Key": key or self.new_key()}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        return self._read(self._answered(method, path, content=content, headers=headers), kind)

    def put(self, path: str, kind: type[T], body: Request) -> Answer[T]:
        headers = {"Content-Type": "application/json"}
        content = msgspec.json.encode(body)
        return self._read(self._answered("PUT", path, content=content, headers=headers), kind)

    def delete(self, path: str) -> None:
        with suppress(_GoneAfterRetry):  # The first try deleted it, and its answer was lost.
            self._answered("DELETE", path)

    def every(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> Answer[T]:
        """All pages of a listing, as one page of `kind`."""
        return self.whole(path, kind, {"limit": PAGE_LIMIT, **(params or {})})

    def whole(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> Answer[T]:
        """All of a listing that an older API answers in one page, and that a newer one may divide."""
        first, *others = self.pages(path, kind, params, pages_max=PAGES_MAX)
        if not others:
            return first
        items = [item for page in (first, *others) for item in page.content["items"]]
        return read({**first.content, "items": items, "next_cursor": None}, kind)

    def pages(
        self,
        path: str,
        kind: type[T],
        params: Mapping[str, Any] | None = None,
        *,
        pages_max: int = PAGES_SHOWN_MAX,
    ) -> Iterator[Answer[T]]:
        """The pages of a listing as they come, for one that is too long to hold."""
        asked = dict(params or {})
        for _ in range(pages_max):
            page = self.get(path, kind, asked)
            yield page
            cursor = page.content.get("next_cursor")
            if not cursor:
                return
            asked["cursor"] = cursor
        raise CliError(f"The list has more than {pages_max} pages; narrow it down.", code="list_too_long")

    def lines(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """The lines of a long document, as they come, each with its newline. It is not repeated from the middle."""
        rest = b""
        for chunk in self.chunks(path, params):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def chunks(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """The bytes of a long document, as they come. It is not repeated from the middle."""
        request = self._request("GET", path, params=params, timeout=_timeout(self._try_seconds))
        began = self.clock.seconds()
        try:
            with closing(self._http.send(request, stream=True)) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error, since=began) from None

    @contextmanager
    def stream(self, path: str, *, last_event_id: str) -> Iterator[Stream]:
        """Open an event stream after `last_event_id`. It is not retried here; the caller knows how far it got."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        timeout = httpx.Timeout(STREAM_SILENCE_SECONDS, connect=CONNECT_SECONDS)
        request = self._request("GET", path, headers=headers, timeout=timeout)
        since = self.clock.seconds()
        answered = self.outage.watched(since=since, waits_for=STREAM_SILENCE_SECONDS)
        try:
            with closing(self._http.send(request, stream=True)) as response:
                answered()
                if response.status_code != 200:
                    response.read()
                    raise self._refusal(response)
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise not_the_api(f"{self.login.url}{path} does not answer with an event stream.")
                self.outage.over()
                yield Stream(self._heard(response))
        except httpx.TransportError as error:
            raise self._unreachable(error, since=since) from None
        finally:
            answered()

    def _heard(self, response: httpx.Response) -> Iterator[bytes]:
        """The chunks of an open stream. When it breaks, the outage begins then and not when it was opened."""
        try:
            yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error, since=self.clock.seconds()) from None

    def _answered(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """The first answer that is not worth another try. Tries end when `try_seconds` are over."""
        started = self.clock.seconds()
        wait, tries = FIRST_WAIT_SECONDS, 0
        while True:
            tries += 1
            began = self.clock.seconds()
            left = started + self._try_seconds - began
            request = self._request(
                method, path, params=params, content=content, headers=headers, timeout=_timeout(left)
            )
            try:
                response = self._sent(request, began, left)
            except httpx.TransportError as lost:
                error, pause = self._unreachable(lost, since=began), wait
            else:
                if response.status_code not in _RETRIED:
                    self.outage.over()
                    return self._accepted(response, repeated=tries > 1)
                error, pause = self._refusal(response), _asked_wait(response, wait)
                if response.status_code == 500 and tries >= TRIES_OF_A_FAULT_MAX:
                    raise error
            if self.clock.seconds() + pause >= started + self._try_seconds:
                raise error
            self.outage.failed(error, next_try_in=pause, tries_for=self._try_seconds)
            self.clock.sleep(pause)
            wait = min(wait * 2, WAIT_SECONDS_MAX)

    def _request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        """A request. Ids, cursors and the ids of events come from the API, and one may be no text for a request."""
        try:
            return self._http.build_request(method, path, **parts)
        except (httpx.InvalidURL, UnicodeError):
            raise not_the_api(f"{self.login.url} sent an id that cannot be one.") from None

    def _sent(self, request: httpx.Request, began: float, left: float) -> httpx.Response:
        """One try. It is reported when it stays without an answer."""
        answered = self.outage.watched(since=began, waits_for=left)
        try:
            return self._http.send(request)
        finally:
            answered()

    def _accepted(self, response: httpx.Response, *, repeated: bool) -> httpx.Response:
        if response.is_success:
            return response
        if response.status_code == 404 and response.request.method == "DELETE" and repeated:
            raise _GoneAfterRetry
        raise self._refusal(response)

    def _read(self, response: httpx.Response, kind: type[T]) -> Answer[T]:
        try:
            return read(msgspec.json.decode(response.content), kind)
        except ValueError as error:  # Not JSON, or JSON of another shape.
            detail = f" ({error})" if isinstance(error, msgspec.ValidationError) else ""
            raise not_the_api(
                self._redacted(
                    f"{self.login.url} answered with something that this version cannot read{detail};"
                    " is this the URL of the API?"
                )
            ) from None

    def _unreachable(self, error: httpx.TransportError, *, since: float) -> CliError:
        why = _ERRNO.sub("", str(error)) or type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            why = "it did not answer in time"
        sentence = f"Cannot reach {self.login.url}: {why}. Check the URL and your network."
        reason = f"cannot be reached: {self._redacted(why)}"
        return unreachable(self._redacted(sentence), reason=reason, since=since)

    def _refusal(self, response: httpx.Response) -> CliError:
        """An error answer as an error of ours, with its code and sentence where it is a problem document."""
        status = response.status_code
        if response.is_redirect:
            target = response.headers.get("location", "elsewhere")
            return not_the_api(
                self._redacted(f"{self.login.url} redirects to {target}; log in with that URL.")
            )
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
            used = "API key" if self._auth is None else "session"
            sentence = f"{sentence} The {used} used is {self.login.source}."
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
            reason=self._redacted(f"answered {status} ({code})"),
            fields=tuple(str(fault.get("field")) for fault in faults),
            problem=json.loads(self._redacted(json.dumps(problem))),
        )

    def _redacted(self, text: str) -> str:
        for secret in (self.login.api_key, *(self._auth.secrets if self._auth is not None else ())):
            text = text.replace(secret, "(your key)") if secret else text
        return text


class _GoneAfterRetry(Exception):  # noqa: N818 - It is not an error, and ends a repeated DELETE.
    pass


def _timeout(left: float) -> httpx.Timeout:
    """How long a try may take when the call has `left` seconds."""
    return httpx.Timeout(max(1.0, min(ANSWER_SECONDS, left)), connect=max(1.0, min(CONNECT_SECONDS, left)))


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
