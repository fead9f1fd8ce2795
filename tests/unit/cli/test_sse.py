"""The event stream, cut at every place a network may cut it."""

import pytest

from control_plane.cli.sse import LINE_BYTES_MAX, Event, EventParser

STREAM = (
    ': heartbeat\r\n\r\nid: 1\r\nevent: lease\r\ndata: {"a":\r\ndata:1}\r\n\r\n'
    "retry: 2500\nid: 2\ndata: größer ☃\n\nid: 3\n\ndata\n\nfuture: x\rdata: last\r\r"
).encode()
EVENTS = [
    Event("lease", '{"a":\n1}', "1"),
    Event("message", "größer ☃", "2"),
    Event("message", "", "3"),
    Event("message", "last", "3"),
]


def _fed(*chunks: bytes) -> list[Event]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_events_are_read_from_one_chunk() -> None:
    assert _fed(STREAM) == EVENTS


def test_a_stream_cut_in_two_anywhere_gives_the_same_events() -> None:
    for cut in range(len(STREAM) + 1):
        assert _fed(STREAM[:cut], STREAM[cut:]) == EVENTS, f"cut at byte {cut}"


def test_a_stream_that_arrives_byte_by_byte_gives_the_same_events() -> None:
    assert _fed(*(bytes([byte]) for byte in STREAM)) == EVENTS


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert _fed(b"\xef\xbb\xbfdata: x\n\n") == [Event("message", "x", "")]


def test_the_servers_wait_and_its_last_id_are_kept_for_the_next_connection() -> None:
    parser = EventParser()
    parser.feed(b"retry: 2500\nretry: soon\nid: 7\n\n")
    assert (parser.retry_ms, parser.last_id) == (2500, "7")


def test_an_incomplete_event_is_not_emitted() -> None:
    assert _fed(b"id: 1\ndata: x\n") == []


def test_a_line_without_an_end_is_given_up() -> None:
    parser = EventParser()
    parser.feed(b"x" * LINE_BYTES_MAX)
    with pytest.raises(ValueError, match="line that is too long"):
        parser.feed(b"x")
