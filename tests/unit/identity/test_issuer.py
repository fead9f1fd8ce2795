"""What is believed of an issuer: its metadata, its keys, and what it signs. No socket: a transport stands in."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from control_plane.domain.id_token import Person
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.identity.errors import IdentityError
from control_plane.identity.fetching import ANSWER_BYTES_MAX, Fetcher
from control_plane.identity.issuer import KEYS_SECONDS, REFETCH_SECONDS, Attempt, Client, Issuer
from tests.support.clock import Clock

ISSUER = "https://login.example.com/realm"
CLIENT = Client(ISSUER, "splitplane", "planted-client-secret")
ATTEMPT = Attempt("planted-state", "nonce-1", "challenge", "https://api.example.com/auth/callback")
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def jwk(private: Private, kid: str | None, **more: str) -> dict[str, Any]:
    public = private.public_key()
    kinds: Any = jwt.algorithms
    algorithm = {
        rsa.RSAPrivateKey: kinds.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: kinds.ECAlgorithm,
        ed25519.Ed25519PrivateKey: kinds.OKPAlgorithm,
    }
    chosen = next(made for kind, made in algorithm.items() if isinstance(private, kind))
    found: dict[str, Any] = chosen.to_jwk(public, as_dict=True)
    return found | ({} if kid is None else {"kid": kid}) | more


@dataclass
class Provider:
    """Answers as an issuer, with whatever a test puts in its place."""

    clock: Clock
    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk(RSA_KEY, "one")])
    token: object = None
    status: int = 200
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    headers: list[str | None] = field(default_factory=list[str | None])
    raw: bytes | None = None

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if self.raw is not None:
            return httpx.Response(200, content=self.raw)
        if path == "/realm/.well-known/openid-configuration":
            found = {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "jwks_uri": f"{ISSUER}/keys",
            }
            return httpx.Response(200, json=found | self.metadata)
        if path == "/realm/keys":
            return httpx.Response(200, json={"keys": self.keys})
        self.forms.append({name: values[0] for name, values in parse_qs(request.content.decode()).items()})
        self.headers.append(request.headers.get("authorization"))
        body = {"id_token": self.token} if self.status == 200 else {"error": "invalid_grant"}
        return httpx.Response(self.status, json=body)

    def claims(self, **changes: object) -> dict[str, Any]:
        now = int(self.clock.now().timestamp())
        return {
            "iss": ISSUER,
            "sub": "ada",
            "aud": "splitplane",
            "exp": now + 300,
            "iat": now,
            "nonce": "nonce-1",
            "email": "ada@example.com",
            "email_verified": True,
        } | changes

    def signs(self, key: Private, algorithm: str, kid: str | None, **changes: object) -> None:
        headers = {} if kid is None else {"kid": kid}
        self.token = jwt.encode(self.claims(**changes), key, algorithm=algorithm, headers=headers)

    def issuer(self, client: Client = CLIENT) -> Issuer:
        fetcher = Fetcher(lambda: httpx.MockTransport(self.answer))
        return Issuer(client, now=self.clock.now, fetcher=fetcher)


async def redeem(issuer: Issuer) -> Person | Refused:
    return await issuer.redeem(
        "planted-code", code_verifier="planted-verifier", nonce="nonce-1", redirect_uri=ATTEMPT.redirect_uri
    )


async def code_of(provider: Provider) -> RefusalCode | None:
    found = await redeem(provider.issuer())
    return found.code if isinstance(found, Refused) else None


@pytest.fixture
def provider() -> Provider:
    return Provider(Clock())


async def test_a_browser_is_sent_to_the_issuer_with_state_nonce_and_challenge(provider: Provider) -> None:
    url = urlsplit(await provider.issuer().authorization_url(ATTEMPT))
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{ISSUER}/authorize"
    assert {name: values[0] for name, values in parse_qs(url.query).items()} == {
        "response_type": "code",
        "client_id": "splitplane",
        "redirect_uri": ATTEMPT.redirect_uri,
        "scope": "openid email profile",
        "state": "planted-state",
        "nonce": "nonce-1",
        "code_challenge": "challenge",
        "code_challenge_method": "S256",
    }


async def test_a_signed_token_names_a_person_for_each_accepted_family_of_algorithms(
    provider: Provider,
) -> None:
    provider.keys = [jwk(RSA_KEY, "one"), jwk(EC_KEY, "two"), jwk(ED_KEY, "three")]
    signatures: list[tuple[Private, str, str]] = [
        (RSA_KEY, "RS256", "one"),
        (RSA_KEY, "PS256", "one"),
        (EC_KEY, "ES256", "two"),
        (ED_KEY, "EdDSA", "three"),
    ]
    for key, algorithm, kid in signatures:
        provider.signs(key, algorithm, kid)
        assert await redeem(provider.issuer()) == Person(ISSUER, "ada", "ada@example.com", ""), algorithm


async def test_a_token_that_is_not_signed_by_the_issuer_is_refused(provider: Provider) -> None:
    provider.signs(OTHER_KEY, "RS256", "one")
    assert await code_of(provider) is RefusalCode.ID_TOKEN_SIGNATURE
    provider.signs(OTHER_KEY, "RS256", "unknown")
    assert await code_of(provider) is RefusalCode.ID_TOKEN_SIGNATURE
    provider.signs(OTHER_KEY, "RS256", None)
    assert await code_of(provider) is RefusalCode.ID_TOKEN_SIGNATURE


async def test_a_token_whose_claims_were_changed_is_refused(provider: Provider) -> None:
    provider.signs(RSA_KEY, "RS256", "one")
    head, _, signature = str(provider.token).split(".")
    forged = base64.urlsafe_b64encode(json.dumps(provider.claims(sub="eve")).encode()).rstrip(b"=").decode()
    provider.token = f"{head}.{forged}.{signature}"
    assert await code_of(provider) is RefusalCode.ID_TOKEN_SIGNATURE


async def test_an_unsigned_token_is_refused(provider: Provider) -> None:
    provider.token = jwt.encode(provider.claims(), "", algorithm="none")
    assert await code_of(provider) is RefusalCode.ID_TOKEN_ALGORITHM


async def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_refused(provider: Provider) -> None:
    secret = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "typ": "JWT", "kid": "one"}, provider.claims())
    )
    hmac: Any = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signed = hmac.sign(header + b"." + body, secret)
    provider.token = b".".join((header, body, base64.urlsafe_b64encode(signed).rstrip(b"="))).decode()
    provider.metadata = {"id_token_signing_alg_values_supported": ["HS256"]}
    assert await code_of(provider) is RefusalCode.ID_TOKEN_ALGORITHM


async def test_what_is_no_token_is_refused(provider: Provider) -> None:
    for token in ("", "a.b.c", "x" * 20_000, None, {"a": 1}, "é.é.é"):
        provider.token = token
        assert await code_of(provider) is RefusalCode.ID_TOKEN_MALFORMED, token


async def test_a_key_for_encryption_or_of_another_type_verifies_nothing(provider: Provider) -> None:
    provider.signs(RSA_KEY, "RS256", "one")
    useless: list[dict[str, Any]] = [
        jwk(RSA_KEY, "one", use="enc"),
        jwk(RSA_KEY, "one", alg="PS256"),
        jwk(EC_KEY, "one"),
        {"kty": "RSA", "kid": "one", "n": "", "e": ""},
    ]
    for key in useless:
        provider.keys = [key]
        assert await code_of(provider) is RefusalCode.ID_TOKEN_SIGNATURE, key


async def test_a_rotation_of_the_issuers_keys_is_noticed_at_once(provider: Provider) -> None:
    issuer = provider.issuer()
    provider.signs(RSA_KEY, "RS256", "one")
    assert isinstance(await redeem(issuer), Person)
    provider.clock.advance(REFETCH_SECONDS)
    provider.keys = [jwk(OTHER_KEY, "two")]
    provider.signs(OTHER_KEY, "RS256", "two")
    assert isinstance(await redeem(issuer), Person)
    provider.signs(RSA_KEY, "RS256", "one")
    refused = await redeem(issuer)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.ID_TOKEN_SIGNATURE


async def test_a_rotation_to_keys_without_ids_is_noticed_too(provider: Provider) -> None:
    issuer = provider.issuer()
    provider.keys = [jwk(RSA_KEY, None)]
    provider.signs(RSA_KEY, "RS256", None)
    assert isinstance(await redeem(issuer), Person)
    provider.clock.advance(REFETCH_SECONDS)
    provider.keys = [jwk(OTHER_KEY, None)]
    provider.signs(OTHER_KEY, "RS256", None)
    assert isinstance(await redeem(issuer), Person)


async def test_invented_key_ids_do_not_make_us_ask_the_issuer_over_and_over(provider: Provider) -> None:
    issuer = provider.issuer()
    for number in range(50):
        provider.signs(OTHER_KEY, "RS256", f"invented-{number}")
        await redeem(issuer)
    assert provider.asked.count("/realm/keys") == 1
    assert provider.asked.count("/realm/.well-known/openid-configuration") == 1


async def test_keys_are_fetched_again_after_a_while_so_that_a_withdrawn_one_ends(provider: Provider) -> None:
    issuer = provider.issuer()
    provider.signs(RSA_KEY, "RS256", "one")
    await redeem(issuer)
    provider.keys = [jwk(OTHER_KEY, "two")]
    provider.clock.advance(KEYS_SECONDS)
    provider.signs(RSA_KEY, "RS256", "one")
    refused = await redeem(issuer)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.ID_TOKEN_SIGNATURE


async def test_metadata_that_cannot_be_trusted_is_refused(provider: Provider) -> None:
    wrong: list[dict[str, Any]] = [
        {"issuer": "https://login.example.com"},
        {"jwks_uri": "http://login.example.com/keys"},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": "https://user:password@login.example.com/"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": 7},
    ]
    for changes in wrong:
        provider.metadata = changes
        with pytest.raises(IdentityError) as refused:
            await provider.issuer().authorization_url(ATTEMPT)
        assert refused.value.refused.code is RefusalCode.ISSUER_UNAVAILABLE, changes


async def test_an_answer_that_is_too_long_or_no_object_is_refused(provider: Provider) -> None:
    for raw in (b"x" * (ANSWER_BYTES_MAX + 1), b"[]", b"<html>", b"[" * 100_000, b"\xff"):
        provider.raw = raw
        with pytest.raises(IdentityError) as refused:
            await provider.issuer().authorization_url(ATTEMPT)
        assert refused.value.refused.code is RefusalCode.ISSUER_UNAVAILABLE


async def test_an_issuer_that_refuses_the_code_is_quoted_without_its_description(provider: Provider) -> None:
    provider.status = 400
    refused = await redeem(provider.issuer())
    assert refused == Refused(
        RefusalCode.SIGN_IN_REFUSED, "The issuer refused the sign-in (invalid_grant); start again."
    )
    provider.status = 503
    assert await code_of(provider) is RefusalCode.ISSUER_UNAVAILABLE


async def test_the_clients_secret_is_sent_as_the_issuer_wants_it(provider: Provider) -> None:
    provider.signs(RSA_KEY, "RS256", "one")
    await redeem(provider.issuer())
    assert str(provider.headers[-1]).startswith("Basic ")
    assert "client_secret" not in provider.forms[-1]
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    await redeem(provider.issuer())
    assert provider.headers[-1] is None
    assert provider.forms[-1]["client_secret"] == "planted-client-secret"
    await redeem(provider.issuer(Client(ISSUER, "splitplane")))
    assert provider.forms[-1]["client_id"] == "splitplane"
    assert "client_secret" not in provider.forms[-1]


def test_no_secret_is_in_a_repr() -> None:
    shown = repr(CLIENT) + repr(ATTEMPT)
    assert "planted" not in shown
    assert "nonce-1" not in shown
