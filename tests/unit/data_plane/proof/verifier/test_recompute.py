"""The verifier against commitments that are wrong in one way each, and against its own shortcuts."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import DIGEST_BYTES, GROUP_HASH_BYTES, Phase
from data_plane.proof.verifier import recompute
from data_plane.proof.verifier.jobs import (
    Checked,
    Commitment,
    Fault,
    Job,
    JobTooLarge,
    LaunchJob,
    TilesJob,
    WalkJob,
)
from data_plane.proof.verifier.recompute import LocalVerifier, check

SEED = bytes(range(32))
BLOCKS, ITERATIONS, STEPS, COUNT, GROUP = 40, 3, 5, 22, 4


def committed(phase: Phase, key: bytes, digests: bytes, opened: tuple[int, ...]) -> Commitment:
    hashes = commitments.group_hashes(digests, GROUP, key, phase)
    size = GROUP * DIGEST_BYTES
    shown = b"".join(digests[number * size : (number + 1) * size] for number in opened)
    root = commitments.root(hashes, key, phase)
    return Commitment(phase, key, len(digests) // DIGEST_BYTES, GROUP, root, hashes, opened, shown)


def walked(key: bytes, seed: bytes = SEED, blocks: int = BLOCKS) -> bytes:
    memory = fill.blocks(seed, ITERATIONS, np.arange(blocks, dtype=np.uint64))
    return walk.digests(key, np.arange(COUNT, dtype=np.uint32), STEPS, blocks, memory.__getitem__)


def a_walk(number: int = 0, sample: tuple[int, ...] = (5, 21), blocks: int = BLOCKS) -> WalkJob:
    """Of GPU `number`: its own seed, nonce and memory. Chain 21 lies in the short last group."""
    key, seed = bytes([number] * 16), bytes([number] * 32)
    opened = tuple(sorted({chain // GROUP for chain in sample}))
    return WalkJob(
        committed("walk", key, walked(key, seed, blocks), opened), seed, ITERATIONS, blocks, STEPS, sample
    )


def some_tiles(phase: Any = "int8") -> TilesJob:
    key = bytes(range(16))
    digests = tiles.digests(phase, key, 64, 5, np.arange(COUNT, dtype=np.uint32))
    return TilesJob(committed(phase, key, digests, (0, 2, 5)), phase, 64, 5, (1, 9, 20))


def a_launch() -> LaunchJob:
    return LaunchJob(bytes(16), 20, launches.chain(bytes(16), 20))


def checked(job: Job) -> Checked:
    (one,) = check([job])
    return one


def bent(job: Any, **changes: Any) -> Any:
    return replace(job, commitment=replace(job.commitment, **changes))


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("job", [a_launch(), a_walk(), some_tiles("int8"), some_tiles("bf16")])
def test_an_honest_answer_is_right(job: Job) -> None:
    one = checked(job)
    assert (one.fault, one.why) == (None, "")
    assert one.recomputed > 0
    assert one.cpu_seconds > 0


def test_a_launch_chain_that_ends_elsewhere_is_wrong() -> None:
    assert checked(replace(a_launch(), final=bytes(16))).fault is Fault.DIGEST
    assert checked(replace(a_launch(), rounds=19)).fault is Fault.DIGEST


@pytest.mark.parametrize("job", [a_walk(), some_tiles()])
def test_a_root_that_the_group_hashes_do_not_make_is_wrong(job: Any) -> None:
    one = job.commitment
    assert checked(bent(job, root=flipped(one.root, 0))).fault is Fault.ROOT
    unopened = next(number for number in range(6) if number not in one.opened)
    assert checked(bent(job, hashes=flipped(one.hashes, unopened * GROUP_HASH_BYTES))).fault is Fault.ROOT


@pytest.mark.parametrize("job", [a_walk(), some_tiles()])
def test_digests_that_were_not_committed_to_are_wrong(job: Any) -> None:
    for at in range(len(job.commitment.digests)):
        assert checked(bent(job, digests=flipped(job.commitment.digests, at))).fault is Fault.GROUP


def test_right_digests_under_a_commitment_to_wrong_ones_are_wrong() -> None:
    """Else a cheat would commit to nothing, and compute the sample when it knows it."""
    job = a_walk()
    wrong = committed("walk", job.commitment.key, bytes(COUNT * DIGEST_BYTES), job.commitment.opened)
    assert checked(bent(job, root=wrong.root, hashes=wrong.hashes)).fault is Fault.GROUP


def test_digests_that_were_committed_to_and_never_computed_are_wrong() -> None:
    job = a_walk()
    digests = flipped(walked(job.commitment.key, job.seed), 21 * DIGEST_BYTES)
    one = checked(replace(job, commitment=committed("walk", job.commitment.key, digests, (1, 5))))
    assert one.fault is Fault.DIGEST
    assert one.why == "1 of 2 recomputed are wrong, the first is number 21."


@pytest.mark.parametrize(
    "changes",
    [{"seed": bytes([1] * 32)}, {"iterations": ITERATIONS + 1}, {"blocks": BLOCKS - 7}, {"steps": STEPS + 1}],
)
def test_a_walk_over_another_memory_or_of_another_length_is_wrong(changes: dict[str, Any]) -> None:
    assert checked(replace(a_walk(), **changes)).fault is Fault.DIGEST


def test_a_commitment_of_one_phase_or_nonce_serves_no_other() -> None:
    job = a_walk()
    assert checked(bent(job, phase="int8")).fault is Fault.ROOT
    assert checked(bent(job, key=bytes([9] * 16))).fault is Fault.ROOT


@pytest.mark.parametrize(
    "changes",
    [
        {"hashes": b""},
        {"hashes": bytes(16 * 5)},
        {"hashes": bytes(16 * 7)},
        {"digests": b""},
        {"digests": bytes(8 * 5)},
        {"digests": bytes(8 * 7)},
        {"opened": ()},
        {"opened": (5, 1)},
        {"opened": (1, 1, 5)},
        {"opened": (1, 1, 5), "digests": bytes(8 * 10)},
        {"opened": (1, 6)},
        {"opened": (-1, 5)},
        {"opened": (1, 4)},
        {"count": 0},
        {"count": 20},
        {"count": 1 << 28},
        {"group": 0},
        {"group": 5},
        {"group": 1 << 20},
        {"root": b""},
    ],
)
def test_parts_that_do_not_fit_together_are_wrong_and_crash_nothing(changes: dict[str, Any]) -> None:
    assert checked(bent(a_walk(), **changes)).fault is Fault.SIZES


def test_a_sample_outside_of_what_was_opened_is_refused() -> None:
    for sample in ((), (0,), (22,), (-1,)):
        assert checked(replace(a_walk(), sample=sample)).fault is Fault.SIZES


def test_walks_side_by_side_are_what_each_is_alone() -> None:
    """Different seeds, nonces, memories and samples in one batch: nothing may get into another's lane."""
    jobs = [a_walk(1, (5, 21)), a_walk(2, (0, 1, 2), 17), a_walk(3, (13,)), a_walk(4, (21, 5), 1)]
    assert [one.fault for one in check(jobs)] == [None] * 4
    jobs[2] = replace(jobs[2], seed=bytes([4] * 32))
    assert [one.fault for one in check(jobs)] == [None, None, Fault.DIGEST, None]


