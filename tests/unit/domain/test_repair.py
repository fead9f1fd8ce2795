"""The ladder of a repair: which step comes when, what a customer decides, and what holds back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.domain.health import FaultCode, Source, Verdict, judge, with_seen
from control_plane.domain.health import Seen as SeenFault
from control_plane.domain.repair import (
    ALWAYS_ALLOWED,
    NOTICE,
    REPLACED_PER_RUN_MAX,
    RUNG_LASTS,
    Climb,
    Close,
    Consent,
    Notify,
    OrderSpare,
    Patient,
    Reset,
    Rung,
    Step,
    TakeAway,
    Wait,
    held_back,
    next_step,
)

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def patient(code: FaultCode, source: Source = Source.LOOK, *, rung: Rung = Rung.WATCH) -> Patient:
    faults = with_seen(
        (), [SeenFault(code, 0, AT, "detail"), SeenFault(code, 0, AT + MINUTE * 5, "detail")], source
    )
    judgement = judge(faults)
    return Patient(
        verdict=judgement.verdict,
        fault=judgement.fault,
        rung=rung,
        rung_at=AT,
        notified_at=None,
        used=True,
        consent=Consent.NOTIFIED,
        agreed=False,
        spare_ready=False,
        challenged=True,
        reboots=True,
    )


def climbs(step: Step) -> Rung | None:
    return step.rung if isinstance(step, Climb) else None


def test_a_machine_that_is_healthy_again_is_left_alone_whatever_the_step() -> None:
    for rung in Rung:
        healthy = replace(patient(FaultCode.GPU_LOST, rung=rung), verdict=Verdict.HEALTHY, fault=None)
        assert next_step(healthy, AT) == Close()


def test_the_word_of_the_machine_alone_leads_to_a_look_and_a_challenge_and_never_further() -> None:
    for code in FaultCode:
        said = patient(code, Source.SAMPLE)
        if said.verdict is not Verdict.DEGRADED or code is FaultCode.HANDED_BACK:
            continue  # What our rows say is no claim of the machine's.
        for rung in (Rung.WATCH, Rung.CHALLENGE):
            for hours in (0, 1, 100):
                step = next_step(replace(said, rung=rung), AT + timedelta(hours=hours))
                assert isinstance(step, Wait) or climbs(step) is Rung.CHALLENGE, (code, rung, hours, step)


def test_a_gpu_that_is_out_is_reset_and_one_that_is_lost_replaced() -> None:
    assert climbs(next_step(patient(FaultCode.GPU_ERROR), AT)) is Rung.RESET
    assert climbs(next_step(patient(FaultCode.GPU_LOST), AT)) is Rung.REPLACE
    assert climbs(next_step(patient(FaultCode.MEMORY_REPAIR_PENDING), AT)) is Rung.RESET


def test_a_machine_that_works_is_given_an_hour_to_recover() -> None:
    degraded = patient(FaultCode.NVLINK_DOWN)
    assert isinstance(next_step(degraded, AT + MINUTE * 59), Wait)
    assert climbs(next_step(degraded, AT + MINUTE * 60)) is Rung.REPLACE


def test_a_machine_that_its_provider_does_not_list_is_left_to_the_lists() -> None:
    for code in (FaultCode.PROVIDER_DOWN, FaultCode.PROVIDER_MISSING):
        assert isinstance(next_step(patient(code, Source.PROVIDER), AT + timedelta(days=1)), Wait)


def test_a_customer_is_told_before_a_reboot_and_it_comes_when_the_time_is_over() -> None:
    reset = patient(FaultCode.GPU_ERROR, rung=Rung.RESET)
    told = next_step(reset, AT)
    assert told == Notify(Rung.RESET, AT + NOTICE[Verdict.MAINTENANCE_REQUIRED], recommended=False)
    notified = replace(reset, notified_at=AT)
    assert isinstance(next_step(notified, AT + MINUTE * 14), Wait)
    assert isinstance(next_step(notified, AT + MINUTE * 15), Reset)
    assert climbs(next_step(notified, AT + RUNG_LASTS[Rung.RESET])) is Rung.REPLACE


def test_a_customer_who_decides_is_asked_and_nothing_comes_by_itself() -> None:
    for rung in (Rung.RESET, Rung.REPLACE):
        asked = replace(patient(FaultCode.GPU_ERROR, rung=rung), consent=Consent.ASKED)
        step = next_step(asked, AT)
        assert isinstance(step, Notify)
        assert step.recommended
        later = next_step(replace(asked, notified_at=AT), AT + timedelta(days=7))
        assert isinstance(later, Wait) or climbs(later) is Rung.TICKET


def test_a_machine_is_replaced_at_once_when_its_customer_asks() -> None:
    for code in FaultCode:
        for rung in Rung:
            for consent in Consent:
                asking = replace(patient(code, rung=rung), agreed=True, consent=consent)
                assert isinstance(next_step(asking, AT), TakeAway), (code, rung, consent)


def test_where_the_tier_promises_it_the_machine_stays_until_another_one_is_ready() -> None:
    ahead = replace(
        patient(FaultCode.GPU_LOST, rung=Rung.REPLACE),
        consent=Consent.AHEAD,
        notified_at=AT - timedelta(hours=1),
    )
    assert next_step(ahead, AT) == OrderSpare()
    assert isinstance(next_step(replace(ahead, spare_ready=True), AT), TakeAway)


def test_a_machine_that_nobody_uses_is_ended_without_a_notice() -> None:
    unused = replace(patient(FaultCode.GPU_LOST, rung=Rung.REPLACE), used=False, consent=Consent.ASKED)
    assert isinstance(next_step(unused, AT), TakeAway)
    assert climbs(next_step(replace(unused, rung=Rung.RESET, verdict=Verdict.DEGRADED), AT)) is Rung.REPLACE


def test_a_provider_that_cannot_reboot_leads_to_a_replacement() -> None:
    fixed = replace(patient(FaultCode.GPU_ERROR, rung=Rung.RESET), reboots=False)
    assert climbs(next_step(fixed, AT)) is Rung.REPLACE


@pytest.mark.parametrize(
    ("unhealthy", "machines", "held"),
    [
        (1, 1, False),
        (1, 3, False),
        (2, 3, True),
        (2, 10, False),
        (3, 10, True),
        (20, 100, False),
        (21, 100, True),
    ],
)
def test_one_in_five_machines_may_be_unhealthy_and_always_one(
    unhealthy: int, machines: int, held: bool
) -> None:
    why = held_back(unhealthy=unhealthy, machines=machines, taken=0, dry_run=False, permitted=False)
    assert (why is not None) == held
    assert held_back(unhealthy=unhealthy, machines=machines, taken=0, dry_run=False, permitted=True) is None


def test_a_dry_run_and_the_bound_of_a_run_hold_back_whoever_permits_it() -> None:
    assert held_back(unhealthy=1, machines=100, taken=0, dry_run=True, permitted=True) is not None
    full = held_back(unhealthy=1, machines=100, taken=REPLACED_PER_RUN_MAX, dry_run=False, permitted=True)
    assert full is not None
    assert ALWAYS_ALLOWED == 1


def test_a_machine_that_an_operator_took_out_and_nobody_uses_is_kept_until_it_is_returned() -> None:
    for rung in Rung:
        out = replace(patient(FaultCode.UNDER_MAINTENANCE, Source.OPERATOR, rung=rung), used=False)
        assert isinstance(next_step(out, AT + timedelta(days=30)), Wait), rung


def test_a_machine_that_failed_a_proof_is_left_to_its_next_challenge() -> None:
    for rung in Rung:
        for used in (True, False):
            suspect = replace(patient(FaultCode.PROOF_FAILED, Source.PROOF, rung=rung), used=used)
            assert isinstance(next_step(suspect, AT + timedelta(days=1)), Wait), (rung, used)
