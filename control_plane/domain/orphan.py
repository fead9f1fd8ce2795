"""An orphan is a machine that a provider lists under a launch key of ours and that no open record matches.

Terminating one is the most dangerous thing that the reconciler does: after a restore from an old backup every
machine looks like an orphan. So an orphan is only watched at first, few are terminated at a time, none on a
frozen account, and none when too much of a list looks orphaned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.ids import LaunchKey, ProviderRef

LISTS_MIN = 2
"""How many lists have to show an orphan before it may be terminated."""
GRACE = timedelta(minutes=2)
"""How long an orphan is only watched: a record may be about to claim it."""
TERMINATED_PER_RUN_MAX = 5
LEAK_MAX = 3
"""Up to this many orphans count as leaked machines, whatever their share of a list."""
SHARE_MAX_PERCENT = 20
"""When orphans exceed both LEAK_MAX and this share of a list, we assume that our records were lost."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphan, with how long it has been watched."""

    provider_ref: ProviderRef
    launch_key: LaunchKey
    first_seen_at: datetime
    lists_seen: int


@dataclass(frozen=True, slots=True)
class Verdict:
    terminate: tuple[Orphan, ...]
    refused_why: str | None = None
    """Why none is terminated although some are old enough."""


def to_terminate(
    orphans: Sequence[Orphan], *, listing_size: int, frozen_why: str | None, now: datetime
) -> Verdict:
    """The orphans of an account to terminate now, oldest first.

    `listing_size` counts all machines on the account's last list; `frozen_why` is None unless the account is frozen.
    """
    ripe = [
        orphan for orphan in orphans if orphan.lists_seen >= LISTS_MIN and now - orphan.first_seen_at >= GRACE
    ]
    if not ripe:
        return Verdict(())
    if frozen_why is not None:
        return Verdict((), f"The account is frozen: {frozen_why}")
    if len(ripe) > LEAK_MAX and len(ripe) * 100 > listing_size * SHARE_MAX_PERCENT:
        why = f"{len(ripe)} of {listing_size} machines look like orphans; it is more likely that our records were lost."
        return Verdict((), why)
    ripe.sort(key=lambda orphan: (orphan.first_seen_at, orphan.provider_ref))
    return Verdict(tuple(ripe[:TERMINATED_PER_RUN_MAX]))
