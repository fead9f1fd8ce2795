"""HTTP to the issuer, with a limit on time and on size. It follows no redirect, and repeats nothing."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from control_plane.identity.errors import unavailable
from control_plane.identity.urls import is_trusted_url

ANSWER_SECONDS_MAX = 10.0
"""For a whole exchange, from the connection to the last byte of the answer."""
ANSWER_BYTES_MAX = 256 * 1024
Transport = Callable[[], httpx.AsyncBaseTransport | None]


class Fetcher:
    def __init__(self, transport: Transport = lambda: None) -> None:
        """`transport` makes what carries a request; tests replace it."""
        self._transport = transport

    async def get(self, url: str) -> Mapping[str, Any]:
        """The JSON object at a URL. Raises IdentityError."""
        status, body = await self._exchange("GET", url, {}, None)
        if status != 200:
            raise unavailable(f"it answered {status} to {_place(url)}")
        return _object(body, url)

    async def post(
        self, url: str, form: Mapping[str, str], *, basic: tuple[str, str] | None
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON object that answer a form. Raises IdentityError."""
        status, body = await self._exchange("POST", url, form, basic)
        if status >= 500:
            raise unavailable(f"it answered {status} to {_place(url)}")
        return status, _object(body, url)

    async def _exchange(
        self, method: str, url: str, form: Mapping[str, str], basic: tuple[str, str] | None
    ) -> tuple[int, bytes]:
        if not is_trusted_url(url):
            raise unavailable(f"{_place(url)} is no https URL")
        headers = {"Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS_MAX),
                httpx.AsyncClient(
                    transport=self._transport(),
                    timeout=ANSWER_SECONDS_MAX,
                    follow_redirects=False,
                    auth=None if basic is None else httpx.BasicAuth(*basic),
                ) as client,
                client.stream(method, url, headers=headers, data=dict(form) or None) as response,
            ):
                return response.status_code, await _bounded(response, url)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            # The text of an error may contain the URL, but a URL of ours has no secret in it.
            raise unavailable(f"{_place(url)} does not answer ({type(error).__name__})") from None


async def _bounded(response: httpx.Response, url: str) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > ANSWER_BYTES_MAX:
            raise unavailable(f"{_place(url)} answered with more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _object(body: bytes, url: str) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise unavailable(f"{_place(url)} answered with something that is no JSON object")
    return found


def _place(url: str) -> str:
    """A URL for people: without its query."""
    return url.partition("?")[0].partition("#")[0][:200]
