"""What every adapter of an HTTP API does the same way: send once, and say truly what is known after.

No retries and no waits; the guard has those. What the adapter keeps to itself is the meaning of a
provider's answers.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import httpx
import msgspec

from providers.base import OutcomeUnknown, ProviderError, Unavailable

REDIRECTS_MAX = 2
SECRET_CHARACTERS_MIN = 8
_NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_WRITES = frozenset({"launch", "terminate"})

Body = TypeVar("Body")


class Rest:
    """One origin, one key. `headers` may hold the secret: they go to this origin only."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: dict[str, str],
        connect_seconds: float,
        answer_seconds: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._base = httpx.URL(base_url.rstrip("/") + "/")
        self._client = httpx.AsyncClient(
            headers={"Accept": "application/json", **headers},
            timeout=httpx.Timeout(answer_seconds, connect=connect_seconds),
            follow_redirects=False,
            trust_env=False,  # A proxy or a .netrc of this host must neither see nor replace the key.
            transport=transport,
        )

    async def send(self, verb: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request, and at most two redirects within the origin. Any final response is returned.

        Raises Unavailable when the request never left us, otherwise what `silence` says.
        """
        url = self._base.join(path)
        for _ in range(REDIRECTS_MAX + 1):
            try:
                response = await self._client.request(method, url, json=body)
            except _NEVER_LEFT as error:
                raise Unavailable(f"{verb}: no connection ({type(error).__name__})") from None
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise silence(verb, type(error).__name__) from None
            if not response.is_redirect:
                return response
            follow = self._same_request_elsewhere(method, url, response)
            if follow is None:
                break
            url = follow
        # A redirect is a definite "not here": nothing happened, and asking again is safe.
        raise Unavailable(
            f"{verb}: redirected away from {self._base.host}; set the base URL to where the API lives"
        )

    async def close(self) -> None:
        await self._client.aclose()

    def _same_request_elsewhere(
        self, method: str, url: httpx.URL, response: httpx.Response
    ) -> httpx.URL | None:
        """Where to send the same request again; for a write only 307 and 308 ask for that."""
        try:
            target = url.join(response.headers["Location"])
        except httpx.InvalidURL:
            return None
        base = self._base
        same_origin = (target.scheme, target.host, target.port) == (base.scheme, base.host, base.port)
        return target if same_origin and (method == "GET" or response.status_code in (307, 308)) else None


def silence(verb: str, why: str) -> ProviderError:
    """What is known after no readable answer. Only a launch and a terminate are writes that must not be repeated."""
    return (OutcomeUnknown if verb in _WRITES else Unavailable)(f"{verb}: {why}")


def decoded(verb: str, response: httpx.Response, kind: type[Body]) -> Body:
    """The body as `kind`; unknown fields are ignored, a missing or broken one spoils the whole answer."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise silence(verb, f"HTTP {response.status_code} with an unreadable body") from None


def decoded_or_none(response: httpx.Response, kind: type[Body]) -> Body | None:
    """For error envelopes: None when it is a proxy's page, or nothing."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def fit_to_show(message: str, private: Iterable[str]) -> str:
    """A provider's message, cut short, or nothing if it repeats any word of what is private.

    Providers quote the request that they refuse, and a request holds user data.
    """
    words = {word for text in private for word in re.split(r"[\s\"'=:,]+", text)}
    if any(len(word) >= SECRET_CHARACTERS_MIN and word in message for word in words):
        return ""
    return message[:200]


def retry_after_seconds(response: httpx.Response, *, otherwise: float) -> float:
    """The Retry-After header in seconds; `otherwise` for none, a date or nonsense."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else otherwise
