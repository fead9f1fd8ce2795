"""Verdicts about machines: who may say what, what confirms it, and what ends it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu_faults import (
    HARDWARE_THROTTLE,
    LOADED_PERCENT,
    AcceptedGpu,
    GpuReading,
    Reading,
    ShownLink,
    XidReading,
    expected,
    faults_seen,
    links_shown,
    slower_than_possible,
    undecided,
)
from control_plane.domain.health import (
    CONFIRMING,
    FAULTS_PER_CODE_MAX,
    LOOK_AGAIN_AFTER,
    LOOKS_APART,
    OF_ROWS,
    RULES,
    STILL_WORKS,
    Cleared,
    Fault,
    FaultCode,
    Seen,
    Source,
    Verdict,
    judge,
    look_due,
    still_open,
    with_seen,
)
from control_plane.domain.health_watch import asks_for_links, assess, notice_for
from control_plane.domain.notice import NoticeKind
from data_plane.documents import sample
from tests.support.incidents import verified

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
NOTHING = Cleared(looked_at=None, seen=frozenset(), good_since=None)
HOUR = timedelta(hours=1)


def reading(*gpus: GpuReading, xids: tuple[XidReading, ...] = (), at: datetime = AT) -> Reading:
    return Reading(at, Source.SAMPLE, gpus or (GpuReading(0, lost=False),), xids)


def seen(code: FaultCode, at: datetime = AT, *, gpu: int | None = 0, xid: int | None = None) -> Seen:
    return Seen(code, gpu, at, "detail", xid)


def opened(code: FaultCode, source: Source, *, last: timedelta = HOUR) -> tuple[Fault, ...]:
    """A fault that was reported now and until `last` later."""
    first = with_seen((), [seen(code)], source)
    return with_seen(first, [seen(code, AT + last)], source)


def test_what_a_machine_says_about_itself_makes_it_degraded_at_most() -> None:
    for code in set(FaultCode) - OF_ROWS - {FaultCode.PROGRAM_ERRORS}:
        judged = judge(opened(code, Source.SAMPLE))
        assert judged.verdict is Verdict.DEGRADED, code
        assert "as the machine itself says" in judged.why


def test_errors_that_a_program_may_have_caused_change_no_verdict_whoever_saw_them() -> None:
    for source in Source:
        assert judge(opened(FaultCode.PROGRAM_ERRORS, source)).verdict is Verdict.HEALTHY
    assert RULES[FaultCode.PROGRAM_ERRORS].proves_again, "its GPU is challenged"


def test_what_we_see_ourselves_is_never_milder_than_what_the_machine_says() -> None:
    order = list(Verdict)
    for code, rule in RULES.items():
        assert order.index(rule.confirmed) >= order.index(rule.claimed), code
        assert judge(opened(code, Source.LOOK)).verdict is rule.confirmed, code


def test_every_fault_has_its_rule_and_every_way_to_end() -> None:
    assert set(RULES) == set(FaultCode)
    for code, rule in RULES.items():
        ends = rule.lapses_after is not None or rule.proves_again or not rule.event
        assert ends, f"nothing ends {code}"


def test_a_fault_that_rows_of_ours_tell_of_is_never_cleared_by_a_reading() -> None:
    clean = Cleared(AT + 100 * HOUR, frozenset(), AT + 100 * HOUR)
    for code in OF_ROWS:
        assert still_open(opened(code, Source.OPERATOR), clean, AT + 200 * HOUR), code


def test_a_machine_clears_none_of_its_faults_that_do_not_lapse() -> None:
    """Whatever it sends later, the fault stays until we have looked."""
    for code, rule in RULES.items():
        if rule.lapses_after is None:
            assert still_open(opened(code, Source.SAMPLE), NOTHING, AT + 1_000 * HOUR), code


def test_a_look_ends_a_state_that_it_does_not_show_and_nothing_else() -> None:
    faults = opened(FaultCode.NVLINK_DOWN, Source.SAMPLE)
    key = faults[0].key
    later, earlier = AT + 2 * HOUR, AT + HOUR / 2
    assert not still_open(faults, Cleared(later, frozenset(), None), later)
    assert still_open(faults, Cleared(later, frozenset({key}), None), later)
    assert still_open(faults, Cleared(earlier, frozenset(), None), later)  # From before its last report.


def test_a_gpu_that_was_out_has_to_prove_itself_before_a_look_ends_its_fault() -> None:
    for code in (FaultCode.GPU_ERROR, FaultCode.MACHINE_ERROR, FaultCode.GPU_LOST, FaultCode.RECOVERY_NEEDED):
        faults = opened(code, Source.LOOK)
        later = AT + 2 * HOUR
        assert still_open(faults, Cleared(later, frozenset(), None), later), code
        assert still_open(faults, Cleared(later, frozenset(), AT), later), code
        assert not still_open(faults, Cleared(later, frozenset(), AT + 1.5 * HOUR), later), code


def test_an_error_of_the_driver_that_a_later_look_still_lists_is_not_a_new_one() -> None:
    """The kernel log keeps an error; only one from after the GPU was shown to be good counts."""
    xid = XidReading(79, None, AT)
    look = reading(xids=(xid,), at=AT + HOUR)
    assert list(faults_seen(look, 1, since=AT + timedelta(minutes=1))) == []
    assert [each.code for each in faults_seen(look, 1, since=None)] == [FaultCode.MACHINE_ERROR]
    assert list(faults_seen(reading(xids=(xid,), at=AT + 25 * HOUR), 1)) == []


def test_errors_of_programs_are_no_faults_and_unknown_numbers_are() -> None:
    def codes(number: int, *, of_switch: bool = False) -> list[FaultCode]:
        xid = XidReading(number, 0, AT, of_switch)
        return [each.code for each in faults_seen(reading(xids=(xid,)), 1)]

    assert codes(31) == codes(13) == codes(43) == []
    assert codes(79) == [FaultCode.MACHINE_ERROR]
    assert codes(95) == [FaultCode.GPU_ERROR]
    assert codes(92) == [FaultCode.MEMORY_WEARS]
    assert codes(9_999) == [FaultCode.UNKNOWN_ERROR]
    assert codes(79, of_switch=True) == []


@pytest.mark.parametrize(
    ("gpu", "code"),
    [
        (GpuReading(0, lost=True, recovery_action=2), FaultCode.GPU_LOST),
        (GpuReading(0, lost=False, recovery_action=0), None),
        (GpuReading(0, lost=False, recovery_action=1), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, recovery_action=2), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, recovery_action=3), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, recovery_action=4), FaultCode.RESET_ADVISED),
        (GpuReading(0, lost=False, recovery_action=5), FaultCode.FABRIC_UNHEALTHY),
        (GpuReading(0, lost=False, recovery_action=6), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, recovery_action=7), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, recovery_action=99), FaultCode.RECOVERY_NEEDED),
        (GpuReading(0, lost=False, rows_failed=True), FaultCode.MEMORY_BROKEN),
        (GpuReading(0, lost=False, rows_pending=True), FaultCode.MEMORY_REPAIR_PENDING),
        (GpuReading(0, lost=False, links=18, active_links=17), FaultCode.NVLINK_DOWN),
        (GpuReading(0, lost=False, fabric="unhealthy"), FaultCode.FABRIC_UNHEALTHY),
        (GpuReading(0, lost=False, throttle=64 | 4), FaultCode.HARDWARE_SLOWDOWN),
        (GpuReading(0, lost=False, throttle=4 | 1, links=18, active_links=18, fabric="healthy"), None),
    ],
)
def test_a_reading_shows_one_fault_for_each_thing_that_is_wrong(
    gpu: GpuReading, code: FaultCode | None
) -> None:
    assert [each.code for each in faults_seen(reading(gpu), 1)] == ([] if code is None else [code])


ACCEPTED = AcceptedGpu("GPU-a", nvlinks=12, pcie_generation=5, pcie_width=16)


def at_work(*, utilisation_percent: int = 90, pcie_generation: int = 5, pcie_width: int = 16) -> GpuReading:
    return GpuReading(
        0,
        lost=False,
        uuid="GPU-a",
        utilisation_percent=utilisation_percent,
        pcie_generation=pcie_generation,
        pcie_width=pcie_width,
    )


def test_a_link_below_what_the_gpu_had_when_it_was_accepted_is_a_fault_under_load() -> None:
    def shown(gpu: GpuReading, accepted: AcceptedGpu = ACCEPTED) -> list[str]:
        return [each.detail for each in faults_seen(reading(gpu), 1, accepted=[accepted])]

    assert shown(at_work()) == []
    assert shown(at_work(pcie_width=8)) == ["GPU 0 has PCIe 5.0 x8 at 90 % use, and had 5.0 x16 before"]
    assert len(shown(at_work(pcie_generation=3))) == 1
    assert shown(at_work(pcie_width=8), replace(ACCEPTED, pcie_width=8)) == [], "it never had more"
    assert shown(at_work(pcie_width=8), replace(ACCEPTED, pcie_width=None)) == []
    assert shown(at_work(pcie_width=8), replace(ACCEPTED, uuid="GPU-b")) == [], "it is another one"
    assert shown(at_work(pcie_width=8, pcie_generation=1, utilisation_percent=LOADED_PERCENT - 1)) == []


def test_a_machine_that_names_ever_new_errors_and_gpus_has_us_keep_few_of_them() -> None:
    faults: tuple[Fault, ...] = with_seen((), [seen(FaultCode.GPU_LOST)], Source.SAMPLE)
    links: tuple[ShownLink, ...] = ()
    for minute in range(10):
        at = AT + timedelta(minutes=minute)
        errors = tuple(XidReading(100_000 + 100 * minute + number, None, at) for number in range(100))
        gpu = replace(at_work(), uuid=f"GPU-{minute}")
        said = reading(gpu, xids=errors, at=at)
        faults = with_seen(faults, faults_seen(said, 1), said.source)
        links = links_shown(links, [said], [ACCEPTED])
    assert [fault.code for fault in faults].count(FaultCode.UNKNOWN_ERROR) == FAULTS_PER_CODE_MAX
    assert FaultCode.GPU_LOST in {fault.code for fault in faults}, "others are not crowded out"
    assert links == ()
    ours = with_seen(faults, [seen(FaultCode.UNKNOWN_ERROR, AT + HOUR, xid=999)], Source.LOOK)
    assert [fault.xid for fault in ours if fault.confirmed_at is not None] == [999]
    assert len(ours) == len(faults)


def test_a_link_is_expected_to_be_as_fast_as_the_gpu_showed_at_work_and_never_faster_than_is_possible() -> (
    None
):
    def after(*gpus: GpuReading, known: tuple[ShownLink, ...] = ()) -> int | None:
        (gpu,) = expected([ACCEPTED], links_shown(known, [reading(gpu) for gpu in gpus], [ACCEPTED]))
        return gpu.pcie_generation

    slow = at_work(pcie_generation=3)
    assert after() is None, "nobody knows before it was at work"
    assert after(at_work(pcie_generation=5, utilisation_percent=0)) is None, "it was idle"
    assert after(slow) == 3
    assert after(slow, at_work(), slow) == 5
    assert after(slow, known=(ShownLink("GPU-a", 4),)) == 4
    assert after(slow, known=(ShownLink("GPU-a", 6),)) == 5, "a machine may say what it likes"
    assert after(at_work(pcie_generation=3), known=(ShownLink("GPU-b", 5),)) == 3
    (kept,) = expected([replace(ACCEPTED, pcie_generation=None)], [ShownLink("GPU-a", 5)])
    assert (kept.pcie_generation, kept.pcie_width, kept.nvlinks) == (None, 16, 12)


def test_what_a_gpu_showed_is_asked_for_when_it_is_first_slower_than_is_possible() -> None:
    slow = reading(at_work(pcie_generation=3))
    assert slower_than_possible([reading(at_work()), slow], [ACCEPTED]) == {"GPU-a"}
    assert slower_than_possible([reading(at_work())], [ACCEPTED]) == set()
    assert slower_than_possible([slow], []) == set()


def test_when_something_worse_has_ended_nobody_is_told_again_of_what_was_announced_before() -> None:
    planned = with_seen((), [seen(FaultCode.UNDER_MAINTENANCE, gpu=None)], Source.PROVIDER)
    both = with_seen(planned, [seen(FaultCode.GPU_ERROR)], Source.LOOK)
    new = notice_for(verified(), judge(planned))
    assert new is not None
    assert new.kind is NoticeKind.MAINTENANCE_PLANNED
    known = replace(verified(), verdict=Verdict.MAINTENANCE_REQUIRED, faults=both)
    assert judge(planned).differs(known.judged)
    assert notice_for(known, judge(planned)) is None


def test_the_first_work_that_is_planned_counts_and_work_without_a_time_may_be_under_way() -> None:
    by_operator, by_provider = AT + 2 * HOUR, AT + HOUR
    for taken_out, announced, first in (
        ((None, None), (None, None), None),
        ((AT, by_operator), (None, None), by_operator),
        ((None, None), (AT, by_provider), by_provider),
        ((AT, by_operator), (AT, by_provider), by_provider),
        ((AT, None), (AT, by_provider), None),
        ((None, by_operator), (AT, by_provider), by_provider),
    ):
        watched = replace(
            verified(),
            maintenance_since=taken_out[0],
            maintenance_planned_at=taken_out[1],
            work_since=announced[0],
            work_planned_at=announced[1],
        )
        assert watched.works_at == first, (taken_out, announced)


def test_what_a_gpu_showed_at_work_is_kept_although_it_changes_nothing_else() -> None:
    new = replace(verified(), accepted=(ACCEPTED,), links=(), gpu_count=1)
    slow = reading(at_work(pcie_generation=3))
    assert asks_for_links(new, [slow])
    found = assess(new, [slow], AT)
    assert (found.judgement.verdict, found.links) == (Verdict.HEALTHY, (ShownLink("GPU-a", 3),))
    assert found.changes(new)
    kept = replace(new, links=found.links)
    assert not assess(kept, [slow], AT).changes(kept)
    assert not asks_for_links(kept, [slow])


def test_a_reading_of_an_idle_gpu_says_nothing_about_a_link_that_is_slow() -> None:
    idle = at_work(pcie_generation=1, utilisation_percent=0)
    assert list(undecided(reading(idle), [ACCEPTED])) == [(FaultCode.PCIE_REDUCED, 0, None)]
    for gpu in (at_work(), at_work(utilisation_percent=0), at_work(pcie_generation=1)):
        assert list(undecided(reading(gpu), [ACCEPTED])) == []


def test_what_is_announced_hides_no_fault_that_is_as_bad_and_one_that_is_worse_hides_it() -> None:
    for announced in sorted(STILL_WORKS):
        planned = with_seen((), [seen(announced)], Source.PROVIDER)
        assert judge(planned).still_works
        both = with_seen(planned, [seen(FaultCode.GPU_ERROR, AT + HOUR)], Source.LOOK)
        found = judge(both)
        assert (found.verdict, found.fault and found.fault.code) == (
            Verdict.MAINTENANCE_REQUIRED,
            FaultCode.GPU_ERROR,
        )
        assert found.differs(judge(planned)), "the verdict is the same, and what works is not"
        assert not found.differs(judge(with_seen((), [seen(FaultCode.GPU_ERROR)], Source.LOOK)))
        milder = with_seen(planned, [seen(FaultCode.MEMORY_REPAIR_PENDING)], Source.LOOK)
        assert judge(milder).still_works


def test_a_slow_link_counts_when_it_is_reported_again_and_again_without_a_pause() -> None:
    minute = timedelta(minutes=1)
    once = with_seen((), [seen(FaultCode.PCIE_REDUCED)], Source.SAMPLE)
    assert judge(once).verdict is Verdict.HEALTHY
    assert still_open(once, NOTHING, AT + minute / 2)
    assert not still_open(once, NOTHING, AT + minute), "work began, and the values were of two moments"
    often = with_seen(once, [seen(FaultCode.PCIE_REDUCED, AT + 2 * minute)], Source.SAMPLE)
    assert judge(often).verdict is Verdict.DEGRADED
    assert still_open(often, NOTHING, AT + 100 * HOUR), "silence does not end it then"


def test_an_nvlink_is_down_when_fewer_are_up_than_when_the_gpu_was_accepted() -> None:
    def shown(active: int, accepted: AcceptedGpu) -> list[str]:
        gpu = GpuReading(0, lost=False, uuid="GPU-a", links=18, active_links=active)
        return [each.detail for each in faults_seen(reading(gpu), 1, accepted=[accepted])]

    assert shown(12, ACCEPTED) == shown(0, replace(ACCEPTED, nvlinks=0)) == []
    assert shown(11, ACCEPTED) == ["GPU 0 has 11 of 12 NVLinks"]
    assert shown(12, replace(ACCEPTED, nvlinks=None)) == ["GPU 0 has 12 of 18 NVLinks"]


def test_both_sides_mean_the_same_by_load_and_by_a_slowdown_of_the_hardware() -> None:
    assert LOADED_PERCENT == sample.LOADED_PERCENT
    assert HARDWARE_THROTTLE == sample.HARDWARE_THROTTLE


def test_gpus_that_are_not_there_are_a_fault_of_the_machine() -> None:
    (missing,) = faults_seen(reading(GpuReading(0, lost=False)), 8)
    assert (missing.code, missing.gpu, missing.detail) == (
        FaultCode.GPU_MISSING,
        None,
        "1 of 8 GPUs are there",
    )


def test_a_slowdown_counts_when_it_lasts_and_lapses_by_itself() -> None:
    once = with_seen((), [seen(FaultCode.HARDWARE_SLOWDOWN)], Source.SAMPLE)
    assert judge(once).verdict is Verdict.HEALTHY
    twice = with_seen(once, [seen(FaultCode.HARDWARE_SLOWDOWN, AT + timedelta(minutes=2))], Source.SAMPLE)
    assert judge(twice).verdict is Verdict.DEGRADED
    assert still_open(twice, NOTHING, AT + timedelta(minutes=11))
    assert not still_open(twice, NOTHING, AT + timedelta(minutes=12))


def test_the_worst_fault_decides_and_the_oldest_of_equal_ones_explains() -> None:
    faults = with_seen((), [seen(FaultCode.NVLINK_DOWN), seen(FaultCode.GPU_LOST, AT + HOUR)], Source.LOOK)
    assert judge(faults).fault == faults[1]
    assert judge(()).why == "no fault is known"


def test_we_look_at_once_then_with_a_gap_and_again_later_for_the_end() -> None:
    claimed = with_seen((), [seen(FaultCode.GPU_LOST)], Source.SAMPLE)
    assert look_due((), None, AT) is None
    assert look_due(claimed, None, AT) == AT
    assert look_due(claimed, AT - HOUR, AT) == AT - HOUR + LOOKS_APART
    assert look_due(claimed, AT - HOUR, AT, contradicted=True) == AT - HOUR + LOOK_AGAIN_AFTER, (
        "it said so before"
    )
    assert look_due(claimed, AT + HOUR, AT) == AT + HOUR + LOOK_AGAIN_AFTER
    assert look_due(claimed, AT + HOUR, AT, reset_at=AT + 2 * HOUR) == AT + 2 * HOUR, "whether that helped"
    assert look_due((), AT - HOUR, AT, asked_at=AT) == AT, "a look that was asked for needs no fault"
    assert look_due((), AT + HOUR, AT, asked_at=AT) is None, "it was made"
    assert look_due(claimed, AT + HOUR, AT, reset_at=AT) == AT + HOUR + LOOK_AGAIN_AFTER, "we know already"
    assert look_due((), AT, AT + HOUR, handed_back_at=AT + HOUR) == AT + HOUR, "before it goes"
    assert look_due((), AT + HOUR, AT + HOUR, handed_back_at=AT + HOUR) is None
    for code in OF_ROWS:
        assert look_due(with_seen((), [seen(code)], Source.OPERATOR), None, AT) is None, code


_REPORTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(FaultCode)),
        st.integers(0, 2),
        st.integers(0, 500),
        st.sampled_from(sorted(Source)),
    ),
    max_size=6,
)


@given(_REPORTS)
def test_reports_in_any_order_and_however_often_come_to_the_same(
    reports: list[tuple[FaultCode, int, int, Source]],
) -> None:
    def after(order: list[tuple[FaultCode, int, int, Source]]) -> set[tuple[object, ...]]:
        faults: tuple[Fault, ...] = ()
        for code, gpu, minutes, source in order:
            faults = with_seen(faults, [seen(code, AT + timedelta(minutes=minutes), gpu=gpu)], source)
        return {(*fault.key, fault.first_at, fault.last_at, fault.confirmed_at) for fault in faults}

    for order in list(permutations(reports))[:24]:
        assert after([*order]) == after([*order, *order]) == after(reports)


@given(_REPORTS)
def test_more_evidence_never_makes_a_machine_healthier(
    reports: list[tuple[FaultCode, int, int, Source]],
) -> None:
    order = list(Verdict)
    faults: tuple[Fault, ...] = ()
    for code, gpu, minutes, source in reports:
        before = order.index(judge(faults).verdict)
        faults = with_seen(faults, [seen(code, AT + timedelta(minutes=minutes), gpu=gpu)], source)
        assert order.index(judge(faults).verdict) >= before


def test_only_what_confirms_sets_the_time_of_confirmation() -> None:
    for source in Source:
        (fault,) = with_seen((), [seen(FaultCode.GPU_LOST)], source)
        assert (fault.confirmed_at is not None) == (source in CONFIRMING)
    (fault,) = with_seen(opened(FaultCode.GPU_LOST, Source.SAMPLE), [seen(FaultCode.GPU_LOST)], Source.LOOK)
    assert replace(fault, confirmed_at=None).source is Source.SAMPLE
    assert fault.confirmed_at == AT
