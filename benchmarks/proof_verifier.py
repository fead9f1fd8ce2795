"""What a check of a GPU's proof costs, and what the service adds: in process, and over gRPC with one and two replicas.

    python -m benchmarks proof_verifier

The jobs have the size that `plan` gives one H200: launch chain, walk, and both kinds of tiles twice. Their
digests are random, with group hashes and a root that fit them. So a check recomputes everything before it finds
them wrong, which costs as much as finding them right. The service runs as its own processes with one worker each,
over plaintext on loopback; all share the machine's cores.
"""

import asyncio
import contextlib
import json
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.results import Figure, median
from data_plane.proof.challenger.plan import KINDS, Sizes
from data_plane.proof.challenger.reference import TABLE
from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.arithmetic.constants import SIDE
from data_plane.proof.protocol.messages import BLOCK_BYTES, DIGEST_BYTES, GROUP_HASH_BYTES, Phase
from data_plane.proof.verifier.jobs import (
    Commitment,
    Fault,
    Job,
    LaunchJob,
    TilesJob,
    Verifier,
    WalkJob,
)
from data_plane.proof.verifier.recompute import LocalVerifier, check
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.settings import ClientSettings

GPUS = 4
"""Checked at once where rates are measured."""
GPUS_OF_A_MACHINE = 8
ROUNDS = 3
CALLS = 300
_H200 = TABLE["h200-sxm-141gb"]
_MEMORY_BYTES = 131 << 30
_SERVICE = {
    "SPLITPLANE_VERIFIER_PLAINTEXT": "yes",
    "SPLITPLANE_VERIFIER_LISTEN": "127.0.0.1:0",
    "SPLITPLANE_VERIFIER_METRICS_LISTEN": "127.0.0.1:0",
    "SPLITPLANE_VERIFIER_WORKERS": "1",
}


