"""What a terminal is told that waits to be signed in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

from control_plane.domain.device_flow import (
    ALPHABET,
    CODE_LENGTH,
    LASTS,
    Answer,
    Device,
    DeviceState,
    poll,
    shown,
    typed,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DEVICE = Device(UUID(int=1), DeviceState.PENDING, "cli", "::1", NOW, NOW + LASTS, 5, None)


def test_tokens_are_given_only_for_an_approval_in_time() -> None:
    for state, seconds in product(DeviceState, (0, 1, 599, 600, 10_000)):
        answer = poll(replace(DEVICE, state=state), NOW + timedelta(seconds=seconds))
        assert (answer is Answer.TOKENS) == (state is DeviceState.APPROVED and seconds < 600), (
            state,
            seconds,
        )


def test_who_asks_too_soon_is_slowed_whatever_the_state_will_be() -> None:
    for state in (DeviceState.PENDING, DeviceState.APPROVED):
        device = replace(DEVICE, state=state, polled_at=NOW)
        assert poll(device, NOW + timedelta(seconds=4)) is Answer.SLOW_DOWN
        assert poll(device, NOW + timedelta(seconds=5)) is not Answer.SLOW_DOWN


def test_a_terminal_waits_for_a_person_only_while_it_is_pending() -> None:
    for state in DeviceState:
        assert replace(DEVICE, state=state).waits(NOW) == (state is DeviceState.PENDING)
    assert not DEVICE.waits(NOW + LASTS)


def test_a_code_is_read_as_people_type_it() -> None:
    for text in ("BCDFGHJK", "bcdf-ghjk", " BCDF GHJK ", "B-C-D-F-G-H-J-K"):
        assert typed(text) == "BCDFGHJK"
    assert shown("BCDFGHJK") == "BCDF-GHJK"
    for text in ("", "BCDF", "BCDFGHJKL", "ABCDFGHJ", "BCDFGHJ1", "BCDFGHJ\u212a", "x" * 10_000):
        assert typed(text) is None, text


def test_a_code_cannot_be_guessed_in_ten_minutes() -> None:
    assert len(set(ALPHABET)) ** CODE_LENGTH > 25 * 10**9
