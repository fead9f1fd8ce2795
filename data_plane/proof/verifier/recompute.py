"""The verifier: recomputes from seeds and nonces alone what an honest card would have answered, with numpy on a CPU.

A commitment is checked in steps: do the sizes of its parts fit; do the group hashes hash to the root that stopped the
clock; are the opened digests those of the groups; and are the sampled digests what we compute ourselves. After the
first fault nothing more is computed. A walk is recomputed without its memory: each block that a chain reads is computed
from the seed.

The walks of one machine are recomputed together. Each step of a chain depends on the last one, so the 48 chains of one
GPU are short vectors, for which numpy spends more time on calls than on arithmetic. Together, the walks of eight GPUs
take a third of the time.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, groupby

import numpy as np
import threadpoolctl

from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.arithmetic.constants import LANES
from data_plane.proof.protocol.arithmetic.mixing import State, absorb
from data_plane.proof.protocol.messages import DIGEST_BYTES, GROUP_HASH_BYTES, GROUP_MAX, ROOT_BYTES
from data_plane.proof.verifier.jobs import (
    COST_MAX,
    Checked,
    Commitment,
    Fault,
    Job,
    JobTooLarge,
    LaunchJob,
    TilesJob,
    WalkJob,
)


class LocalVerifier:
    """`jobs.Verifier` in a thread of this process, for tests, the demo and small deployments."""

    async def check(self, jobs: Sequence[Job]) -> list[Checked]:
        return await asyncio.to_thread(check, jobs)


def check(jobs: Sequence[Job]) -> list[Checked]:
    """Check each job, in order. Raises JobTooLarge before anything is computed."""
    for job in jobs:
        if job.cost > COST_MAX:
            raise JobTooLarge(f"{job.cost / 1e6:.0f} s of CPU time, {COST_MAX / 1e6:.0f} at most")
    one_blas_thread()
    checked: dict[int, Checked] = {}
    walks: list[tuple[int, WalkJob]] = []
    for at, job in enumerate(jobs):
        began = time.thread_time()
        fault = _fault(job)
        if fault is not None:
            checked[at] = Checked(*fault, recomputed=0, cpu_seconds=time.thread_time() - began)
        elif isinstance(job, WalkJob):
            walks.append((at, job))
        else:
            checked[at] = _launch(job) if isinstance(job, LaunchJob) else _tiles(job)
    checked |= _walks(walks)
    return [checked[at] for at in range(len(jobs))]


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread, from now on and in the whole process.

    The matrices here are small, so that two threads on a busy machine take 40 times as long. The limit is not set
    around each check, because another thread that leaves its check would lift it during ours.
    """
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")


# ---- commitments --------------------------------------------------------------------------------------------


def _fault(job: Job) -> tuple[Fault, str] | None:
    """The fault of a commitment, apart from the sampled digests."""
    if isinstance(job, LaunchJob):
        return None
    one = job.commitment
    misfit = _misfit(one, job.sample)
    if misfit is not None:
        return Fault.SIZES, misfit
    if commitments.root(one.hashes, one.key, one.phase) != one.root:
        return Fault.ROOT, "The group hashes do not hash to the root."
    # Groups are in ascending order, and only the last of all groups may be smaller, as on the prover's side.
    shown = commitments.group_hashes(one.digests, one.group, one.key, one.phase)
    for number, found in zip(one.opened, _cut(shown, GROUP_HASH_BYTES), strict=True):
        if found != one.hashes[number * GROUP_HASH_BYTES : (number + 1) * GROUP_HASH_BYTES]:
            return Fault.GROUP, f"Group {number} is not what was committed to."
    return None


