"""HTTP to an API server within bounds: how long an answer may be, how long it may be silent, how often we ask again."""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2

from data_plane.cluster.port import AnswerTooLong, Unreachable

ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""A page of 500 of the largest pods that are usual (30 KiB) is half of that."""
LINE_BYTES_MAX = 4 * 1024 * 1024
"""One event of a watch. An object in etcd has at most 1.5 MiB."""
REPEATS_MAX = 5
"""How often an overloaded API server is asked again."""
WAIT_SECONDS_MAX = 20.0
"""How long all these waits may take together."""
WATCH_SECONDS = 240
"""An API server ends a watch after so long, because we ask for it; the watch then goes on from where it was."""
SILENCE_SECONDS_MAX = 60.0 + WATCH_SECONDS
"""A watch that is silent for longer than it may last is dead: its connection was lost without a word."""


class PageTooLong(AnswerTooLong):
    """One answer exceeds what we read. A list may fit in smaller pages."""


Sleep = Callable[[float], Awaitable[None]]


class BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(
        self, inner: httpx2.AsyncBaseTransport, sleep: Sleep, *, server_name: str | None = None
    ) -> None:
        """`server_name`: the name that the server's certificate has to have, instead of the URL's."""
        self._inner = inner
        self._server_name = server_name
        self._sleep = sleep

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"  # So that the bytes we count are the bytes we keep.
        if self._server_name is not None:
            request.extensions["sni_hostname"] = self._server_name
        is_watch = request.url.params.get("watch") == "true"
        if is_watch:
            request.extensions["timeout"] = {
                **request.extensions.get("timeout", {}),
                "read": SILENCE_SECONDS_MAX,
            }
        response = await self._patiently(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.aclose()
            raise Unreachable("the API server compressed an answer that was to come as it is")
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_Bounded(response, is_watch=is_watch),
            extensions=response.extensions,
        )

    async def _patiently(self, request: httpx2.Request) -> httpx2.Response:
        waited = 0.0
        for _ in range(REPEATS_MAX):
            response = await self._inner.handle_async_request(request)
            wait = _wait_for(request, response)
            if wait is None or waited + wait > WAIT_SECONDS_MAX:
                return response
            await response.aclose()
            await self._sleep(wait)
            waited += wait
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _wait_for(request: httpx2.Request, response: httpx2.Response) -> float | None:
    """How many seconds to wait before asking again; None for an answer to be taken as it is.

    A 429 to an eviction is no overload but the word of a disruption budget, which does not change in seconds.
    """
    if response.status_code != 429 or request.url.path.endswith("/eviction"):
        return None
    try:
        return max(float(response.headers["Retry-After"]), 0.1)
    except (KeyError, ValueError):
        return None


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer. A watch is bounded by line, everything else as a whole."""

    def __init__(self, response: httpx2.Response, *, is_watch: bool) -> None:
        if not isinstance(response.stream, httpx2.AsyncByteStream):
            raise TypeError("an answer to a client without async")
        self._response = response
        self._stream = response.stream
        self._is_watch = is_watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, bound = 0, LINE_BYTES_MAX if self._is_watch else ANSWER_BYTES_MAX
        async for piece in self._stream:
            first, *others = piece.split(b"\n") if self._is_watch else [piece]
            if max(size + len(first), *map(len, others), 0) > bound:
                raise PageTooLong(f"the API server's answer has more than {bound} bytes")
            size = len(others[-1]) if others else size + len(first)
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
