"""Where connections come from, and whose the sources are."""

from pathlib import Path

import pytest

from data_plane.heartbeats.collector.exchange import Holder
from data_plane.heartbeats.collector.sources import Holders, of_process

SLICE = "/system.slice/system-splitplane\\x2dheartbeats.slice"


@pytest.mark.parametrize(
    ("groups", "source"),
    [
        (f"0::{SLICE}/splitplane-heartbeats@12.service\n", "network 12"),
        (f"2:cpu:/\n1:name=systemd:{SLICE}/splitplane-heartbeats@4095.service\n0::/\n", "network 4095"),
        ("0::/user.slice/user-0.slice/splitplane-heartbeats@12.service/session.scope\n", ""),
        ("0::/system.slice/other-splitplane-heartbeats@12.service\n", ""),
        ("", ""),
    ],
)
def test_a_proxy_is_known_by_the_unit_that_it_runs_in(tmp_path: Path, groups: str, source: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(groups)
    assert of_process(7, tmp_path) == source
    assert of_process(8, tmp_path) == "", "a process that has ended"


def test_the_relay_reads_what_the_collector_was_told(tmp_path: Path) -> None:
    collector, relay = Holders(tmp_path), Holders(tmp_path)
    assert relay.read() == {}
    told = [Holder("10.64.16.3", 0), Holder("10.64.16.4", 1), Holder("10.64.16.5", 0)]
    assert (
        collector.written(told)
        == relay.read()
        == {
            "10.64.16.3": "organization 0",
            "10.64.16.4": "organization 1",
            "10.64.16.5": "organization 0",
        }
    )
    assert (tmp_path / "holders").stat().st_mode & 0o777 == 0o644
    collector.written([])
    assert relay.read() == {}
