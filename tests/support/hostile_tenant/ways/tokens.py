"""Forged and foreign credentials: API keys, access tokens, refresh tokens, codes of terminals, sign-ins in a browser."""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.hostile_tenant.things import Things
from tests.support.hostile_tenant.way import OWN, SignIn, Stand, Way, succeeds

NOBODYS = "a forged credential is nobody's"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_FORGED = Ed25519PrivateKey.generate()


def _signing_in(stand: Stand) -> SignIn:
    if stand.sign_in is None:
        raise LookupError("nobody signs in here")
    return stand.sign_in


async def _with(stand: Stand, token: str) -> httpx.Response:
    return await stand.anonymous.get("/v1/me", headers={"Authorization": f"Bearer {token}"})


async def _own_token(stand: Stand) -> httpx.Response:
    return await _with(stand, _signing_in(stand).token)


async def _own_key(stand: Stand) -> httpx.Response:
    return await _with(stand, stand.secret)


# API keys


def _key(name: str, why: str, make: Callable[[Stand, Things], str]) -> Way:
    async def attempt(stand: Stand, things: Things) -> httpx.Response:
        return await _with(stand, make(stand, things))

    return Way(
        name=name, why=why, attempt=attempt, refused="unauthenticated", control=_own_key, no_line=NOBODYS
    )


# Access tokens

Claims = dict[str, Any]
Forge = Callable[[Stand, str, Claims], Awaitable[str]]
"""A token with these claims, made of an own one."""


def _aimed(token: str, things: Things) -> Claims:
    claims: Claims = jwt.decode(token, options={"verify_signature": False})
    return claims | {"org": things["organization"], "sub": things["person"], "cred": things["session"]}


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


async def _unsigned(_: Stand, token: str, claims: Claims) -> str:
    head = jwt.get_unverified_header(token) | {"alg": "none"}
    return f"{_encoded(head)}.{_encoded(claims)}."


async def _old_signature(_: Stand, token: str, claims: Claims) -> str:
    head, signature = token.split(".")[::2]
    return f"{head}.{_encoded(claims)}.{signature}"


async def _by_the_public_key(stand: Stand, token: str, claims: Claims) -> str:
    """An HMAC whose key is our public key: what verifies by the algorithm in the header takes it for a shared secret."""
    head = jwt.get_unverified_header(token)
    keys = (await _signing_in(stand).http().get("/.well-known/jwks.json")).json()["keys"]
    public = next(key["x"] for key in keys if key["kid"] == head["kid"])
    secret = base64.urlsafe_b64decode(public + "=")
    return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": head["kid"], "typ": head["typ"]})


async def _by_another_key(_: Stand, token: str, claims: Claims, **more: Any) -> str:
    head = jwt.get_unverified_header(token)
    headers = {"kid": head["kid"], "typ": head["typ"], **more}
    return jwt.encode(claims, _FORGED, algorithm="EdDSA", headers=headers)


async def _with_its_key(stand: Stand, token: str, claims: Claims) -> str:
    public = base64.urlsafe_b64encode(_FORGED.public_key().public_bytes_raw()).decode().rstrip("=")
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": public, "kid": "mine"}
    more = {"kid": "mine", "jwk": jwk, "jku": "https://attacker.example/jwks.json"}
    return await _by_another_key(stand, token, claims, **more)


async def _path_as_key_id(stand: Stand, token: str, claims: Claims) -> str:
    return await _by_another_key(stand, token, claims, kid="../../../../dev/null")


def _token(name: str, why: str, forge: Forge) -> Way:
    async def attempt(stand: Stand, things: Things) -> httpx.Response:
        own = _signing_in(stand).token
        return await _with(stand, await forge(stand, own, _aimed(own, things)))

    return Way(
        name=f"an access token of theirs, {name}",
        why=why,
        attempt=attempt,
        refused="unauthenticated",
        control=_own_token,
        no_line=NOBODYS,
        signs_in=True,
    )


async def _persons_cookie(stand: Stand, _: Things) -> httpx.Response:
    cookies = _signing_in(stand).person.cookies
    return await _with(stand, next(value for name, value in cookies.items() if name.endswith("person")))


