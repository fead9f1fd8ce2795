"""What is looked for at the tunnels of a node, and what follows from it.

Whether a node can be reached from outside is found out: the server of its cluster sends packets to the port of its
tunnels, from another port than that of the server's own tunnel. A NAT lets them through only if it lets everybody
through. A node that hears none counts as behind NAT, which always works and costs a way through a relay.

A path that loses large packets without a word lets connections open and stall, so no node is opened on it. On an open
node it is reported.
"""

from dataclasses import dataclass
from datetime import timedelta

MTU = 1_420
"""Bytes that a tunnel has to carry: pods send 1,370, and flannel adds 50."""
EVERY = timedelta(hours=1)
AGAIN = timedelta(minutes=5)
"""After a look that found a problem."""
MISSES_MAX = 2
"""So many looks in a row have to hear nothing before a node that was reachable counts as behind NAT."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found."""

    heard: bool
    """Whether packets from outside reach it."""
    largest_packet: int | None
    """In bytes, to the server of its cluster and back; None when none passes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    endpoint: str | None
    """Where it can be reached from outside, from now on; None behind NAT."""
    misses: int
    """How many looks in a row have heard nothing."""
    problem: str | None

    @property
    def due_after(self) -> timedelta:
        return AGAIN if self.problem is not None or 0 < self.misses < MISSES_MAX else EVERY


def judge(look: Look, *, endpoint: str | None, candidate: str, misses: int) -> Verdict:
    """`endpoint` is where it could be reached so far, `candidate` where it was looked for."""
    problem = packet_problem(look.largest_packet)
    if look.heard:
        return Verdict(candidate, 0, problem)
    misses = min(misses + 1, MISSES_MAX)
    return Verdict(endpoint if misses < MISSES_MAX else None, misses, problem)


def packet_problem(largest_packet: int | None) -> str | None:
    """What is wrong with a path, as a sentence; None when it carries all that pods send."""
    if largest_packet is None:
        return "the cluster's server does not answer through the tunnel"
    if largest_packet < MTU:
        lost = f"packets of more than {largest_packet} bytes are lost on the way to the cluster's server"
        return f"{lost}; pods need {MTU}"
    return None
