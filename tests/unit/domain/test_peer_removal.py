"""Who may still accept the packets of a member that was removed."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.ids import OrganizationId
from control_plane.domain.peer_map import Holder
from control_plane.domain.peer_removal import Holding, Reading, Removal, still_holding

RELAY = OrganizationId(UUID(int=1))
REMOVED = datetime(2026, 11, 22, 12, tzinfo=UTC)
LATER = REMOVED + timedelta(seconds=5)
REMOVAL = Removal(frozenset({"old", "next"}), frozenset({1, 12, RELAY}), REMOVED)
CLEAN = Reading(frozenset({"somebody's"}), LATER)


def test_a_removal_is_complete_when_every_holder_was_seen_without_the_keys() -> None:
    assert still_holding(REMOVAL, {1: CLEAN, 12: CLEAN, RELAY: CLEAN}) == ()


def test_a_holder_that_was_not_read_since_is_listed_with_since_when() -> None:
    before = Reading(frozenset(), REMOVED)
    readings: dict[Holder, Reading] = {1: CLEAN, 12: before}
    assert set(still_holding(REMOVAL, readings)) == {
        Holding(12, REMOVED, None),
        Holding(RELAY, REMOVED, None),
    }


def test_a_holder_that_still_lists_either_key_is_listed_with_when_it_was_seen() -> None:
    for key in ("old", "next"):
        readings: dict[Holder, Reading] = {1: CLEAN, 12: Reading(frozenset({key}), LATER), RELAY: CLEAN}
        assert still_holding(REMOVAL, readings) == (Holding(12, REMOVED, LATER),)


def test_a_holder_that_is_gone_holds_nothing() -> None:
    assert still_holding(REMOVAL, {1: CLEAN, RELAY: CLEAN}, gone=[12]) == ()
