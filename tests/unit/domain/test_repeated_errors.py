"""Errors of the driver that mean more when they come again: how they are counted, and what they are then."""

from datetime import UTC, datetime, timedelta

import pynvml
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu_faults import Reading, XidReading
from control_plane.domain.health import FaultCode, Source
from control_plane.domain.repeated_errors import Counted, repeats_seen, with_errors
from control_plane.domain.xid import APART, RECOVERIES, REPEATS, XIDS, RecoveryClass, XidClass, recovery
from tests.support.cases import case

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def after(
    *errors: tuple[int, timedelta], source: Source = Source.SAMPLE, gpu: int = 0
) -> tuple[Counted, ...]:
    """What is counted when each error was reported at its time."""
    counted: tuple[Counted, ...] = ()
    for number, at in errors:
        counted = with_errors(counted, of(number, at, source=source, gpu=gpu), None)
    return counted


def of(number: int, at: timedelta, *, source: Source = Source.SAMPLE, gpu: int | None = 0) -> Reading:
    return Reading(AT + at, source, (), (XidReading(number, gpu, AT + at),))


def codes(
    counted: tuple[Counted, ...],
    *,
    good: timedelta | None = None,
    at: timedelta,
    source: Source = Source.SAMPLE,
) -> list[FaultCode]:
    good_since = None if good is None else AT + good
    return [each.code for each in repeats_seen(counted, source, good_since, AT + at)]


def test_an_error_is_in_one_rule_at_most_and_each_rule_says_more_than_the_error_alone() -> None:
    numbers = [number for rule in REPEATS for number in rule.numbers]
    assert len(numbers) == len(set(numbers))
    for rule in REPEATS:
        assert rule.times >= 2
        assert rule.within > APART
        for number in rule.numbers:
            assert XIDS[number].of is not rule.of, number


def test_each_rule_fires_at_its_number_and_not_before() -> None:
    expected = {
        109: FaultCode.GPU_ERROR,
        94: FaultCode.MEMORY_WEARS,
        63: FaultCode.MEMORY_WEARS,
        13: FaultCode.PROGRAM_ERRORS,
        31: FaultCode.PROGRAM_ERRORS,
    }
    for rule in (rule for rule in REPEATS if not rule.after_recovery):
        for number in rule.numbers:
            with case(str(number)):
                often = [(number, n * 2 * APART) for n in range(rule.times)]
                last = often[-1][1]
                assert codes(after(*often[:-1]), at=last) == []
                assert codes(after(*often), at=last) == [expected[number]]


def test_what_comes_within_minutes_counts_once() -> None:
    burst = after(*((109, timedelta(seconds=n)) for n in range(0, 240, 10)))
    assert len(burst) == 1
    assert codes(burst, at=HOUR) == []


def test_errors_of_different_gpus_are_not_added_up_and_unknown_gpus_are_not_counted() -> None:
    other = with_errors(after((109, HOUR * 0)), of(109, HOUR, gpu=1), None)
    assert codes(other, at=HOUR) == []
    assert with_errors((), of(109, HOUR, gpu=None), None) == ()


def test_what_is_older_than_the_window_is_forgotten() -> None:
    counted = after((109, HOUR * 0), (109, 25 * HOUR))
    assert [each.at for each in counted] == [AT + 25 * HOUR]
    assert codes(after((109, HOUR * 0), (109, 23 * HOUR)), at=25 * HOUR) == []


def test_errors_from_before_the_gpu_was_shown_to_be_good_do_not_count() -> None:
    counted = after((109, HOUR * 0), (109, 2 * HOUR))
    assert codes(counted, good=HOUR, at=2 * HOUR) == []


def test_a_gpu_that_is_out_again_after_its_recovery_takes_the_machine_out() -> None:
    counted = after((119, HOUR * 0), (120, 2 * HOUR))
    assert codes(counted, at=2 * HOUR) == [], "both belong to one failure"
    assert codes(counted, good=HOUR, at=2 * HOUR) == [FaultCode.MACHINE_ERROR]
    assert codes(counted, good=3 * HOUR, at=3 * HOUR) == [], "both are from before"


def test_an_error_just_after_the_recovery_is_another_one() -> None:
    before = of(119, HOUR)
    good = AT + HOUR + timedelta(seconds=30)
    counted = with_errors((), before, good)
    counted = with_errors(counted, of(119, HOUR + timedelta(minutes=1)), good)
    assert [each.code for each in repeats_seen(counted, Source.SAMPLE, good, AT + 2 * HOUR)] == [
        FaultCode.MACHINE_ERROR
    ]


def test_only_what_we_saw_ourselves_counts_in_a_look() -> None:
    claimed = after((109, HOUR * 0), (109, HOUR))
    assert codes(claimed, at=HOUR, source=Source.SAMPLE) == [FaultCode.GPU_ERROR]
    assert codes(claimed, at=HOUR, source=Source.LOOK) == []
    log = Reading(AT + 2 * HOUR, Source.LOOK, (), tuple(XidReading(109, 0, AT + n * HOUR) for n in (0, 1)))
    seen = with_errors(claimed, log, None)
    assert seen == tuple(Counted(109, 0, AT + n * HOUR, looked=True) for n in (0, 1)), (
        "they are the same ones"
    )
    assert codes(seen, at=2 * HOUR, source=Source.LOOK) == [FaultCode.GPU_ERROR]


@given(st.lists(st.tuples(st.sampled_from(sorted(XIDS)), st.integers(0, 15), st.integers(0, 100_000))))
def test_few_errors_are_kept_for_each_gpu_however_many_a_machine_reports(
    reported: list[tuple[int, int, int]],
) -> None:
    counted: tuple[Counted, ...] = ()
    for number, gpu, minutes in reported:
        counted = with_errors(counted, of(number, timedelta(minutes=minutes), gpu=gpu), None)
    for gpu in range(16):
        assert sum(each.gpu == gpu for each in counted) <= sum(rule.times for rule in REPEATS)


def test_a_machine_that_reports_an_error_without_end_has_a_few_of_them_stored() -> None:
    for rule in REPEATS:
        number = min(rule.numbers)
        with case(str(number)):
            counted = after(*((number, n * 2 * APART) for n in range(50)))
            assert len(counted) == rule.times
            assert counted[-1].at == AT + 49 * 2 * APART, "the last ones"


def test_every_recovery_action_of_the_driver_is_in_the_table() -> None:
    actions = {value for name, value in vars(pynvml).items() if name.startswith("NVML_GPU_RECOVERY_ACTION_")}
    assert set(RECOVERIES) == actions
    assert [number for number in RECOVERIES if recovery(number).of is RecoveryClass.NONE] == [0]
    assert recovery(250).of is RecoveryClass.OUT


def test_only_repeated_errors_are_in_doubt() -> None:
    assert XidClass.IN_DOUBT not in {meaning.of for meaning in XIDS.values()}