def _misfit(one: Commitment, sample: Sequence[int]) -> str | None:
    if not 0 < one.group <= GROUP_MAX or one.count < 1 or len(one.root) != ROOT_BYTES:
        return "There is no commitment of this shape."
    groups = -(-one.count // one.group)
    if len(one.hashes) != groups * GROUP_HASH_BYTES:
        return f"{len(one.hashes)} bytes of hashes for {groups} groups."
    if list(one.opened) != sorted(set(one.opened)) or not all(0 <= number < groups for number in one.opened):
        return "The groups opened are not ascending numbers of groups."
    due = sum(min(one.group, one.count - number * one.group) for number in one.opened)
    if len(one.digests) != due * DIGEST_BYTES:
        return f"{len(one.digests)} bytes of digests for {due} of them."
    opened = set(one.opened)
    if not sample or not all(0 <= number < one.count and number // one.group in opened for number in sample):
        return "The sample is empty, or not within the groups opened."
    return None


def _cut(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def _compared(job: WalkJob | TilesJob, honest: bytes, cpu_seconds: float) -> Checked:
    one = job.commitment
    place = {number: at * one.group for at, number in enumerate(one.opened)}
    wrong = []
    for number, expected in zip(job.sample, _cut(honest, DIGEST_BYTES), strict=True):
        at = (place[number // one.group] + number % one.group) * DIGEST_BYTES
        if one.digests[at : at + DIGEST_BYTES] != expected:
            wrong.append(number)
    if wrong:
        why = f"{len(wrong)} of {len(job.sample)} recomputed are wrong, the first is number {wrong[0]}."
        return Checked(Fault.DIGEST, why, len(job.sample), cpu_seconds)
    return Checked(None, "", len(job.sample), cpu_seconds)


# ---- recomputing --------------------------------------------------------------------------------------------


def _launch(job: LaunchJob) -> Checked:
    began = time.thread_time()
    right = launches.chain(job.start, job.rounds) == job.final
    why = "" if right else f"The end of {job.rounds} rounds is wrong."
    return Checked(None if right else Fault.DIGEST, why, job.rounds, time.thread_time() - began)


def _tiles(job: TilesJob) -> Checked:
    began = time.thread_time()
    sample = np.array(job.sample, np.uint32)
    honest = tiles.digests(job.kind, job.commitment.key, job.inner, job.columns, sample)
    return _compared(job, honest, time.thread_time() - began)


def _walks(walks: Iterable[tuple[int, WalkJob]]) -> dict[int, Checked]:
    """Recompute walks, together if they have the same steps and iterations, as those of one machine have."""

    def alike(one: tuple[int, WalkJob]) -> tuple[int, int]:
        return one[1].steps, one[1].iterations

    checked: dict[int, Checked] = {}
    for _, found in groupby(sorted(walks, key=alike), alike):
        some = list(found)
        began = time.thread_time()
        honest = _walked([job for _, job in some])
        each = (time.thread_time() - began) / sum(len(job.sample) for _, job in some)
        for (at, job), digests in zip(some, honest, strict=True):
            checked[at] = _compared(job, digests, each * len(job.sample))
    return checked


def _walked(jobs: Sequence[WalkJob]) -> list[bytes]:
    """The digests of the sampled chains of each job. All jobs have the steps and iterations of the first one."""
    ends = list(accumulate(len(job.sample) for job in jobs))
    parts = [slice(end - len(job.sample), end) for end, job in zip(ends, jobs, strict=True)]
    starts = [walk.beginning(job.commitment.key, np.array(job.sample, np.uint32)) for job in jobs]
    x: State = tuple(np.concatenate(words) for words in zip(*starts, strict=True))  # type: ignore[assignment]
    seeds = [job.seed for job in jobs]
    for _ in range(jobs[0].steps):
        met = [
            walk.addresses((x[0][part], x[1][part], x[2][part], x[3][part]), job.blocks)
            for job, part in zip(jobs, parts, strict=True)
        ]
        words = fill.blocks_of_many(seeds, jobs[0].iterations, met).reshape(ends[-1], LANES, 4)
        x = absorb(x, (words[:, :, 0], words[:, :, 1], words[:, :, 2], words[:, :, 3]))
    digests = walk.ending(x)
    return [digests[part.start * DIGEST_BYTES : part.stop * DIGEST_BYTES] for part in parts]
