"""When a hub that does not answer is asked again."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.hub_silence import RETRY_CEILING, RETRY_FIRST, failed

AT = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


def test_it_is_asked_again_after_a_delay_that_doubles_and_described_in_the_same_words() -> None:
    silence = failed(None, "Unreachable: no answer in time", AT)
    words, delays = str(silence), []
    for _ in range(6):
        delays.append(silence.asked_again_at() - silence.tried_at)
        silence = failed(silence, "LoginRefused: something else", silence.asked_again_at())
    assert delays == [min(RETRY_FIRST * 2**doubled, RETRY_CEILING) for doubled in range(6)]
    assert delays[-1] == RETRY_CEILING == timedelta(minutes=1)
    assert str(silence) == words
    assert "since 2026-11-23 09:30:00 UTC" in words
    assert words.endswith("Unreachable: no answer in time")
