"""Jobs of an honest prover: small, and right in every byte."""

import numpy as np

from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import DIGEST_BYTES, Phase, TileKind
from data_plane.proof.verifier.jobs import Commitment, LaunchJob, TilesJob, WalkJob

KEY = bytes(range(16))
SEED = bytes(range(32))
COUNT = 20
GROUP = 8
OPENED = (0, 2)
"""The last group of the three, which is short, among them."""
SAMPLE = (3, 17, 19)


def launch(rounds: int = 50) -> LaunchJob:
    return LaunchJob(KEY, rounds, launches.chain(KEY, rounds))


def walking(*, steps: int = 4, iterations: int = 2, blocks: int = 1 << 20) -> WalkJob:
    numbers = np.arange(COUNT, dtype=np.uint32)
    digests = walk.digests(KEY, numbers, steps, blocks, lambda met: fill.blocks(SEED, iterations, met))
    return WalkJob(committed("walk", digests), SEED, iterations, blocks, steps, SAMPLE)


def tiling(kind: TileKind = "int8", *, inner: int = 64, columns: int = 4) -> TilesJob:
    digests = tiles.digests(kind, KEY, inner, columns, np.arange(COUNT, dtype=np.uint32))
    return TilesJob(committed(kind, digests), kind, inner, columns, SAMPLE)


def committed(phase: Phase, digests: bytes) -> Commitment:
    hashes = commitments.group_hashes(digests, GROUP, KEY, phase)
    size = GROUP * DIGEST_BYTES
    return Commitment(
        phase=phase,
        key=KEY,
        count=COUNT,
        group=GROUP,
        root=commitments.root(hashes, KEY, phase),
        hashes=hashes,
        opened=OPENED,
        digests=b"".join(digests[number * size : (number + 1) * size] for number in OPENED),
    )
