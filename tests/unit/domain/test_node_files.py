"""When the time in which files are sent to a machine counts against it."""

from datetime import timedelta

from control_plane.domain.node_files import BYTES_PER_SECOND_MIN, SENDING_MAX, is_late
from tests.support.clock import START


def test_a_machine_is_late_only_while_files_arrive_slowly_or_have_been_on_their_way_for_an_hour() -> None:
    enough = BYTES_PER_SECOND_MIN * 240
    last = START + SENDING_MAX - timedelta(seconds=1)
    assert not is_late(START, last, arrived=enough, seconds=240)
    assert is_late(START, last, arrived=enough - 1, seconds=240)
    assert is_late(START, START + SENDING_MAX, arrived=enough, seconds=240)
