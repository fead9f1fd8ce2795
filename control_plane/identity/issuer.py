"""The OpenID provider that people sign in with, as we are its client: the authorization code flow with PKCE.

What the issuer publishes (its metadata and its keys) is fetched when it is needed first, and remembered for a while.
An unknown key makes us fetch the keys again, at most once in `REFETCH_SECONDS`: so a rotation of the issuer's keys is
noticed at once, and invented key ids cannot make us ask it over and over.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from control_plane.domain.id_token import Expected, Person, person
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.identity.errors import IdentityError, unavailable
from control_plane.identity.fetching import Fetcher
from control_plane.identity.id_tokens import claims, header, keys_for
from control_plane.identity.urls import is_trusted_url

METADATA_SECONDS = 3_600.0
KEYS_SECONDS = 3_600.0
REFETCH_SECONDS = 30.0
SCOPES = "openid email profile"


@dataclass(frozen=True, slots=True)
class Client:
    """How we are registered at the issuer."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    """Empty for a public client, which has PKCE alone."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a person to sign in, as the issuer sees it."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    code_challenge: str
    redirect_uri: str
    choose_account: bool = False
    """Whether the issuer asks the person who they are, even if it knows (OpenID Connect Core, section 3.1.2.1)."""


@dataclass(frozen=True, slots=True)
class _Metadata:
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    basic: bool
    """Whether the client's secret is sent as HTTP Basic authentication, and not in the form."""


class Issuer:
    def __init__(
        self, client: Client, *, now: Callable[[], datetime], fetcher: Fetcher | None = None
    ) -> None:
        self.client = client
        self._now = now
        self._fetcher = fetcher or Fetcher()
        self._metadata: tuple[_Metadata, float] | None = None
        self._keys: tuple[list[Mapping[str, Any]], float] = ([], 0.0)
        self._fetching = asyncio.Lock()

    async def authorization_url(self, attempt: Attempt) -> str:
        """Where the person's browser is sent. Raises IdentityError."""
        metadata = await self._read_metadata()
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": attempt.redirect_uri,
            "scope": SCOPES,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.code_challenge,
            "code_challenge_method": "S256",
            **({"prompt": "select_account"} if attempt.choose_account else {}),
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(query)}"

    async def redeem(
        self, code: str, *, code_verifier: str, nonce: str, redirect_uri: str
    ) -> Person | Refused:
        """Who signed in, by the code that the issuer sent the browser back with."""
        try:
            token = await self._exchange(code, code_verifier, redirect_uri)
            found = await self._verified(token)
        except IdentityError as error:
            return error.refused
        return person(found, Expected(self.client.issuer, self.client.client_id, nonce), self._now())

    async def _exchange(self, code: str, code_verifier: str, redirect_uri: str) -> str:
        metadata = await self._read_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": code_verifier,
        }
        basic = None
        if self.client.client_secret and metadata.basic:
            basic = (self.client.client_id, self.client.client_secret)
        else:
            form |= {"client_id": self.client.client_id}
            form |= {"client_secret": self.client.client_secret} if self.client.client_secret else {}
        status, answer = await self._fetcher.post(metadata.token_endpoint, form, basic=basic)
        if status != 200:
            # Its description may quote what we sent, so only the code of the error is passed on.
            word = str(answer.get("error", ""))[:60]
            why = f"The issuer refused the sign-in ({word if word.isidentifier() else status}); start again."
            raise IdentityError(RefusalCode.SIGN_IN_REFUSED, why)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise IdentityError(RefusalCode.ID_TOKEN_MALFORMED, "The issuer's answer has no ID token.")
        return token

    async def _verified(self, token: str) -> Mapping[str, object]:
        of = header(token)
        keys = keys_for(of, await self._read_keys(KEYS_SECONDS))
        if not keys:
            keys = keys_for(of, await self._read_keys(REFETCH_SECONDS))
        try:
            return claims(token, of, keys)
        except IdentityError as error:
            if error.refused.code is not RefusalCode.ID_TOKEN_SIGNATURE or of.key_id is not None:
                raise
        # Without a key id, a key that was replaced is recognized only by its signature.
        return claims(token, of, keys_for(of, await self._read_keys(REFETCH_SECONDS)))

    async def _read_metadata(self) -> _Metadata:
        async with self._fetching:
            now = self._now().timestamp()
            if self._metadata is None or now >= self._metadata[1] + METADATA_SECONDS:
                url = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
                self._metadata = (_metadata(await self._fetcher.get(url), self.client.issuer), now)
            return self._metadata[0]

    async def _read_keys(self, fresh_seconds: float) -> list[Mapping[str, Any]]:
        """The issuer's keys, fetched no longer ago than this."""
        metadata = await self._read_metadata()
        async with self._fetching:
            now = self._now().timestamp()
            if not self._keys[0] or now >= self._keys[1] + fresh_seconds:
                answer = await self._fetcher.get(metadata.jwks_uri)
                keys = answer.get("keys")
                if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
                    raise unavailable("its list of keys is no JWK set")
                self._keys = (keys, now)
            return self._keys[0]


def _metadata(document: Mapping[str, Any], issuer: str) -> _Metadata:
    if document.get("issuer") != issuer:
        # OpenID Connect Discovery 1.0, 4.3: otherwise one issuer could speak for another.
        raise unavailable(
            "its metadata names another issuer than the configured one, which must be identical"
        )
    found = {}
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        url = document.get(name)
        if not isinstance(url, str) or not is_trusted_url(url):
            raise unavailable(f"its metadata has no `{name}` with https")
        found[name] = url
    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    basic = not isinstance(methods, list) or "client_secret_basic" in methods
    return _Metadata(**found, basic=basic)
