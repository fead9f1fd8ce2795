"""What the claims of an ID token have to say before somebody is signed in (OpenID Connect Core 1.0, 3.1.3.7).

The signature is checked before, in `control_plane/identity/`. Here are the rules on what was signed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from control_plane.domain.refusal import RefusalCode, Refused

SKEW = timedelta(seconds=60)
"""By how much the issuer's clock may differ from ours."""
TEXT_MAX = 255
"""The longest subject, which OpenID Connect limits, and the longest email address that we store."""
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC).timestamp(), datetime(9000, 1, 1, tzinfo=UTC).timestamp()
Claims = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Expected:
    """What we asked the issuer for."""

    issuer: str
    client_id: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Person:
    """Who somebody is to an issuer, with an email address that the issuer has verified."""

    issuer: str
    subject: str
    email: str
    name: str


def person(claims: Claims, expected: Expected, now: datetime) -> Person | Refused:
    """The person whom the claims identify, or the first thing that is wrong with them."""
    refused = (
        _missing(claims) or _for_us(claims, expected) or _in_time(claims, now) or _answers(claims, expected)
    )
    if refused is not None:
        return refused
    subject, email, name = claims["sub"], claims.get("email"), claims.get("name")
    if not _is_text(email) or "@" not in str(email):
        return _refused(RefusalCode.ID_TOKEN_CLAIM_MISSING, "lacks the claim `email`")
    if claims.get("email_verified") is not True:
        why = "The issuer has not verified your email address; verify it there, and sign in again."
        return Refused(RefusalCode.EMAIL_UNVERIFIED, why)
    return Person(expected.issuer, str(subject), str(email), str(name) if _is_text(name) else "")


def _missing(claims: Claims) -> Refused | None:
    present = {
        "iss": _is_text(claims.get("iss")),
        "sub": _is_text(claims.get("sub")),
        "aud": bool(_audience(claims)),
        "exp": _is_time(claims.get("exp")),
        "iat": _is_time(claims.get("iat")),
        "nonce": _is_text(claims.get("nonce")),
    }
    absent = next((name for name, found in present.items() if not found), None)
    if absent is None:
        return None
    return _refused(RefusalCode.ID_TOKEN_CLAIM_MISSING, f"lacks the claim `{absent}`, or it has another type")


def _for_us(claims: Claims, expected: Expected) -> Refused | None:
    if claims["iss"] != expected.issuer:
        return _refused(RefusalCode.ID_TOKEN_ISSUER, "names another issuer than the configured one")
    audience, authorized = _audience(claims), claims.get("azp")
    if expected.client_id not in audience:
        return _refused(RefusalCode.ID_TOKEN_AUDIENCE, "is for another client")
    # With several audiences, `azp` says to whom it was issued.
    if (len(audience) > 1 or authorized is not None) and authorized != expected.client_id:
        return _refused(RefusalCode.ID_TOKEN_AUDIENCE, "was issued to another client")
    return None


def _in_time(claims: Claims, now: datetime) -> Refused | None:
    seconds = now.timestamp()
    if seconds >= _seconds(claims["exp"]) + SKEW.total_seconds():
        return _refused(RefusalCode.ID_TOKEN_EXPIRED, "has expired")
    begins = max(_seconds(claims["iat"]), _seconds(claims.get("nbf", claims["iat"])))
    if seconds < begins - SKEW.total_seconds():
        return _refused(RefusalCode.ID_TOKEN_NOT_YET_VALID, "is not valid yet; the clocks differ")
    return None


def _answers(claims: Claims, expected: Expected) -> Refused | None:
    if claims["nonce"] == expected.nonce:
        return None
    return _refused(RefusalCode.ID_TOKEN_NONCE, "answers another request")


def _refused(code: RefusalCode, what: str) -> Refused:
    return Refused(code, f"The issuer's ID token {what}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable()


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and EARLIEST <= value <= LATEST


def _seconds(value: object) -> float:
    """A time that has another type is treated as far in the future, so that the token is refused."""
    return float(value) if _is_time(value) and isinstance(value, int | float) else LATEST


def _audience(claims: Claims) -> tuple[str, ...]:
    found = claims.get("aud")
    if isinstance(found, str):
        return (found,) if found else ()
    if isinstance(found, list | tuple) and all(isinstance(part, str) and part for part in found):
        return tuple(found)
    return ()
