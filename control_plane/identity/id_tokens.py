"""Checks the signature of an ID token against the issuer's keys, with algorithms that only the issuer can sign with.

`none` signs nothing, and the HS algorithms would take the issuer's public key for a shared secret, so that anybody
could sign. Neither is in the list, whatever the token's header or the issuer's metadata say.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from jwt.exceptions import InvalidTokenError, PyJWTError

from control_plane.domain.refusal import RefusalCode
from control_plane.identity.errors import IdentityError

ALGORITHMS: Mapping[str, str] = {
    **{f"{family}{bits}": "RSA" for family in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
    "EdDSA": "OKP",
}
"""The algorithms that are accepted, and the type of key that each needs."""
TOKEN_LENGTH_MAX = 16_384
KEYS_MAX = 50
"""An issuer publishes a few keys. Of a longer list the rest is not read."""


@dataclass(frozen=True, slots=True)
class Header:
    algorithm: str
    key_id: str | None


def header(token: str) -> Header:
    """The header of a token that may be checked. Raises IdentityError."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise _malformed()
    try:
        found = jwt.get_unverified_header(token)
    except InvalidTokenError:
        raise _malformed() from None
    algorithm, key_id = found.get("alg"), found.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise IdentityError(
            RefusalCode.ID_TOKEN_ALGORITHM,
            f"The issuer's ID token is signed with an algorithm that is not accepted; use one of"
            f" {', '.join(ALGORITHMS)}.",
        )
    if "crit" in found:
        raise _malformed()
    return Header(algorithm, key_id if isinstance(key_id, str) else None)


def keys_for(of: Header, published: Sequence[Mapping[str, Any]]) -> list[jwt.PyJWK]:
    """The published keys with which a token can have been signed."""
    found = []
    for key in published[:KEYS_MAX]:
        fits = key.get("kty") == ALGORITHMS[of.algorithm] and key.get("use", "sig") == "sig"
        if not fits or (of.key_id is not None and key.get("kid") != of.key_id):
            continue
        if key.get("alg", of.algorithm) != of.algorithm:
            continue
        try:
            found.append(jwt.PyJWK(dict(key), algorithm=of.algorithm))
        except PyJWTError:
            continue  # A key of a kind that we cannot read signs nothing for us.
    return found


def claims(token: str, of: Header, keys: Sequence[jwt.PyJWK]) -> Mapping[str, object]:
    """The claims, once one of the keys has verified the signature. Raises IdentityError."""
    for key in keys:
        try:
            payload = jwt.PyJWS().decode(token, key.key, algorithms=[of.algorithm])
        except PyJWTError:
            continue
        try:
            found = json.loads(payload)
        except ValueError:
            raise _malformed() from None
        if not isinstance(found, dict):
            raise _malformed()
        return found
    raise IdentityError(
        RefusalCode.ID_TOKEN_SIGNATURE, "The issuer's ID token is not signed with one of the issuer's keys."
    )


def _malformed() -> IdentityError:
    return IdentityError(RefusalCode.ID_TOKEN_MALFORMED, "The issuer's ID token is no signed JWT.")
