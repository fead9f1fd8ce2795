"""Signs and verifies our own tokens: JWTs with Ed25519 (RFC 9068 for access tokens, RFC 8037 for the algorithm)."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.exceptions import PyJWTError

from control_plane.domain.secret import Plain
from control_plane.domain.signing_key import SigningKey, published

ALGORITHM = "EdDSA"
ACCESS = "at+jwt"
"""The type of access tokens."""
PERSON = "person+jwt"
"""The type of what a browser holds of a person who has signed in, until the person has confirmed a terminal."""
LENGTH_MAX = 4_096
_REQUIRED = ["iss", "aud", "sub", "exp", "iat", "nbf", "jti"]


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that signs."""

    id: str
    private: Plain


def new_key() -> tuple[str, bytes, Plain]:
    """A key pair: its id, its public half, and its private half."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return _thumbprint(public), public, Plain(private.private_bytes_raw())


def _thumbprint(public: bytes) -> str:
    """The id of a key: its thumbprint (RFC 7638)."""
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64(public)}"}}'
    return _base64(hashlib.sha256(canonical.encode()).digest())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def jwks(keys: Sequence[SigningKey], now: datetime) -> dict[str, Any]:
    """The published keys as a JWK set."""
    return {
        "keys": [
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "alg": ALGORITHM,
                "use": "sig",
                "kid": key.id,
                "x": _base64(key.public),
            }
            for key in published(keys, now)
        ]
    }


def sign(
    signer: Signer,
    kind: str,
    claims: Mapping[str, object],
    *,
    issuer: str,
    token_id: str,
    now: datetime,
    lasts: timedelta,
) -> str:
    """A token with these claims, which have to name its subject. It is for ourselves, so issuer and audience agree."""
    seconds = int(now.timestamp())
    times = {"iat": seconds, "nbf": seconds, "exp": seconds + int(lasts.total_seconds())}
    return jwt.encode(
        {"iss": issuer, "aud": issuer, "jti": token_id, **times, **claims},
        Ed25519PrivateKey.from_private_bytes(signer.private.reveal),
        algorithm=ALGORITHM,
        headers={"kid": signer.id, "typ": kind},
    )


def verify(
    token: str, kind: str, keys: Sequence[SigningKey], *, issuer: str, now: datetime
) -> Mapping[str, Any] | None:
    """The claims of a token of ours; None when it is none, has expired, or its key is no longer published."""
    if len(token) > LENGTH_MAX:
        return None
    try:
        header = jwt.get_unverified_header(token)
        key = next((key for key in published(keys, now) if key.id == header.get("kid")), None)
        if key is None or header.get("typ") != kind or header.get("alg") != ALGORITHM:
            return None
        claims: dict[str, Any] = jwt.decode(
            token,
            Ed25519PublicKey.from_public_bytes(key.public),
            algorithms=[ALGORITHM],
            audience=issuer,
            issuer=issuer,
            # The times are compared with the database's clock below.
            options={"require": _REQUIRED, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except (PyJWTError, ValueError):
        return None
    times = [claims[name] for name in ("nbf", "exp")]
    if not all(isinstance(time, int) and not isinstance(time, bool) for time in times):
        return None
    return claims if times[0] <= now.timestamp() < times[1] else None
