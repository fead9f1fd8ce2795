"""Signed calls of Nebius's API."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from google.protobuf.message import Message

from providers.base import Capabilities, Unauthorized, Verb
from providers.nebius_api.access_token import AccessToken, AuthorizedKey
from providers.nebius_api.errors import ERRORS
from providers.rpc import Metadata, Method, Rpc, Transport

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


class Api:
    def __init__(
        self,
        key: AuthorizedKey,
        transport: Transport,
        *,
        capabilities: Capabilities,
        now: Callable[[], datetime],
    ) -> None:
        self._token = AccessToken(key, transport, capabilities=capabilities, now=now)
        self._rpc = Rpc(transport, sign=self._token, errors=ERRORS, capabilities=capabilities)

    async def call(
        self,
        verb: Verb,
        method: Method[Answer],
        request: Message,
        read: Callable[[Answer], Result],
        *,
        metadata: Metadata = (),
        private: Iterable[str] = (),
    ) -> Result:
        """As `Rpc.call`. A token that is refused is not used again."""
        try:
            return await self._rpc.call(verb, method, request, read, metadata=metadata, private=private)
        except Unauthorized:
            self._token.forget()
            raise

    async def close(self) -> None:
        await self._rpc.close()
