"""Signing in with a real OpenID provider, in a process of its own."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from control_plane.domain.id_token import Person
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.identity.issuer import REFETCH_SECONDS, Attempt, Client, Issuer
from tests.support import oidc_server
from tests.support.clock import WallClock

VERIFIER = "a-verifier-of-at-least-forty-three-characters-in-length"
CHALLENGE = "Poy13tS0_Ch-sEJHlC2-eaImuRWv_muk2Gx_-Wy17N4"
ATTEMPT = Attempt("state-1", "nonce-1", CHALLENGE, "http://127.0.0.1:9/auth/callback")


@pytest.fixture(scope="module")
def provider() -> Iterator[oidc_server.Provider]:
    with oidc_server.running() as made:
        made.user("ada", email="ada@example.com", email_verified=True, name="Ada")
        made.user("eve", email="ada@example.com", email_verified=False)
        yield made


def issuer_of(provider: oidc_server.Provider) -> Issuer:
    return Issuer(Client(provider.issuer, "splitplane", "secret"), now=WallClock().now)


async def code_for(provider: oidc_server.Provider, issuer: Issuer, subject: str) -> str:
    back = provider.sign_in(await issuer.authorization_url(ATTEMPT), subject)
    query = parse_qs(urlsplit(back).query)
    assert back.startswith(ATTEMPT.redirect_uri)
    assert query["state"] == ["state-1"]
    return query["code"][0]


async def redeem(issuer: Issuer, code: str, **changes: str) -> Person | Refused:
    values = {"code_verifier": VERIFIER, "nonce": "nonce-1", "redirect_uri": ATTEMPT.redirect_uri} | changes
    return await issuer.redeem(code, **values)


def refusal(found: Person | Refused) -> RefusalCode | None:
    return found.code if isinstance(found, Refused) else None


async def test_a_person_signs_in(provider: oidc_server.Provider) -> None:
    issuer = issuer_of(provider)
    code = await code_for(provider, issuer, "ada")
    assert await redeem(issuer, code) == Person(provider.issuer, "ada", "ada@example.com", "Ada")
    assert refusal(await redeem(issuer, code)) is RefusalCode.SIGN_IN_REFUSED, "a code works once"


async def test_an_unverified_address_signs_nobody_in(provider: oidc_server.Provider) -> None:
    issuer = issuer_of(provider)
    code = await code_for(provider, issuer, "eve")
    assert refusal(await redeem(issuer, code)) is RefusalCode.EMAIL_UNVERIFIED


async def test_a_code_is_of_no_use_without_its_verifier(provider: oidc_server.Provider) -> None:
    issuer = issuer_of(provider)
    code = await code_for(provider, issuer, "ada")
    stolen = await redeem(issuer, code, code_verifier="another-verifier")
    assert refusal(stolen) is RefusalCode.SIGN_IN_REFUSED


async def test_a_token_for_another_request_is_refused(provider: oidc_server.Provider) -> None:
    issuer = issuer_of(provider)
    code = await code_for(provider, issuer, "ada")
    assert refusal(await redeem(issuer, code, nonce="nonce-2")) is RefusalCode.ID_TOKEN_NONCE


async def test_the_provider_may_replace_its_key_between_two_sign_ins(provider: oidc_server.Provider) -> None:
    clock, ahead = WallClock(), [0.0]
    issuer = Issuer(
        Client(provider.issuer, "splitplane", "secret"),
        now=lambda: clock.now() + timedelta(seconds=ahead[0]),
    )
    assert isinstance(await redeem(issuer, await code_for(provider, issuer, "ada")), Person)
    provider.rotate()
    ahead[0] = REFETCH_SECONDS
    assert isinstance(await redeem(issuer, await code_for(provider, issuer, "ada")), Person)


async def test_an_issuer_that_is_away_is_one_sentence(provider: oidc_server.Provider) -> None:
    issuer = Issuer(replace(issuer_of(provider).client, issuer="http://127.0.0.1:9"), now=WallClock().now)
    refused = await redeem(issuer, "code")
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.ISSUER_UNAVAILABLE
    assert "http://127.0.0.1:9/.well-known/openid-configuration does not answer" in refused.why
