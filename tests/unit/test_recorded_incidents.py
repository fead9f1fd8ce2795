"""Recorded incidents, judged by our rules: a change of a rule shows as a diff of the verdicts that it changes."""

from dataclasses import replace
from pathlib import Path

from control_plane.domain.health import OF_ROWS, RULES, UNFIT, FaultCode, Verdict
from control_plane.domain.xid import XIDS
from tests.support import golden
from tests.support.cases import case
from tests.support.incidents import read_case, timeline

CASES = sorted(Path("tests/fixtures/incidents").glob("*.json"))
GOLDEN = Path("tests/golden/incidents")


def test_each_incident_has_the_verdicts_that_were_reviewed() -> None:
    for path in CASES:
        with case(path.stem):
            golden.check(GOLDEN / f"{path.stem}.txt", timeline(read_case(path)))


def test_no_verdict_is_left_without_its_incident() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {path.stem for path in CASES}


def test_every_case_says_where_it_is_from_and_ends_where_it_can_end() -> None:
    for path in CASES:
        with case(path.stem):
            found = read_case(path)
            assert len(found.source) > 20
            assert found.lasts % 5 == 0


def test_the_incidents_reach_every_verdict_and_every_kind_of_error() -> None:
    """Otherwise a rule could change without a diff."""
    text = "".join(timeline(read_case(path)) for path in CASES)
    assert {verdict for verdict in Verdict if f" {verdict} " in text} == set(Verdict)
    numbers = {
        xid["number"]
        for path in CASES
        for series in (*read_case(path).samples, *read_case(path).looks)
        for xid in series.get("xids", [])
        if xid.get("kind", "xid") == "xid"
    }
    assert {XIDS[number].of for number in numbers if number in XIDS} == {
        meaning.of for meaning in XIDS.values()
    }
    assert any(number not in XIDS for number in numbers)
    assert {48, 63, 64, 74, 79, 94, 95} <= numbers


def test_what_only_the_machine_says_never_makes_it_worse_than_degraded() -> None:
    for path in CASES:
        with case(path.stem):
            alone = replace(read_case(path), looks=(), rows=())
            worse = [verdict for verdict in UNFIT if f"  {verdict} " in timeline(alone)]
            assert worse == []


def test_every_fault_that_readings_show_is_among_the_incidents() -> None:
    text = "".join(timeline(read_case(path)) for path in CASES)
    for code in set(FaultCode) - OF_ROWS:
        assert RULES[code].words in text, code