def _commitment(
    chance: random.Random, phase: Phase, count: int, opened: int
) -> tuple[Commitment, tuple[int, ...]]:
    """A commitment to random digests, and the numbers to recompute."""
    group = Sizes().group
    sample = tuple(sorted(chance.sample(range(count), opened)))
    groups = sorted({number // group for number in sample})
    key = chance.randbytes(16)
    hashes = bytearray(chance.randbytes(-(-count // group) * GROUP_HASH_BYTES))
    digests = b""
    for number in groups:
        shown = chance.randbytes(min(group, count - number * group) * DIGEST_BYTES)
        at = number * GROUP_HASH_BYTES
        hashes[at : at + GROUP_HASH_BYTES] = commitments.group_hashes(shown, group, key, phase)
        digests += shown
    root = commitments.root(bytes(hashes), key, phase)
    return Commitment(phase, key, count, group, root, bytes(hashes), tuple(groups), digests), sample


def gpu(chance: random.Random) -> list[Job]:
    """The jobs of one H200's proof."""
    sizes, times = Sizes(), _H200.estimate()
    chains = round(sizes.walk_seconds * times.walk.rate / (sizes.steps * BLOCK_BYTES))
    walk, sample = _commitment(chance, "walk", chains, sizes.chains_opened)
    blocks = _MEMORY_BYTES // BLOCK_BYTES
    jobs: list[Job] = [
        LaunchJob(chance.randbytes(16), sizes.rounds, chance.randbytes(16)),
        WalkJob(walk, chance.randbytes(32), _H200.iterations, blocks, sizes.steps, sample),
    ]
    for kind in KINDS * sizes.repeats:
        tiles = round(sizes.tile_seconds * times.of(kind).rate / (SIDE * SIDE * sizes.inner))
        found, sample = _commitment(chance, kind, tiles, sizes.tiles_opened)
        jobs.append(TilesJob(found, kind, sizes.inner, sizes.columns, sample))
    return jobs


@contextlib.asynccontextmanager
async def _replica() -> AsyncIterator[str]:
    """The address of a process with one worker."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "data_plane.proof.verifier.service", "serve"),
        env=_SERVICE,
        stderr=asyncio.subprocess.PIPE,
    )
    if process.stderr is None:
        raise RuntimeError("a process without a log")
    started = json.loads(await process.stderr.readline())
    reading = asyncio.create_task(process.stderr.read())
    try:
        yield f"127.0.0.1:{started['port']}"
    finally:
        process.terminate()
        await process.wait()
        await reading


@contextlib.asynccontextmanager
async def _service(replicas: int) -> AsyncIterator[RemoteVerifier]:
    async with contextlib.AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(_replica()) for _ in range(replicas)]
        verifier = connect(ClientSettings(tuple(addresses), None, None, seconds=600))
        stack.push_async_callback(verifier.close)
        for _ in range(4 * replicas):
            await verifier.check([LaunchJob(bytes(16), 1, bytes(16))])
        yield verifier


async def _seconds(act: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        await act()
        took.append(time.perf_counter() - began)
    return median(took)


async def _all_at_once(verifier: Verifier, gpus: Sequence[list[Job]]) -> None:
    """One request for each GPU, as if each were in a machine of its own."""
    await asyncio.gather(*(verifier.check(jobs) for jobs in gpus))


def _in_threads(gpus: Sequence[list[Job]]) -> None:
    """Check in two threads, each of which takes the jobs of one GPU after the other."""
    left = list(gpus)

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                check(left.pop())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cpu_seconds(gpus: Sequence[list[Job]]) -> list[Figure]:
    began = time.process_time()
    results = check(gpus[0])
    alone = time.process_time() - began
    if {one.fault for one in results} != {Fault.DIGEST}:
        raise RuntimeError("the jobs are not checked to the end")
    began = time.process_time()
    check([job for jobs in gpus for job in jobs])
    together = (time.process_time() - began) / len(gpus)
    return [
        Figure("CPU per H200, alone", alone, "s"),
        Figure(f"CPU per H200, in a machine of {len(gpus)}", together, "s"),
    ]


async def _overhead(name: str, verifier: Verifier, gpus: Sequence[list[Job]]) -> list[Figure]:
    """Calls with almost no work, so that only their overhead is left."""
    least: list[Job] = [LaunchJob(bytes(16), 1, bytes(16))]
    whole = [_rootless(job) for jobs in gpus for job in jobs]
    small = await _seconds(lambda: verifier.check(least), CALLS)
    large = await _seconds(lambda: verifier.check(whole), 3 * ROUNDS)
    size = len(codec.write_request(whole)) / 1e6
    return [
        Figure(f"a call with almost no work, {name}", small * 1e3, "ms"),
        Figure(f"{len(whole)} jobs of {size:.0f} MB, roots wrong, {name}", large * 1e3, "ms"),
    ]


def _rootless(job: Job) -> Job:
    """A job that is found wrong by its hashes alone."""
    if isinstance(job, LaunchJob):
        return replace(job, rounds=1)
    return replace(job, commitment=replace(job.commitment, root=bytes(32)))


async def measure() -> list[Figure]:
    chance = random.Random(7)
    machine = [gpu(chance) for _ in range(GPUS_OF_A_MACHINE)]
    figures = _cpu_seconds(machine)
    gpus = machine[:GPUS]
    jobs = sum(len(one) for one in gpus)

    def rates(name: str, seconds: float) -> list[Figure]:
        return [
            Figure(f"{GPUS} H200 at once, {name}", seconds, "s"),
            Figure(f"jobs, {name}", jobs / seconds, "jobs/s"),
        ]

    async def one_by_one() -> None:
        for one in gpus:
            await asyncio.to_thread(check, one)

    figures += rates("in process, one thread", await _seconds(one_by_one))
    figures += rates("in process, two threads", await _seconds(lambda: asyncio.to_thread(_in_threads, gpus)))
    figures += await _overhead("in process", LocalVerifier(), machine)
    for replicas in (1, 2):
        async with _service(replicas) as verifier:
            name = f"gRPC, {replicas} replica" + "s" * (replicas > 1)
            figures += rates(name, await _seconds(partial(_all_at_once, verifier, gpus)))
            if replicas == 1:
                figures += await _overhead("gRPC", verifier, machine)
    return figures
