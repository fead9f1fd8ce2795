"""How a request proves to the provider that it is ours.

An adapter gives `rest.Rest` one `Sign`: a coroutine that puts what authenticates a request onto it.
It sees the finished request, so a signature can cover method, path, query and body; it is called
again for every request, so a token can be renewed in it. Nothing has left us when it runs:
whatever it raises, the provider was not asked for anything.

    bearer(key)                 Authorization: Bearer KEY
    header("X-API-KEY", key)    any other header that holds the key

A scheme that computes something (an HMAC over the request, a token fetched with client credentials)
is a class of the adapter with `async def __call__(self, request)`; `docs/adding-a-provider.md` shows one.
What it puts into headers never shows in an error: `rest.py` treats every header that a Sign adds as
a secret. A key belongs in a header, never in the URL.
"""

from collections.abc import Awaitable, Callable

import httpx

Sign = Callable[[httpx.Request], Awaitable[None]]


def header(name: str, value: str) -> Sign:
    """Sign with a header that is the same for every request."""

    async def sign(request: httpx.Request) -> None:
        request.headers[name] = value

    return sign


def bearer(token: str) -> Sign:
    """Sign with `Authorization: Bearer` and a token that does not change."""
    return header("Authorization", f"Bearer {token}")
