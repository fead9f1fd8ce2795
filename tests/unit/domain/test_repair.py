"""The ladder of a repair: which action comes when, what a customer decides, and what holds back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from control_plane.domain.health import FaultCode, Source, Verdict, judge, with_seen
from control_plane.domain.health import Seen as SeenFault
from control_plane.domain.repair import (
    ALWAYS_ALLOWED,
    EVICTED_PER_RUN_MAX,
    NOTICE,
    REPLACED_PER_RUN_MAX,
    STEP_LASTS,
    Action,
    Climb,
    Close,
    Consent,
    DropSpare,
    Facts,
    Notify,
    OrderSpare,
    RepairStep,
    Reset,
    TakeAway,
    Wait,
    consent_of,
    held_back,
    next_action,
)

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
REPAIRED = sorted(set(FaultCode) - {FaultCode.PROGRAM_ERRORS})
"""Those errors change no verdict, so there is no repair."""


def facts(code: FaultCode, source: Source = Source.LOOK, *, step: RepairStep = RepairStep.WATCH) -> Facts:
    faults = with_seen(
        (), [SeenFault(code, 0, AT, "detail"), SeenFault(code, 0, AT + MINUTE * 5, "detail")], source
    )
    judgement = judge(faults)
    return Facts(
        verdict=judgement.verdict,
        fault=judgement.fault,
        step=step,
        step_at=AT,
        notified_at=None,
        used=True,
        is_node=False,
        consent=Consent.NOTIFIED,
        evicted=False,
        agreed=False,
        look_awaited=False,
        spare_ready=False,
        spare_wanted=False,
        challenged=True,
        was_reset=False,
        reboots=True,
        not_before=None,
    )


def climbs(action: Action) -> RepairStep | None:
    return action.step if isinstance(action, Climb) else None


def test_a_machine_that_is_healthy_again_is_left_alone_whatever_the_step() -> None:
    for step in RepairStep:
        healthy = replace(facts(FaultCode.GPU_LOST, step=step), verdict=Verdict.HEALTHY, fault=None)
        assert next_action(healthy, AT) == Close()


def test_the_word_of_the_machine_alone_leads_to_a_look_and_a_challenge_and_never_further() -> None:
    for code in FaultCode:
        said = facts(code, Source.SAMPLE)
        if said.verdict is not Verdict.DEGRADED or code is FaultCode.HANDED_BACK:
            continue  # What our rows say is no claim of the machine's.
        for step in (RepairStep.WATCH, RepairStep.CHALLENGE):
            for hours in (0, 1, 100):
                action = next_action(replace(said, step=step), AT + timedelta(hours=hours))
                assert isinstance(action, Wait) or climbs(action) is RepairStep.CHALLENGE, (
                    code,
                    step,
                    hours,
                    action,
                )


def test_a_gpu_that_is_out_is_reset_and_one_that_is_lost_replaced() -> None:
    assert climbs(next_action(facts(FaultCode.GPU_ERROR), AT)) is RepairStep.RESET
    assert climbs(next_action(facts(FaultCode.GPU_LOST), AT)) is RepairStep.REPLACE
    assert climbs(next_action(facts(FaultCode.MEMORY_REPAIR_PENDING), AT)) is RepairStep.RESET


def test_a_machine_that_works_is_given_an_hour_to_recover() -> None:
    degraded = facts(FaultCode.NVLINK_DOWN)
    assert isinstance(next_action(degraded, AT + MINUTE * 59), Wait)
    assert climbs(next_action(degraded, AT + MINUTE * 60)) is RepairStep.REPLACE


def test_a_machine_that_its_provider_does_not_list_is_left_to_the_lists() -> None:
    for code in (FaultCode.PROVIDER_DOWN, FaultCode.PROVIDER_MISSING):
        assert isinstance(next_action(facts(code, Source.PROVIDER), AT + timedelta(days=1)), Wait)


def test_a_customer_is_told_before_a_reboot_and_it_comes_when_the_time_is_over() -> None:
    reset = facts(FaultCode.GPU_ERROR, step=RepairStep.RESET)
    told = next_action(reset, AT)
    assert told == Notify(RepairStep.RESET, AT + NOTICE[Verdict.MAINTENANCE_REQUIRED], recommended=False)
    notified = replace(reset, notified_at=AT)
    assert isinstance(next_action(notified, AT + MINUTE * 14), Wait)
    assert isinstance(next_action(notified, AT + MINUTE * 15), Reset)
    rebooted = replace(notified, was_reset=True)
    assert isinstance(next_action(rebooted, AT + MINUTE * 16), Wait), "once, and then we look"
    assert climbs(next_action(rebooted, AT + STEP_LASTS[RepairStep.RESET])) is RepairStep.REPLACE
    assert climbs(next_action(notified, AT + STEP_LASTS[RepairStep.RESET])) is RepairStep.REPLACE


def test_a_customer_who_decides_is_asked_and_nothing_comes_by_itself() -> None:
    for step in (RepairStep.RESET, RepairStep.REPLACE):
        asked = replace(facts(FaultCode.GPU_ERROR, step=step), consent=Consent.ASKED)
        action = next_action(asked, AT)
        assert isinstance(action, Notify)
        assert action.recommended
        later = next_action(replace(asked, notified_at=AT), AT + timedelta(days=7))
        assert isinstance(later, Wait) or climbs(later) is RepairStep.TICKET
    planned = facts(FaultCode.PROVIDER_MAINTENANCE, Source.PROVIDER, step=RepairStep.REPLACE)
    asked = replace(planned, consent=Consent.ASKED, notified_at=AT)
    assert isinstance(next_action(asked, AT + timedelta(days=7)), Wait), (
        "nothing is left for its provider to repair"
    )


def test_a_machine_is_replaced_at_once_when_its_customer_asks() -> None:
    for code in REPAIRED:
        for step in RepairStep:
            for consent in Consent:
                asking = replace(facts(code, step=step), agreed=True, consent=consent)
                assert isinstance(next_action(asking, AT), TakeAway), (code, step, consent)


def test_a_machine_is_rebooted_for_what_a_reset_repairs_without_waiting_for_it_to_recover() -> None:
    for code in (FaultCode.MEMORY_REPAIR_PENDING, FaultCode.RESET_ADVISED):
        assert climbs(next_action(facts(code), AT)) is RepairStep.RESET, code
    assert isinstance(next_action(facts(FaultCode.MEMORY_WEARS), AT), Wait)


def test_what_is_handed_back_is_looked_at_before_it_goes() -> None:
    for code in REPAIRED:
        asking = replace(facts(code), agreed=True, look_awaited=True)
        assert isinstance(next_action(asking, AT), Wait), code
        assert isinstance(next_action(replace(asking, look_awaited=False), AT), TakeAway), code


def test_a_node_goes_at_once_when_its_provider_announces_to_take_it_back() -> None:
    for step in RepairStep:
        for consent in Consent:
            for code in REPAIRED:  # Whatever else is wrong with it, and however bad.
                found = replace(facts(code, step=step), evicted=True, consent=consent)
                assert isinstance(next_action(replace(found, is_node=True), AT), TakeAway), (step, consent)
    machine = replace(facts(FaultCode.EVICTION_ANNOUNCED, Source.PROVIDER), evicted=True)
    assert climbs(next_action(machine, AT)) is RepairStep.REPLACE, (
        "whoever logs in has the notice of the tier"
    )
    unused = replace(machine, is_node=True, used=False)
    assert climbs(next_action(unused, AT)) is RepairStep.REPLACE, "no pod is on it yet"


def test_nodes_that_are_taken_back_together_go_together_and_a_dry_run_keeps_them() -> None:
    def held(taken: int, *, evicted: bool, dry_run: bool = False) -> bool:
        return (
            held_back(
                unhealthy=50, machines=60, taken=taken, dry_run=dry_run, permitted=False, evicted=evicted
            )
            is not None
        )

    assert held(0, evicted=False)
    assert not held(EVICTED_PER_RUN_MAX - 1, evicted=True)
    assert held(EVICTED_PER_RUN_MAX, evicted=True)
    assert held(0, evicted=True, dry_run=True)


def test_where_the_tier_promises_it_the_machine_stays_until_another_one_is_ready() -> None:
    ahead = replace(
        facts(FaultCode.GPU_LOST, step=RepairStep.REPLACE),
        consent=Consent.AHEAD,
        notified_at=AT - timedelta(hours=1),
    )
    assert next_action(ahead, AT) == OrderSpare()
    assert isinstance(next_action(replace(ahead, spare_ready=True), AT), TakeAway)


def test_a_machine_that_nobody_uses_is_ended_without_a_notice() -> None:
    unused = replace(facts(FaultCode.GPU_LOST, step=RepairStep.REPLACE), used=False, consent=Consent.ASKED)
    assert isinstance(next_action(unused, AT), TakeAway)
    assert (
        climbs(next_action(replace(unused, step=RepairStep.RESET, verdict=Verdict.DEGRADED), AT))
        is RepairStep.REPLACE
    )


def test_a_provider_that_cannot_reboot_leads_to_a_replacement() -> None:
    fixed = replace(facts(FaultCode.GPU_ERROR, step=RepairStep.RESET), reboots=False)
    assert climbs(next_action(fixed, AT)) is RepairStep.REPLACE


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
    for step in RepairStep:
        out = replace(facts(FaultCode.UNDER_MAINTENANCE, Source.OPERATOR, step=step), used=False)
        assert isinstance(next_action(out, AT + timedelta(days=30)), Wait), step


def test_planned_work_reboots_nobody_and_interrupts_nobody_before_its_time() -> None:
    planned = AT + timedelta(days=3)
    out = replace(facts(FaultCode.UNDER_MAINTENANCE, Source.OPERATOR), not_before=planned)
    for step in (RepairStep.WATCH, RepairStep.RESET):
        assert climbs(next_action(replace(out, step=step, notified_at=AT), AT)) is RepairStep.REPLACE, step
        evicted = facts(FaultCode.EVICTION_ANNOUNCED, Source.PROVIDER, step=step)
        assert climbs(next_action(evicted, AT)) is RepairStep.REPLACE, step
    for consent in (Consent.NOTIFIED, Consent.AHEAD):
        told = replace(out, step=RepairStep.REPLACE, consent=consent)
        assert next_action(told, AT) == Notify(RepairStep.REPLACE, planned, recommended=False)
        told = replace(told, notified_at=AT)
        assert isinstance(next_action(told, planned - MINUTE * 61), Wait), consent
        assert isinstance(next_action(replace(told, spare_ready=True), planned - MINUTE), Wait), consent
        assert isinstance(next_action(replace(told, spare_ready=True), planned), TakeAway), consent
    assert isinstance(next_action(told, planned - MINUTE * 60), OrderSpare), "an hour ahead, and not for days"
    ready = replace(told, spare_wanted=True, spare_ready=True)
    assert isinstance(next_action(ready, planned - MINUTE * 60), Wait)
    assert isinstance(next_action(ready, planned - MINUTE * 61), DropSpare), "the work was put off"
    asked = replace(out, step=RepairStep.REPLACE, consent=Consent.ASKED)
    assert next_action(asked, AT) == Notify(RepairStep.REPLACE, AT, recommended=True)
    at_once = replace(told, not_before=None, spare_ready=True)
    assert isinstance(next_action(at_once, AT + MINUTE * 14), Wait)
    assert isinstance(next_action(at_once, AT + MINUTE * 15), TakeAway)


def test_nobody_is_asked_about_a_node_and_it_is_never_rebooted() -> None:
    assert consent_of(None) is Consent.ASKED
    assert consent_of(None, is_node=True) is Consent.NOTIFIED
    for code in FaultCode:
        for step in RepairStep:
            for notified_at in (None, AT):
                node = replace(facts(code, step=step), is_node=True, notified_at=notified_at)
                for hours in (0, 1, 100):
                    action = next_action(node, AT + timedelta(hours=hours))
                    assert not isinstance(action, Reset), (code, step, hours)
                    assert not (isinstance(action, Notify) and action.step is RepairStep.RESET), (code, step)
    reset = replace(facts(FaultCode.GPU_ERROR, step=RepairStep.RESET), is_node=True)
    assert climbs(next_action(reset, AT)) is RepairStep.REPLACE


def test_a_machine_that_failed_a_proof_is_left_to_its_next_challenge() -> None:
    for step in RepairStep:
        for used in (True, False):
            suspect = replace(facts(FaultCode.PROOF_FAILED, Source.PROOF, step=step), used=used)
            assert isinstance(next_action(suspect, AT + timedelta(days=1)), Wait), (step, used)
