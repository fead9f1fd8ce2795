"""The life of the keys that sign access tokens, played over years."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.signing_key import (
    PUBLISHED_BEFORE,
    SIGNS_FOR,
    TOKEN_LASTS,
    Phase,
    SigningKey,
    published,
    signing,
    term,
)

START = datetime(2026, 11, 22, tzinfo=UTC)


def test_at_any_time_one_key_signs_and_every_token_that_is_valid_verifies() -> None:
    keys: list[SigningKey] = []
    signed: list[tuple[datetime, str]] = []
    for hours in range(24 * 200):
        now = START + timedelta(hours=hours)
        if (dates := term(keys, now)) is not None:
            keys.append(SigningKey(f"k{len(keys)}", b"", *dates))
        assert term(keys, now) is None, "one is enough"
        chosen = signing(keys, now)
        assert chosen is not None
        signed.append((now, chosen.id))
        known = {key.id for key in published(keys, now)}
        for at, key_id in signed[-2:]:
            assert now - at >= TOKEN_LASTS or key_id in known
        assert len(known) <= 3
    assert len(keys) == 7


def test_a_key_is_published_a_day_before_it_signs() -> None:
    first = SigningKey("a", b"", START, START + SIGNS_FOR)
    assert term([first], first.signs_until - PUBLISHED_BEFORE - timedelta(seconds=1)) is None
    dates = term([first], first.signs_until - PUBLISHED_BEFORE)
    assert dates == (first.signs_until, first.signs_until + SIGNS_FOR)


def test_a_removed_key_is_over_and_its_place_is_taken_at_once() -> None:
    now = START + timedelta(days=3)
    removed = SigningKey("a", b"", START, START + SIGNS_FOR, removed_at=now)
    assert removed.phase(now) is Phase.OVER
    assert published([removed], now) == []
    assert term([removed], now) == (now, now + SIGNS_FOR)


def test_after_an_outage_of_months_a_new_key_signs_at_once() -> None:
    now = START + timedelta(days=100)
    assert term([SigningKey("a", b"", START, START + SIGNS_FOR)], now) == (now, now + SIGNS_FOR)


def test_when_the_current_key_is_removed_the_next_one_does_not_sign_early() -> None:
    now = START + SIGNS_FOR - timedelta(hours=5)
    current = SigningKey("a", b"", START, START + SIGNS_FOR, removed_at=now)
    following = SigningKey("b", b"", START + SIGNS_FOR, START + 2 * SIGNS_FOR)
    dates = term([current, following], now)
    assert dates == (now, now + SIGNS_FOR)
