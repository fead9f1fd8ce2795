"""What a provider's list of planned work changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.ids import MachineId, ProviderRef
from control_plane.domain.planned_work import (
    AHEAD_MAX,
    PAST_MAX,
    PER_MACHINE_MAX,
    SAME_WITHIN,
    Announced,
    Changes,
    Ended,
    New,
    PlannedWork,
    PutOff,
    WorkKind,
    announcement,
    changes,
)

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
AT = NOW + timedelta(days=14)
HOUR = timedelta(hours=1)
REF, MACHINE, ROW = ProviderRef("i-1"), MachineId(UUID(int=7)), UUID(int=70)
OURS = {REF: MACHINE}
WORK = PlannedWork(REF, "event-1", WorkKind.STOP, "instance-stop", AT)
KNOWN = Announced(ROW, MACHINE, "event-1", WORK.why, AT, None)


def test_what_is_listed_for_the_first_time_is_announced_and_the_same_list_again_changes_nothing() -> None:
    assert changes([], [WORK], OURS, NOW) == Changes(new=(New(MACHINE, WORK),))
    assert changes([KNOWN], [WORK], OURS, NOW) == Changes()


def test_work_on_what_is_no_machine_of_ours_is_left_out() -> None:
    assert changes([], [WORK], {}, NOW) == Changes()


def test_two_events_of_a_machine_are_two_announcements() -> None:
    other = replace(WORK, event="event-2", kind=WorkKind.REBOOT)
    assert changes([KNOWN], [WORK, other], OURS, NOW) == Changes(new=(New(MACHINE, other),))


def test_one_list_that_lacks_an_event_ends_nothing_and_a_second_one_ends_it_as_of_the_first() -> None:
    assert changes([KNOWN], [], OURS, NOW) == Changes(unlisted=(ROW,))
    missed = replace(KNOWN, unlisted_at=NOW)
    (ended,) = changes([missed], [], OURS, NOW + HOUR).ended
    assert (ended.announced, ended.at, ended.called_off) == (missed, NOW, True)
    assert changes([missed], [WORK], OURS, NOW + HOUR) == Changes(listed_again=(ROW,))


def test_work_whose_time_has_come_was_done_and_not_called_off() -> None:
    begun = replace(KNOWN, planned_at=NOW - HOUR, unlisted_at=NOW)
    (ended,) = changes([begun], [], OURS, NOW + HOUR).ended
    assert not ended.called_off


def test_lists_that_suddenly_lack_most_of_what_is_to_come_are_believed_an_hour_later() -> None:
    """An answer without anything in it is more likely a fault than that everything was called off at once."""
    several = [
        replace(KNOWN, id=UUID(int=number), event=f"event-{number}", unlisted_at=NOW) for number in range(3)
    ]
    assert changes(several, [], OURS, NOW + HOUR - timedelta(seconds=1)) == Changes()
    assert all(each.called_off for each in changes(several, [], OURS, NOW + HOUR).ended)
    assert len(changes(several, [], OURS, NOW + HOUR).ended) == 3
    assert len(changes(several[:2], [], OURS, NOW + timedelta(minutes=5)).ended) == 2, "two are not many"
    others = [replace(each, id=UUID(int=9), event=f"{each.event}-kept", unlisted_at=None) for each in several]
    listed = [replace(WORK, event=each.event) for each in others]
    assert len(changes([*several, *others], listed, OURS, NOW + timedelta(minutes=5)).ended) == 3, "half stay"
    begun = replace(several[0], planned_at=NOW - HOUR)
    assert [each.announced for each in changes([begun, *several[1:]], [], OURS, NOW + HOUR / 2).ended] == [
        begun,
        *several[1:],
    ], "what has begun is over soon, and says nothing of what is to come"


def test_work_that_is_listed_under_another_id_for_the_same_time_is_not_called_off() -> None:
    missed, renamed = replace(KNOWN, unlisted_at=NOW), replace(WORK, event="event-2")
    (ended,) = changes([missed], [renamed], OURS, NOW + HOUR).ended
    assert not ended.called_off
    (ended,) = changes([missed], [replace(renamed, begins_at=AT + HOUR)], OURS, NOW + HOUR).ended
    assert ended.called_off, "nothing happens then"


def test_work_on_a_machine_that_is_gone_ends_at_once_and_is_not_called_off() -> None:
    known = replace(KNOWN, machine_ended=True)
    for listed in ([], [WORK]):
        assert changes([known], listed, {}, NOW) == Changes(ended=(Ended(known, NOW, called_off=False),))


def test_work_that_is_put_off_keeps_its_announcement() -> None:
    later = replace(WORK, begins_at=AT + HOUR)
    assert changes([KNOWN], [later], OURS, NOW) == Changes(
        put_off=(PutOff(ROW, MACHINE, AT + HOUR, WORK.why),)
    )


def test_work_that_is_brought_forward_is_announced_anew() -> None:
    sooner = replace(WORK, begins_at=AT - HOUR)
    found = changes([KNOWN], [sooner], OURS, NOW)
    assert found == Changes(ended=(Ended(KNOWN, NOW, called_off=False),), new=(New(MACHINE, sooner),))
    assert not found.ended[0].called_off, "nobody is told that it will not happen"


def test_the_time_of_work_under_way_is_not_brought_forward() -> None:
    begun = replace(KNOWN, planned_at=NOW - HOUR)
    assert changes([begun], [replace(WORK, begins_at=NOW - 2 * HOUR)], OURS, NOW) == Changes()


def test_a_customer_reads_what_happens_who_does_it_and_when() -> None:
    assert announcement(WORK.why, AT) == (
        "The machine's provider plans work on it: it will be stopped (instance-stop), not before 2026-12-13 12:00 UTC."
    )


def test_work_at_an_impossible_time_is_left_out_and_one_that_is_known_keeps_its_own() -> None:
    """Programs write the year 1 where they know no time."""
    for at in (datetime(1, 1, 1, tzinfo=UTC), NOW - PAST_MAX - HOUR, NOW + AHEAD_MAX + HOUR):
        said = replace(WORK, begins_at=at)
        assert changes([], [said], OURS, NOW) == Changes(left_out=1)
        assert changes([KNOWN], [said], OURS, NOW) == Changes()
    for at in (NOW - PAST_MAX, NOW + AHEAD_MAX):
        assert len(changes([], [replace(WORK, begins_at=at)], OURS, NOW).new) == 1


def test_work_that_moves_by_seconds_has_not_moved() -> None:
    for seconds in (-59, -1, 1, 59):
        assert (
            changes([KNOWN], [replace(WORK, begins_at=AT + timedelta(seconds=seconds))], OURS, NOW)
            == Changes()
        )
    for moved in (AT - SAME_WITHIN, AT + SAME_WITHIN):
        assert changes([KNOWN], [replace(WORK, begins_at=moved)], OURS, NOW).count > 0


def test_of_a_machine_few_announcements_count_and_none_that_is_known_makes_room() -> None:
    flood = [replace(WORK, event=f"event-{number}", begins_at=AT - HOUR) for number in range(2, 1000)]
    found = changes([KNOWN], [*flood, WORK], OURS, NOW)
    assert (len(found.new), found.unlisted, found.left_out) == (
        PER_MACHINE_MAX - 1,
        (),
        999 - PER_MACHINE_MAX,
    )
