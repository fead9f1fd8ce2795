"""The access token that signs calls. It is bought with an assertion that a service account's key signs (RFC 8693)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from providers.base import Capabilities, Verb
from providers.listings import UnreadableAnswer
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api.errors import EXCHANGE_ERRORS
from providers.nebius_api.methods import EXCHANGE
from providers.rpc import Metadata, Rpc, Transport

ASSERTION_SECONDS = 300
"""For how long an assertion is valid."""
USED_SHARE = 0.8
"""An access token is renewed after this share of its life."""


@dataclass(frozen=True, slots=True)
class AuthorizedKey:
    """A key of a service account, which proves that a caller is that account."""

    service_account_id: str
    public_key_id: str
    private_pem: str = field(repr=False)


def checked_pem(text: str) -> None:
    """Takes a tenth of a second. Raises ValueError, without a part of the text, unless it is an RSA private key."""
    refusal = ValueError("private_key is no RSA private key in PEM without a password")
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        raise refusal from None
    if not isinstance(key, RSAPrivateKey):
        raise refusal


class AccessToken:
    """The `rpc.Sign` of one service account."""

    def __init__(
        self,
        key: AuthorizedKey,
        transport: Transport,
        *,
        capabilities: Capabilities,
        now: Callable[[], datetime],
    ) -> None:
        self._key = key
        # It was checked before: see `checked_pem`.
        loaded = load_pem_private_key(key.private_pem.encode(), None, unsafe_skip_rsa_key_validation=True)
        self._private_key = cast("RSAPrivateKey", loaded)
        self._rpc = Rpc(transport, sign=None, errors=EXCHANGE_ERRORS, capabilities=capabilities)
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = now()

    async def __call__(self) -> Metadata:
        async with self._lock:
            if not self._token or self._now() >= self._renew_at:
                await self._renew()
        return (("authorization", f"Bearer {self._token}"),)

    def forget(self) -> None:
        """The token was refused: the next call buys another one."""
        self._token = ""

    async def _renew(self) -> None:
        now = self._now()
        assertion = self._assertion(now)
        request = pb.ExchangeTokenRequest(
            grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
            requested_token_type="urn:ietf:params:oauth:token-type:access_token",  # noqa: S106 - the name of a kind
            subject_token=assertion,
            subject_token_type="urn:ietf:params:oauth:token-type:jwt",  # noqa: S106 - the name of a kind
        )
        self._token, seconds = await self._rpc.call(
            Verb.PREPARE, EXCHANGE, request, _token, private=(assertion,)
        )
        self._renew_at = now + timedelta(seconds=USED_SHARE * seconds)

    def _assertion(self, now: datetime) -> str:
        account = self._key.service_account_id
        until = now + timedelta(seconds=ASSERTION_SECONDS)
        claims = {"iss": account, "sub": account, "iat": now, "exp": until}
        headers = {"kid": self._key.public_key_id}
        return jwt.encode(claims, self._private_key, algorithm="RS256", headers=headers)


def _token(answer: pb.CreateTokenResponse) -> tuple[str, int]:
    token = answer.access_token
    if not token or not token.isascii() or not token.isprintable():
        raise UnreadableAnswer("no access token")
    return token, answer.expires_in
