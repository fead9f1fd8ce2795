"""What becomes of children: deleted when their machine does not need them, and never touched without its record."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from control_plane.domain.child import DELETED_PER_RUN_MAX, Child, Needed, Parent, Sorted, oddness, to_delete
from control_plane.domain.machine import MAY_EXIST, MachineState
from control_plane.domain.orphan import LEAK_MAX
from control_plane.domain.progress import Step
from tests.support.clock import START
from tests.support.values import OURS, THEIRS, a_key, a_machine

LATE = timedelta(minutes=11)
BOOTED = {Step.PLACED, Step.LAUNCHED, Step.BOOTED}


def a_script(number: int = 1, installation: str = OURS) -> Child:
    return Child(f"script-{number}", "startup_script", a_key(number, installation), Needed.UNTIL_BOOT)


def a_volume(number: int = 1) -> Child:
    return Child(f"volume-{number}", "volume", a_key(number), Needed.WHILE_IT_EXISTS)


def a_parent(
    number: int = 1,
    state: MachineState = MachineState.VERIFIED,
    *,
    step: Step = Step.GPUS_VERIFIED,
    gone_at: datetime | None = None,
) -> Parent:
    return Parent(a_machine(number).id, a_key(number), state, step, gone_at)


def sort(
    children: Iterable[Child],
    parents: Iterable[Parent],
    *,
    frozen_why: str | None = None,
    armed: bool = True,
    decided: Iterable[Child] = (),
    now: datetime = START,
) -> Sorted:
    by_key = {parent.launch_key: parent for parent in parents}
    return to_delete(
        list(children),
        by_key,
        installation=OURS,
        frozen_why=frozen_why,
        armed=armed,
        decided={child.key for child in decided},
        late=LATE,
        now=now,
    )


def deleted(
    children: Iterable[Child], parents: Iterable[Parent], *, frozen_why: str | None = None
) -> list[str]:
    return [unneeded.child.ref for unneeded in sort(children, parents, frozen_why=frozen_why).delete]


def test_a_start_up_script_goes_once_its_machine_was_reached_over_ssh_and_not_before() -> None:
    for step in Step:
        booting = a_parent(state=MachineState.BOOTSTRAPPING, step=step)
        assert deleted([a_script()], [booting]) == ([] if step in BOOTED else ["script-1"]), step


def test_a_start_up_script_goes_when_its_machine_is_over_whether_or_not_it_was_reached() -> None:
    for state in MachineState:
        parent = a_parent(state=state, step=Step.PLACED, gone_at=None)
        over = state in (MachineState.TERMINATING, MachineState.GONE)
        assert deleted([a_script()], [parent]) == (["script-1"] if over else []), state


def test_a_volume_goes_only_when_its_machine_is_certainly_gone() -> None:
    for state in MAY_EXIST | {MachineState.INTENDED}:
        assert deleted([a_volume()], [a_parent(state=state)]) == [], state
    moment = timedelta(microseconds=1)
    for age, goes in ((timedelta(0), False), (LATE - moment, False), (LATE, True)):
        gone = a_parent(state=MachineState.GONE, gone_at=START - age)
        assert deleted([a_volume()], [gone]) == (["volume-1"] if goes else []), age


def test_a_volume_stays_while_an_orphan_of_the_same_launch_is_listed() -> None:
    orphaned = a_parent(state=MachineState.GONE, gone_at=None)
    assert deleted([a_volume()], [orphaned]) == []


def test_a_child_without_a_record_of_ours_is_never_deleted_and_told_apart_from_a_foreign_one() -> None:
    foreign = a_script(9, THEIRS)
    found = sort([a_script(1), a_script(2), foreign], [a_parent(1)])
    assert [unneeded.child.ref for unneeded in found.delete] == ["script-1"]
    assert found.unrecorded == (a_script(2),)


def test_an_operator_decides_that_a_child_goes_whatever_holds_it_back_unless_its_machine_needs_it() -> None:
    strangers = [a_volume(number) for number in range(2, LEAK_MAX + 4)]
    gone, alive = a_parent(1, MachineState.GONE, gone_at=START - LATE), a_parent(100)
    children = [a_volume(1), a_volume(100), *strangers]
    decided = [a_volume(1), a_volume(100), strangers[0]]
    found = sort(children, [gone, alive], frozen_why="the list is empty.", decided=decided)
    assert [(each.child.ref, each.machine_id) for each in found.delete] == [
        ("volume-1", gone.machine_id),
        ("volume-2", None),
    ]
    assert found.unrecorded == tuple(strangers[1:])
    again = replace(strangers[1], launch_key=a_key(50))
    assert sort([again], [], decided=[strangers[1]]).delete == (), "an id that its provider used again"


def test_no_volume_is_deleted_on_a_frozen_account_and_scripts_are() -> None:
    gone = a_parent(state=MachineState.GONE, gone_at=START - LATE)
    found = sort([a_volume(), a_script()], [gone], frozen_why="the list is empty.")
    assert [unneeded.child.ref for unneeded in found.delete] == ["script-1"]
    assert found.held == {"The account is frozen: the list is empty.": 1}


def test_when_many_children_have_no_record_our_records_were_lost_and_none_is_deleted() -> None:
    def found(unrecorded: int, recorded: int) -> Sorted:
        parents = [a_parent(number) for number in range(1, recorded + 1)]
        return sort([a_script(number) for number in range(1, recorded + unrecorded + 1)], parents)

    assert len(found(LEAK_MAX, 3).delete) == 3
    lost = found(LEAK_MAX + 1, 3)
    assert lost.delete == ()
    assert lost.held == {"4 of 7 children have no record; it is more likely that our records were lost.": 3}
    assert len(found(LEAK_MAX + 1, 4 * (LEAK_MAX + 1)).delete) == DELETED_PER_RUN_MAX


def test_of_every_kind_some_are_deleted_in_each_run_however_many_there_are_of_another() -> None:
    children = [a_script(number) for number in range(1, 61)] + [a_volume(100)]
    parents = [a_parent(number, MachineState.GONE, gone_at=START - LATE) for number in (*range(1, 61), 100)]
    for minute in range(7):
        found = sort(children, parents, now=START + timedelta(minutes=minute))
        assert len(found.delete) == DELETED_PER_RUN_MAX
        assert {each.child.kind for each in found.delete} == {"startup_script", "volume"}, minute


def test_one_run_deletes_only_so_many_and_those_that_stay_keep_no_other_waiting() -> None:
    number = 3 * DELETED_PER_RUN_MAX + 2
    children = [a_script(index) for index in range(1, number + 1)]
    parents = [a_parent(index) for index in range(1, number + 1)]
    tried: set[str] = set()
    for minute in range(4):  # As if the provider refused every deletion.
        found = sort(children, parents, now=START + timedelta(minutes=minute))
        assert len(found.delete) == DELETED_PER_RUN_MAX
        assert sum(found.held.values()) == number - DELETED_PER_RUN_MAX
        tried |= {unneeded.child.ref for unneeded in found.delete}
    assert len(tried) == number


def test_on_an_account_that_is_not_armed_only_scripts_go_unless_an_operator_decided() -> None:
    gone = [a_parent(number, MachineState.GONE, gone_at=START - LATE) for number in (1, 2)]
    children = [a_script(1), a_volume(2)]
    unarmed = sort(children, gone, armed=False)
    assert [each.child.ref for each in unarmed.delete] == ["script-1"]
    assert [left.ref for left in unarmed.leftovers] == ["script-1", "volume-2"], (
        "it is a liability all the same"
    )
    assert len(sort(children, gone, armed=False, decided=[a_volume(2)]).delete) == 2


def test_a_list_of_children_that_is_empty_or_misses_too_many_is_odd() -> None:
    expected = [a_volume(number).key for number in range(1, 11)]
    for there, odd in ((10, False), (8, False), (7, False), (6, True), (1, True), (0, True)):
        listed = [a_volume(number) for number in range(1, there + 1)]
        assert (oddness(expected, listed) is not None) is odd, there
    assert oddness(expected[:2], [a_volume(3)]) is None, "two are too few to tell"
    assert oddness(expected[:2], []) is not None
    assert oddness([], []) is None
