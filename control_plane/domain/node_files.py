"""How the files of K3s, hundreds of megabytes, get to many machines.

A cap keeps those that come first fast: without one, a pool of 32 machines shares the line of the reconciler, no machine
is done in time, and all of them are given up and bought again. The cap is that of a provider account, so that slow
machines of one provider hold up nobody else (law 14). A machine to which files arrive is not late.
"""

from datetime import datetime, timedelta

SENDS_IN_FLIGHT_MAX = 4
"""To so many machines of a provider account files are sent at the same time, by all replicas together."""
BYTES_PER_SECOND_MIN = 128 * 1024
"""A line that is slower than this counts against the machine: 265 MB would take more than half an hour."""
SENDING_MAX = timedelta(hours=1)
"""How long files may be on their way to a machine that becomes a node. It alone says how many have arrived (law 11)."""


def is_late(created_at: datetime, now: datetime, *, arrived: int, seconds: float) -> bool:
    """Whether the deadline of a machine goes on to run while files are sent to it.

    `arrived`: how many bytes reached it in the last turn, which took so many seconds.
    """
    return now - created_at >= SENDING_MAX or arrived < BYTES_PER_SECOND_MIN * seconds