# The endpoints of OAuth


async def _asked(stand: Stand, **form: str) -> httpx.Response:
    return await _signing_in(stand).http().post("/oauth/token", data=form)


def _client(stand: Stand, account: str, **more: str) -> Awaitable[httpx.Response]:
    key = _signing_in(stand).service_account_key
    return _asked(stand, grant_type="client_credentials", client_id=account, client_secret=key, **more)


async def _as_their_account(stand: Stand, things: Things) -> httpx.Response:
    return await _client(stand, things["account"])


async def _as_own_account(stand: Stand) -> httpx.Response:
    return await _client(stand, _signing_in(stand).service_account)


async def _for_operators(stand: Stand, _: Things) -> httpx.Response:
    return await _client(stand, _signing_in(stand).service_account, scope="organizations.read_all")


async def _refreshed(stand: Stand, token: str) -> httpx.Response:
    return await _asked(stand, grant_type="refresh_token", refresh_token=token)


async def _refresh_for_theirs(stand: Stand, things: Things) -> httpx.Response:
    """A refresh token names its organization, in whose rows it is looked up."""
    prefix, _, secret = _signing_in(stand).refresh_token.split("_", 2)
    return await _refreshed(stand, f"{prefix}_{things['organization'].removeprefix('org_')}_{secret}")


async def _refresh_own(stand: Stand) -> httpx.Response:
    return await _refreshed(stand, _signing_in(stand).refresh_token)


async def _session_as_refresh_token(stand: Stand, things: Things) -> httpx.Response:
    return await _refreshed(stand, things["session"])


async def _sign_them_out(stand: Stand, things: Things) -> httpx.Response:
    token = f"spr_{things['organization'].removeprefix('org_')}_{things['session']}"
    return await _signing_in(stand).http().post("/oauth/revoke", data={"token": token})


async def _sign_out_nobody(stand: Stand) -> httpx.Response:
    return await _signing_in(stand).http().post("/oauth/revoke", data={"token": "spr_nothing"})


# Terminals and browsers


def _hidden(page: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))


async def _confirmed(stand: Stand, organization: str, **changed: str) -> httpx.Response:
    """The attacker's browser confirms a terminal, for an organization."""
    sign_in = _signing_in(stand)
    code = str((await sign_in.device())["user_code"])
    page = await sign_in.person.get("/device", params={"user_code": code})
    form = _hidden(page.text) | {"action": "confirm", "organization": organization} | changed
    return await sign_in.person.post("/device", data=form)


async def _confirm_for_theirs(stand: Stand, things: Things) -> httpx.Response:
    return await _confirmed(stand, things["organization"])


async def _confirm_for_own(stand: Stand) -> httpx.Response:
    return await _confirmed(stand, stand.mine["organization"])


async def _without_the_pages_token(stand: Stand, _: Things) -> httpx.Response:
    return await _confirmed(stand, stand.mine["organization"], form_token="0" * 64)


async def _poll_with_the_user_code(stand: Stand, things: Things) -> httpx.Response:
    """The code that a terminal shows is read over a shoulder; the one that gets the tokens is not."""
    return await _asked(stand, grant_type=DEVICE_GRANT, device_code=f"spd_{things['user code']}")


async def _poll_own(stand: Stand) -> httpx.Response:
    device = await _signing_in(stand).device()
    return await _asked(stand, grant_type=DEVICE_GRANT, device_code=str(device["device_code"]))


def _waits(answer: httpx.Response) -> bool:
    return answer.status_code == 400 and answer.json()["error"] == "authorization_pending"


async def _their_return(stand: Stand, _: Things) -> httpx.Response:
    sign_in = _signing_in(stand)
    return await sign_in.person.get(await sign_in.victims_callback())


async def _own_page(stand: Stand) -> httpx.Response:
    return await _signing_in(stand).person.get("/device")


async def _under_their_address(stand: Stand, things: Things, *, verified: bool) -> httpx.Response:
    return await _signing_in(stand).stranger(things["persons address"], verified=verified)


