"""What every adapter of an HTTP API does in the same way: send a request once, and judge the answer by the law.

An adapter says per call which request it makes and how a good answer reads; it never looks at a
status. Everything else is here, for all of them:

  - A request is sent once. Nothing is retried and nothing waits; the guard does that.
  - Every failure becomes an error of the port by `error_law.py`, from the adapter's `ErrorContract`.
  - An answer that cannot be read, is larger than `BODY_BYTES_MAX`, or is only a part (206), is no answer.
  - Redirects are followed within the origin only, since the key travels with the request.
  - No error text repeats what signed the request, or what the adapter names as private.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from providers.base import Capabilities, ProviderError, Throttled, ToldLimit, Unauthorized, Verb
from providers.error_law import WRITES, ErrorDetail, Failure, Meaning, Rule, error_for, error_of
from providers.limit_headers import told_limits
from providers.listings import UnreadableAnswer
from providers.signing import Sign

CONNECT_SECONDS = 10.0
"""Shorter than the guard's shortest timeout: a provider out of reach is Unavailable, also to a write."""
ANSWER_SECONDS = 120.0
"""Longer than the guard's longest timeout, which is the one that counts; this ends a forgotten connection."""
BODY_BYTES_MAX = 16 * 1024 * 1024
REDIRECTS_MAX = 2
_NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_REDIRECTS_NOT_PROCESSED = frozenset({307, 308})
"""The server asks for the same request elsewhere. After a write, 301, 302 and 303 may also mean that it is done."""

# httpx would load it with its first request. That takes a tenth of a second, by which the first call of a process would
# come late for its turn, and too close before the next one of another process.
importlib.import_module("anyio._backends._asyncio")

