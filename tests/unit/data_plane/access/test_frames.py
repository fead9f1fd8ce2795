from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.access.frames import LENGTH_BYTES, FrameBuffer, TooManyPieces
from data_plane.access.line import Frame
from data_plane.documents.strict import Malformed


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _feed_singly(buffer: FrameBuffer, count: int) -> None:
    for _ in range(count):
        buffer.feed(b"x", 0.0)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_with_the_times_of_their_first_and_last_byte(
    bodies: list[bytes], data: Any
) -> None:
    stream = b"".join(framed(body) for body in bodies)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))) | {0, len(stream)})
    buffer, taken, born = FrameBuffer(), [], []
    for first, last in pairwise(cuts):
        buffer.feed(stream[first:last], float(first))
        born += [float(first)] * (last - first)
        while (frame := buffer.take(40)) is not None:
            taken.append(frame)
    at, expected = 0, []
    for body in bodies:
        began = born[at]
        at += LENGTH_BYTES + len(body)
        expected.append(Frame(body, began, born[at - 1]))
    assert taken == expected
    assert len(buffer) == 0


def test_a_frame_that_announces_too_much_is_refused_before_its_body_comes() -> None:
    buffer = FrameBuffer()
    buffer.feed((11).to_bytes(4, "big"), 1.0)
    for _ in range(2):
        with pytest.raises(Malformed, match="11 bytes, where 10"):
            buffer.take(10)


def test_half_a_frame_waits_and_keeps_the_moments_it_began_and_ended() -> None:
    buffer = FrameBuffer()
    buffer.feed(b"\0\0", 1.0)
    assert buffer.take(9) is None
    buffer.feed(b"\0\3ab", 2.0)
    assert buffer.take(9) is None
    buffer.feed(b"c", 3.0)
    assert buffer.take(9) == Frame(b"abc", 1.0, 3.0)


def test_a_frame_has_not_come_while_only_a_byte_that_says_nothing_has() -> None:
    buffer, frame = FrameBuffer(), framed(b"root")
    buffer.feed(frame[:1], 1.0)
    buffer.feed(frame[1:] + frame[:2], 3.0)
    assert buffer.take(9) == Frame(b"root", 1.0, 3.0)
    buffer.feed(frame[2:], 4.0)
    assert buffer.take(9) == Frame(b"root", 3.0, 4.0)


def test_a_stream_of_single_bytes_is_cut_off_and_one_of_small_answers_is_not() -> None:
    buffer = FrameBuffer()
    _feed_singly(buffer, 4_000)
    with pytest.raises(TooManyPieces):
        _feed_singly(buffer, 1_000)
    honest = FrameBuffer()
    for _ in range(10_000):
        honest.feed(framed(b"x" * 100), 0.0)
        assert honest.take(100) is not None