def _way(
    name: str,
    why: str,
    attempt: Callable[[Stand, Things], Awaitable[httpx.Response]],
    refused: str,
    control: Callable[[Stand], Awaitable[httpx.Response]],
    *,
    ok: Callable[[httpx.Response], bool] = succeeds,
    event: str | None = None,
    no_line: str = NOBODYS,
    compared: bool = True,
    known: tuple[str, ...] = (),
) -> Way:
    return Way(
        name=name,
        why=why,
        attempt=attempt,
        refused=refused,
        control=control,
        succeeds=ok,
        event=event,
        no_line="" if event else no_line,
        compared=compared,
        known=known,
        signs_in=True,
    )


WAYS = (
    _key(
        "an API key with the id of theirs",
        "ids of keys are in lists and logs",
        lambda _, things: f"spk_{things['key'].removeprefix('key_')}",
    ),
    _key(
        "an own API key with the id of theirs behind it",
        "what reads a key could stop at a separator",
        lambda stand, things: f"{stand.secret}.{things['organization']}",
    ),
    _token("without a signature", "JWTs know an algorithm `none`", _unsigned),
    _token(
        "with the signature of an own one", "claims could be read before they are verified", _old_signature
    ),
    _token(
        "signed with our public key", "a verifier may believe the algorithm in the header", _by_the_public_key
    ),
    _token("signed by another key under our key's id", "the id of a key is public", _by_another_key),
    _token("signed by a key that it brings along", "a header may name or hold a key", _with_its_key),
    _token("with a path as the id of its key", "an id could be opened as a file", _path_as_key_id),
    _way(
        "a browser's sign-in as an access token",
        "we sign both with the same key",
        _persons_cookie,
        "unauthenticated",
        _own_token,
        compared=False,
    ),
    _way(
        "an own API key under the id of their service account",
        "the client id could decide whose token it is",
        _as_their_account,
        "invalid_client",
        _as_own_account,
        event="tokens.issue",
    ),
    _way(
        "a token with an operator's permissions",
        "the scope could be granted as it is asked for",
        _for_operators,
        "invalid_scope",
        _as_own_account,
        event="tokens.issue",
        compared=False,
    ),
    _way(
        "an own refresh token that names their organization",
        "it is looked up in the rows of the organization that it names",
        _refresh_for_theirs,
        "invalid_grant",
        _refresh_own,
    ),
    _way(
        "the id of their session as a refresh token",
        "ids of sessions are in lists and logs",
        _session_as_refresh_token,
        "invalid_grant",
        _refresh_own,
    ),
    _way(
        "sign them out by the id of their session",
        "a revocation needs no key, and always succeeds (RFC 7009)",
        _sign_them_out,
        OWN,
        _sign_out_nobody,
        no_line="it is no refusal",
    ),
    _way(
        "confirm a terminal for their organization",
        "the organization is a field of the form",
        _confirm_for_theirs,
        "not_invited",
        _confirm_for_own,
        event="sessions.begin",
    ),
    _way(
        "confirm a terminal from a page of the attacker's",
        "the browser of a signed-in person sends its cookie along",
        _without_the_pages_token,
        "sign_in_state",
        _confirm_for_own,
        compared=False,
    ),
    _way(
        "poll with the code that their terminal shows",
        "the code is short, and is read over a shoulder",
        _poll_with_the_user_code,
        "invalid_grant",
        _poll_own,
        ok=_waits,
        compared=False,
    ),
    _way(
        "finish their sign-in in another browser",
        "the address that the issuer sends them back to holds a code",
        _their_return,
        "sign_in_state",
        _own_page,
        compared=False,
    ),
    _way(
        "sign in as somebody else with their verified address",
        "the first sign-in binds a user by the address",
        partial(_under_their_address, verified=True),
        "not_invited",
        _own_page,
        compared=False,
        known=("persons address",),
    ),
    _way(
        "sign in with their address, which the issuer has not verified",
        "at many issuers anybody may claim an address",
        partial(_under_their_address, verified=False),
        "email_unverified",
        _own_page,
        compared=False,
        known=("persons address",),
    ),
)
