"""Whether a loop that has not reported for a while is late, or only stopped in one replica."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.loop_silence import Silence, judged
from tests.support.clock import START


@dataclass(frozen=True)
class _Report:
    loop: str
    account: str
    age: int

    late_after_seconds: int = 60

    @property
    def finished_at(self) -> datetime:
        return START - timedelta(seconds=self.age)


def test_a_loop_is_late_only_when_no_replica_has_reported_on_it_in_time() -> None:
    for reports, expected in (
        ([_Report("place", "", 60)], [None]),
        ([_Report("place", "", 61)], [Silence.LATE]),
        ([_Report("place", "", -5)], [None]),
        ([_Report("place", "", 61), _Report("place", "", 1)], [Silence.STOPPED, None]),
        ([_Report("place", "", 61), _Report("place", "", 99)], [Silence.LATE, Silence.LATE]),
        ([_Report("list", "a", 61), _Report("list", "b", 1)], [Silence.LATE, None]),
    ):
        assert [silence for _, silence in judged(reports, START)] == expected, reports