def test_walks_of_different_lengths_and_fills_do_not_share_a_batch() -> None:
    longer = replace(a_walk(2), steps=STEPS + 2)
    slower = replace(a_walk(3), iterations=ITERATIONS + 1)
    assert [one.fault for one in check([a_walk(1), longer, slower, a_walk(4)])] == [
        None,
        Fault.DIGEST,
        Fault.DIGEST,
        None,
    ]


def test_answers_stand_in_the_order_of_the_jobs() -> None:
    wrong = bent(some_tiles(), root=bytes(32))
    jobs: list[Job] = [a_walk(1), wrong, a_launch(), replace(a_launch(), final=bytes(16)), a_walk(2)]
    assert [one.fault for one in check(jobs)] == [None, Fault.ROOT, None, Fault.DIGEST, None]
    assert check([]) == []


def test_nothing_is_computed_for_a_commitment_that_is_no_commitment(monkeypatch: pytest.MonkeyPatch) -> None:
    of_nothing, too_short = bent(a_walk(), root=bytes(32)), bent(some_tiles(), digests=b"")
    monkeypatch.setattr(recompute, "_walked", None)
    monkeypatch.setattr(tiles, "digests", None)
    one = checked(of_nothing)
    assert (one.fault, one.recomputed) == (Fault.ROOT, 0)
    assert checked(too_short).fault is Fault.SIZES


@pytest.mark.parametrize(
    "large",
    [
        replace(a_walk(), steps=10**7),
        replace(some_tiles(), inner=10**8),
        replace(a_launch(), rounds=10**7),
    ],
)
def test_a_job_that_asks_for_too_much_is_refused_before_any_is_begun(
    large: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = a_launch()
    monkeypatch.setattr(launches, "chain", None)
    with pytest.raises(JobTooLarge, match="at most"):
        check([sound, large])


def test_the_blas_has_one_thread_in_every_thread_that_checks() -> None:
    async def threads() -> set[int]:
        await LocalVerifier().check([some_tiles()])
        pools = await asyncio.to_thread(threadpoolctl.threadpool_info)
        return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}

    assert asyncio.run(threads()) == {1}
