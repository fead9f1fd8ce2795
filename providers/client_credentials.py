"""OAuth2 client credentials: requests are signed with an access token that lasts for a while (RFC 6749, section 4.4).

A token is fetched before the first request, again before it expires, and again after it was refused. It is always
fetched with the client's credentials: a refresh token would be another secret to keep, and needs the same request.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import httpx
import msgspec

from providers.base import Capabilities, Unauthorized, Verb
from providers.rest import Body, ErrorContract, Rest, Result

RENEW_BEFORE = timedelta(seconds=60)
"""Longer than a request takes to arrive."""


class _Token(msgspec.Struct):
    access_token: str
    expires_in: int
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Client:
    """What an operator registered with the provider."""

    id: str
    secret: str = field(repr=False)
    token_path: str
    """Where tokens are fetched, relative to the base URL."""


class _AccessToken:
    """The Sign of `TokenRest`."""

    def __init__(self, rest: Rest, client: Client, now: Callable[[], datetime]) -> None:
        self._rest = rest
        self._client = client
        self._now = now
        self._fetching = asyncio.Lock()
        self._token: str | None = None
        self._renew_at: datetime | None = None

    async def __call__(self, request: httpx.Request) -> None:
        async with self._fetching:
            if self._token is None or self._renew_at is None or self._now() >= self._renew_at:
                self._token = await self._fetched()
            request.headers["Authorization"] = f"Bearer {self._token}"

    def forget(self) -> None:
        self._token = None

    async def close(self) -> None:
        await self._rest.close()

    async def _fetched(self) -> str:
        client = self._client
        body = {
            "grant_type": "client_credentials",
            "client_id": client.id,
            "client_secret": client.secret,
        }
        asked_at = self._now()
        token = await self._rest.call(
            Verb.PREPARE,
            "POST",
            client.token_path,
            _Token,
            lambda token: token,
            body=body,
            private=client.secret,
        )
        self._renew_at = asked_at + timedelta(seconds=token.expires_in) - RENEW_BEFORE
        return token.access_token


class TokenRest(Rest):
    """A Rest whose requests carry an access token. One that is refused is fetched anew for the next request."""

    def __init__(
        self,
        base_url: str,
        client: Client,
        errors: ErrorContract,
        capabilities: Capabilities,
        *,
        now: Callable[[], datetime],
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        tokens = Rest(base_url, sign=_unsigned, errors=errors, capabilities=capabilities, transport=transport)
        self._token = _AccessToken(tokens, client, now)
        super().__init__(
            base_url, sign=self._token, errors=errors, capabilities=capabilities, transport=transport
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
        """As in Rest. Raises Unauthorized also when the credentials are refused."""
        try:
            return await super().call(
                verb,
                method,
                path,
                kind,
                read,
                query=query,
                body=body,
                private=private,
                empty_status=empty_status,
            )
        except Unauthorized:
            self._token.forget()
            raise

    async def close(self) -> None:
        await self._token.close()
        await super().close()


async def _unsigned(_: httpx.Request) -> None:
    """The request for a token carries the credentials in its body."""