Body = TypeVar("Body")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ErrorContract:
    """How a provider speaks of failures."""

    detail_of: Callable[[bytes], ErrorDetail | None]
    """Reads an error body; None when it is not in the provider's format, such as a proxy's page."""
    rules: tuple[Rule, ...]
    failures_with_success_status: bool = False
    """Whether `detail_of` must look at 2xx answers too. One that no rule names then counts as unclear."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: httpx.Headers
    body: bytes
    private: tuple[str, ...]
    """What signed the request: none of it may show."""


class Rest:
    """One provider's API at one origin."""

    def __init__(
        self,
        base_url: str,
        *,
        sign: Sign,
        errors: ErrorContract,
        capabilities: Capabilities,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._base = httpx.URL(base_url.rstrip("/") + "/")
        self._sign = sign
        self._errors = errors
        self._rate_limits = capabilities.rate_limits
        self.told: tuple[ToldLimit, ...] = ()
        """The rate limits that the last answer told, for `TellsLimits`."""
        self._client = httpx.AsyncClient(
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # An encoded kilobyte can unpack to any size: see `_bounded`.
                "User-Agent": "splitplane",
            },
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,  # A proxy or a .netrc of this host must neither see nor replace the key.
            transport=transport,
        )

    async def call(
        self,
        verb: Verb,
        method: str,
        path: str | tuple[str, ...],
        kind: type[Body],
        read: Callable[[Body], Result],
        *,
        query: Mapping[str, str | None] | None = None,
        body: Any = None,
        private: str = "",
        empty_status: int | None = None,
    ) -> Result:
        """One request; returns what `read` makes of the body of a success.

        `path` is relative to the base URL. Of a tuple, the first part is taken as it is and every other
        part is quoted: give what came from a provider, such as a reference, as a part of its own. `kind` is
        what the body decodes to (`bytes` for the body itself); unknown fields are ignored. `query`
        parameters that are None are left out. `private` is never repeated in an error. `empty_status` is the
        status with which the provider documents an answer without a body, such as 204 for a delete; of that pair
        alone `read` gets None, so give it only together with `ignored`.

        Raises the error of the port that the law has for whatever else happens, also inside `read`;
        only a ProviderError that `read` raises passes as it is.
        """
        self.told = ()
        answer = await self._exchange(verb, method, path, query, body)
        self.told = told_limits(answer.headers)
        failure = self._failure(answer)
        if failure is not None:
            hidden = (*answer.private, private)
            raise error_of(verb, failure, self._errors.rules, private=hidden, rate_limits=self._rate_limits)
        if answer.status == empty_status and not answer.body:
            return read(cast("Body", None))
        return _result(verb, answer, kind, read)

    async def close(self) -> None:
        await self._client.aclose()

    async def _exchange(
        self,
        verb: Verb,
        method: str,
        path: str | tuple[str, ...],
        query: Mapping[str, str | None] | None,
        body: Any,
    ) -> _Answer:
        """Send a request, follow redirects within the origin, and return the final answer."""
        url: httpx.URL | None = self._url(verb, path, query)
        for _ in range(REDIRECTS_MAX + 1):
            if url is None:
                break
            answer = await self._send(verb, method, url, body)
            if not 300 <= answer.status < 400:
                return answer
            if answer.status not in _REDIRECTS_NOT_PROCESSED and (method != "GET" or verb in WRITES):
                raise error_for(verb, Meaning.UNCLEAR, f"HTTP {answer.status}, a redirect to elsewhere")
            url = self._within_origin(url, answer)
        why = f"redirected away from {self._base.host}; set the base URL to where the API lives"
        raise error_for(verb, Meaning.NOT_SENT, why)

    async def _send(self, verb: Verb, method: str, url: httpx.URL, body: Any) -> _Answer:
        request, private = await self._signed(verb, method, url, body)
        try:
            response = await self._client.send(request, stream=True)
            try:
                return _Answer(response.status_code, response.headers, await _bounded(response), private)
            finally:
                await response.aclose()
        except _NEVER_LEFT as error:
            raise error_for(verb, Meaning.NOT_SENT, f"no connection ({type(error).__name__})") from None
        except (httpx.HTTPError, UnreadableAnswer) as error:
            why = str(error) if isinstance(error, UnreadableAnswer) else type(error).__name__
            raise error_for(verb, Meaning.UNCLEAR, why) from None

    async def _signed(
        self, verb: Verb, method: str, url: httpx.URL, body: Any
    ) -> tuple[httpx.Request, tuple[str, ...]]:
        """The request with what authenticates it, and the values of the headers that do."""
        try:
            request = self._client.build_request(method, url, json=body)
            before = dict(request.headers)
            await self._sign(request)
        except (Unauthorized, Throttled):
            raise
        except Exception as error:  # noqa: BLE001 - whatever fails here, the request did not leave us
            why = str(error) if isinstance(error, ProviderError) else type(error).__name__
            raise error_for(verb, Meaning.NOT_SENT, f"the request could not be signed ({why})") from None
        return request, tuple(value for name, value in request.headers.items() if before.get(name) != value)

    def _url(
        self, verb: Verb, path: str | tuple[str, ...], query: Mapping[str, str | None] | None
    ) -> httpx.URL:
        first, *others = (path,) if isinstance(path, str) else path
        if any(part.strip(".") == "" for part in others):
            # It would name another resource, such as all machines instead of one.
            raise error_for(verb, Meaning.NOT_SENT, "a part of the path is empty or a relative path")
        url = self._base.join("/".join((first, *(quote(part, safe="") for part in others))))
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        return url.copy_merge_params(parameters) if parameters else url

    def _within_origin(self, url: httpx.URL, answer: _Answer) -> httpx.URL | None:
        """Where a redirect leads; None when it leads away from the origin, or nowhere."""
        try:
            target = url.join(answer.headers["Location"])
        except (KeyError, httpx.InvalidURL):
            return None
        base = self._base
        same_origin = (target.scheme, target.host, target.port) == (base.scheme, base.host, base.port)
        return target if same_origin else None

    def _failure(self, answer: _Answer) -> Failure | None:
        """The failure that an answer is; None for a success."""
        success = 200 <= answer.status < 300 and answer.status != httpx.codes.PARTIAL_CONTENT
        if success and not self._errors.failures_with_success_status:
            return None
        try:
            detail = self._errors.detail_of(answer.body)
        except Exception:  # noqa: BLE001 - a body that breaks its reader is not in the provider's format
            detail = None
        if success and detail is None:
            return None
        return Failure(answer.status, detail, _retry_after_seconds(answer.headers))


def detail_from(
    kind: type[Body], detail: Callable[[Body], ErrorDetail | None]
) -> Callable[[bytes], ErrorDetail | None]:
    """An `ErrorContract.detail_of` for error bodies in JSON that decode as `kind`; `detail` is None for no failure."""

    def detail_of(body: bytes) -> ErrorDetail | None:
        try:
            return detail(msgspec.json.decode(body, type=kind))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    return detail_of


def ignored(_: object) -> None:
    """For answers whose body says nothing that we need; it must be readable all the same."""


async def _bounded(response: httpx.Response) -> bytes:
    """The body as it came. One that is encoded is refused, since the library unpacks before anybody can count."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise UnreadableAnswer(f"HTTP {response.status_code} with an encoding that we did not ask for")
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise UnreadableAnswer(f"HTTP {response.status_code} with more than {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _result(verb: Verb, answer: _Answer, kind: type[Body], read: Callable[[Body], Result]) -> Result:
    try:
        if kind is bytes:
            return read(cast("Body", answer.body))
        return read(msgspec.json.decode(answer.body, type=kind))
    except ProviderError:
        raise
    except UnreadableAnswer as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - whatever a body does to its reader, it was no readable answer
        why = f"an unreadable body ({type(error).__name__})"
    raise error_for(verb, Meaning.UNCLEAR, f"HTTP {answer.status}: {why}")


def _retry_after_seconds(headers: httpx.Headers) -> float | None:
    """The Retry-After header in seconds; None for none, a date or nonsense."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
