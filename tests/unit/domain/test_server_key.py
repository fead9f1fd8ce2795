"""How the key of a cluster's server changes: when a step follows, and what the change waits for."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.node_key import ASKED_WAITED_FOR, WAITED_FOR, KeyStep
from control_plane.domain.server_key import ServerKeyChange, next_step

AT = datetime(2026, 11, 23, tzinfo=UTC)
BEFORE, SOON, LATER = AT - timedelta(hours=1), AT + ASKED_WAITED_FOR, AT + WAITED_FOR
SECOND = timedelta(seconds=1)


def test_each_step_follows_when_every_node_does_or_when_the_time_for_it_is_over() -> None:
    cases = (
        (ServerKeyChange(None, None, None, None, None), AT, True, None),
        (ServerKeyChange(None, None, None, None, BEFORE), AT, True, KeyStep.ANNOUNCE),
        (ServerKeyChange("next", None, AT, AT, BEFORE), AT, True, KeyStep.SWITCH),
        (ServerKeyChange("next", None, AT, AT, BEFORE), SOON - SECOND, False, KeyStep.WAIT),
        (ServerKeyChange("next", None, AT, AT, BEFORE), SOON, False, KeyStep.SWITCH),
        (ServerKeyChange(None, "old", AT, AT, BEFORE), AT, True, KeyStep.FINISH),
        (ServerKeyChange(None, "old", AT, AT, BEFORE), LATER - SECOND, False, KeyStep.WAIT),
        (ServerKeyChange(None, "old", AT, AT, BEFORE), LATER, False, KeyStep.FINISH),
        # It was asked for again, after this key was made: the next change does not wait for a day.
        (ServerKeyChange(None, "old", BEFORE, AT, AT), SOON, False, KeyStep.FINISH),
    )
    for change, now, follow_all, expected in cases:
        assert next_step(change, now, follow_all=follow_all) is expected, (change, now, follow_all)
