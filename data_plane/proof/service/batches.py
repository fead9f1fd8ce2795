"""How a request is cut into batches, each of which one worker checks. Pure.

Walks of one machine go together, because recomputing them side by side takes a third of the time that one
after the other does (`verifier`); everything else goes alone, to as many workers as there are. No batch
costs more than one job may.
"""

from collections.abc import Sequence

from data_plane.proof.jobs import COST_MAX, Job, WalkJob


def batches(jobs: Sequence[Job]) -> list[list[int]]:
    """Places in `jobs`, each in one batch. Every job costs COST_MAX at most."""
    cut: list[list[int]] = []
    walks: list[int] = []
    cost = 0
    for at, job in enumerate(jobs):
        if not isinstance(job, WalkJob):
            cut.append([at])
            continue
        cost += job.cost
        if not walks or cost > COST_MAX:
            walks, cost = [], job.cost
            cut.append(walks)
        walks.append(at)
    return cut
