"""Until when a joining node is waited for. Only what the node itself does not do in time counts against it.

Where a node waits for something of ours, such as its tunnels, or for other nodes, its deadline moves on. A deadline
passes whether or not anybody works (`deadline.py`), so a look that comes late ends nothing either: it sets another
deadline, except for a node that has been on its way for hours.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.deadline import LOOKED_AT_WITHIN, UNATTENDED_MAX
from control_plane.domain.node import OPEN_MAX, Node

UNHEALTHY_MAX = timedelta(minutes=10)
"""How long a node may at least be unhealthy that was healthy, and that waits to be opened."""


class Deadline(StrEnum):
    AHEAD = "ahead"
    MISSED_BY_US = "missed_by_us"
    """It has passed, and nobody had looked at the node for a while."""
    PASSED = "passed"


def deadline(node: Node, now: datetime) -> Deadline:
    """Whether a joining node that is not where it should be is given up."""
    at = node.deadline_at
    if node.unready_since is not None:  # Its deadline is older, or it moved on since then, as we were away.
        at = max(at, node.unready_since + UNHEALTHY_MAX)
    if now < at:
        return Deadline.AHEAD
    is_late = now - max(node.due_at, at) > LOOKED_AT_WITHIN
    if is_late and now < node.created_at + UNATTENDED_MAX:
        return Deadline.MISSED_BY_US
    return Deadline.PASSED


def opening_has_failed(node: Node, now: datetime) -> bool:
    """Whether a node whose lease has begun is given up that cannot be opened, after the API server has answered.

    Not at a look that comes late, since nobody tried before it. `due_at` is when the node is to be watched next.
    """
    if node.ready_at is None or now < node.ready_at + OPEN_MAX:
        return False
    return now - max(node.due_at, node.ready_at + OPEN_MAX) <= LOOKED_AT_WITHIN
