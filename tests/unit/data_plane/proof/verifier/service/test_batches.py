"""How a request is cut: walks in fours, the rest alone, nothing above what one job may cost."""

from dataclasses import replace

from data_plane.proof.verifier.jobs import COST_MAX, Commitment, Job, LaunchJob, TilesJob, WalkJob
from data_plane.proof.verifier.service.batches import batches

COMMITMENT = Commitment("walk", bytes(16), 1, 1, bytes(32), bytes(16), (0,), bytes(8))
LAUNCH = LaunchJob(bytes(16), 2000, bytes(16))
WALK = WalkJob(COMMITMENT, bytes(32), 10, 1, 512, tuple(range(48)))
TILES = TilesJob(replace(COMMITMENT, phase="int8"), "int8", 16_384, 1024, tuple(range(32)))
HALF = replace(WALK, steps=4882, sample=tuple(range(192)), iterations=10)


def test_walks_go_together_and_everything_else_alone() -> None:
    assert batches([LAUNCH, WALK, TILES, WALK, TILES, LAUNCH, WALK]) == [[0], [1, 3, 6], [2], [4], [5]]


def test_the_walks_of_a_machine_of_eight_keep_two_cores_busy() -> None:
    assert batches([WALK] * 8) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches([WALK] * 6) == [[0, 1, 2, 3], [4, 5]]


def test_no_batch_of_walks_costs_more_than_one_job_may() -> None:
    assert COST_MAX // 2 >= HALF.cost > COST_MAX // 3
    assert batches([HALF] * 5) == [[0, 1], [2, 3], [4]]
    most = replace(HALF, sample=tuple(range(2 * 192)))
    assert most.cost <= COST_MAX
    assert batches([most, most, HALF]) == [[0], [1], [2]]


def test_every_job_is_in_one_batch() -> None:
    jobs: list[Job] = [LAUNCH, HALF, WALK, HALF, TILES, WALK, HALF] * 5
    assert sorted(at for batch in batches(jobs) for at in batch) == list(range(len(jobs)))
    assert batches([]) == []
