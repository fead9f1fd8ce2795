"""The rules on what an ID token says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.domain.id_token import SKEW, Expected, Person, person
from control_plane.domain.refusal import RefusalCode, Refused

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EXPECTED = Expected("https://login.example.com", "splitplane", "nonce-1")
CLAIMS: dict[str, Any] = {
    "iss": EXPECTED.issuer,
    "sub": "248289761001",
    "aud": EXPECTED.client_id,
    "exp": NOW.timestamp() + 300,
    "iat": NOW.timestamp(),
    "nonce": EXPECTED.nonce,
    "email": "ada@example.com",
    "email_verified": True,
    "name": "Ada",
}


def _code(changes: dict[str, Any], now: datetime = NOW) -> RefusalCode | None:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    found = person(claims, EXPECTED, now)
    return found.code if isinstance(found, Refused) else None


def test_claims_that_answer_our_request_name_a_person() -> None:
    assert person(CLAIMS, EXPECTED, NOW) == Person(EXPECTED.issuer, "248289761001", "ada@example.com", "Ada")


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "exp", "iat", "nonce", "email"])
def test_a_missing_claim_is_refused_with_its_name(name: str) -> None:
    claims = {key: value for key, value in CLAIMS.items() if key != name}
    found = person(claims, EXPECTED, NOW)
    assert isinstance(found, Refused)
    assert found.code is RefusalCode.ID_TOKEN_CLAIM_MISSING
    assert f"`{name}`" in found.why


def test_a_claim_of_another_type_is_as_good_as_missing() -> None:
    wrong: list[dict[str, Any]] = [
        {"iss": 1},
        {"sub": ""},
        {"sub": "x" * 256},
        {"sub": "a\nb"},
        {"aud": []},
        {"aud": [1]},
        {"exp": "soon"},
        {"exp": True},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"iat": -1},
        {"nonce": 7},
        {"email": "no-address"},
    ]
    for changes in wrong:
        assert _code(changes) is RefusalCode.ID_TOKEN_CLAIM_MISSING, changes


def test_each_fault_has_its_code() -> None:
    now = NOW.timestamp()
    faults: list[tuple[dict[str, Any], RefusalCode]] = [
        ({"iss": "https://login.example.com/"}, RefusalCode.ID_TOKEN_ISSUER),
        ({"aud": "other"}, RefusalCode.ID_TOKEN_AUDIENCE),
        ({"aud": ["splitplane", "other"]}, RefusalCode.ID_TOKEN_AUDIENCE),
        ({"aud": ["splitplane", "other"], "azp": "other"}, RefusalCode.ID_TOKEN_AUDIENCE),
        ({"azp": "other"}, RefusalCode.ID_TOKEN_AUDIENCE),
        ({"exp": now - SKEW.total_seconds()}, RefusalCode.ID_TOKEN_EXPIRED),
        ({"nbf": now + 61}, RefusalCode.ID_TOKEN_NOT_YET_VALID),
        ({"iat": now + 61}, RefusalCode.ID_TOKEN_NOT_YET_VALID),
        ({"nbf": "later"}, RefusalCode.ID_TOKEN_NOT_YET_VALID),
        ({"nonce": "nonce-2"}, RefusalCode.ID_TOKEN_NONCE),
        ({"email_verified": False}, RefusalCode.EMAIL_UNVERIFIED),
        ({"email_verified": None}, RefusalCode.EMAIL_UNVERIFIED),
        ({"email_verified": "true"}, RefusalCode.EMAIL_UNVERIFIED),
    ]
    for changes, code in faults:
        assert _code(changes) is code, changes


def test_clocks_may_differ_by_a_minute() -> None:
    assert _code({"exp": NOW.timestamp() - 59}) is None
    assert _code({"iat": NOW.timestamp() + 60}) is None


def test_several_audiences_are_accepted_when_the_token_was_issued_to_us() -> None:
    assert _code({"aud": ["other", "splitplane"], "azp": "splitplane"}) is None


def test_a_token_that_was_valid_once_expires() -> None:
    later = NOW + timedelta(minutes=7)
    assert _code({}, later) is RefusalCode.ID_TOKEN_EXPIRED
