"""A lease that waits for stock: what its customer reads, and when it is given up."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from control_plane.domain.deadline import LOOKED_AT_WITHIN, UNATTENDED_MAX_WITHOUT_MACHINE
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.placement import RejectCode, Rejection
from control_plane.domain.ranking import Ranking
from control_plane.domain.waiting import (
    ATTEMPTS_MAX,
    LOOK_AGAIN_AFTER,
    GiveUp,
    KeepWaiting,
    in_turn,
    tried_too_often,
    unserved,
    waiting_why,
)
from tests.support.clock import START
from tests.support.values import a_lease
from tests.unit.domain.test_placement import OFFER

MOMENT = timedelta(microseconds=1)
SOLD_OUT = Ranking((), tuple(Rejection(replace(OFFER, key=key), RejectCode.SOLD_OUT, "") for key in "ab"))


def _unserved(
    after: timedelta, *, overdue: timedelta = timedelta(0), unrefreshed: Collection[str] = ()
) -> GiveUp | KeepWaiting:
    """The decision so long after the moment at which a lease gives up, when it was due so long ago."""
    now = START + after
    return unserved(SOLD_OUT, due_at=now - overdue, gives_up_at=START, unrefreshed=unrefreshed, now=now)


def test_a_lease_that_tried_as_often_as_it_may_is_given_up() -> None:
    assert tried_too_often(ATTEMPTS_MAX - 1) is None
    assert f"{ATTEMPTS_MAX} attempts failed" in str(tried_too_often(ATTEMPTS_MAX))


def test_a_lease_waits_to_the_moment_at_which_it_gives_up() -> None:
    for before in (timedelta(hours=1), LOOK_AGAIN_AFTER, MOMENT):
        decision = _unserved(-before)
        assert isinstance(decision, KeepWaiting)
        assert decision.due_at == START - before + min(before, LOOK_AGAIN_AFTER)
    given_up = _unserved(timedelta(0))
    assert isinstance(given_up, GiveUp)
    assert "none of 2 offers can serve it now: 2 sold out" in given_up.why


def test_a_lease_that_nobody_looked_at_in_time_is_looked_at_once_more_before_it_is_given_up() -> None:
    for outage in (LOOKED_AT_WITHIN + MOMENT, timedelta(days=3)):
        decision = _unserved(outage, overdue=outage)
        assert isinstance(decision, KeepWaiting), outage
        again = decision.due_at - START
        assert again == outage + LOOKED_AT_WITHIN
        assert isinstance(_unserved(again), GiveUp), outage
    assert isinstance(_unserved(LOOKED_AT_WITHIN, overdue=LOOKED_AT_WITHIN), GiveUp)


def test_a_lease_waits_half_an_hour_for_offers_that_nobody_refreshed() -> None:
    for after in (timedelta(0), UNATTENDED_MAX_WITHOUT_MACHINE - MOMENT):
        decision = _unserved(after, unrefreshed=("lambda_cloud",))
        assert isinstance(decision, KeepWaiting), after
        assert decision.due_at == START + after + LOOK_AGAIN_AFTER
        assert isinstance(_unserved(after), GiveUp), after
    assert isinstance(_unserved(UNATTENDED_MAX_WITHOUT_MACHINE, unrefreshed=("lambda_cloud",)), GiveUp)


def test_a_lease_that_waits_says_how_many_offers_cannot_serve_it_and_why() -> None:
    assert waiting_why(Ranking((), ())) == "No provider lists these GPUs."
    elsewhere = Rejection(OFFER, RejectCode.REGION_EXCLUDED, "")
    ranking = Ranking((), (*SOLD_OUT.rejected, elsewhere))
    assert waiting_why(ranking) == "None of 3 offers can serve it now: 1 in other regions, 2 sold out."


def test_every_reason_of_a_rejection_has_words_for_a_lease_that_waits() -> None:
    for code in RejectCode:
        assert waiting_why(Ranking((), (Rejection(OFFER, code, ""),))).endswith("."), code


def test_a_high_priority_goes_before_the_own_leases_and_gains_nothing_on_other_organizations() -> None:
    ours, others = OrganizationId(UUID(int=1)), OrganizationId(UUID(int=2))

    def waiting(number: int, organization_id: OrganizationId, priority: int) -> Lease:
        return a_lease(
            id=LeaseId(UUID(int=number)),
            organization_id=organization_id,
            priority=priority,
            created_at=START + timedelta(seconds=number),
        )

    low, foreign, high, same = (
        waiting(1, ours, 10),
        waiting(2, others, 100),
        waiting(3, ours, 90),
        waiting(4, ours, 90),
    )
    assert in_turn([low, foreign, high, same]) == [high, foreign, same, low]
    assert in_turn([foreign, same, low, high]) == [foreign, high, same, low]
    assert in_turn([]) == []
