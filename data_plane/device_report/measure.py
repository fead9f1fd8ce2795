"""Measures one device directly, without a challenge.

Each function measures one property of a `Device` and returns plain JSON values. Times are wall-clock seconds of this
process, which drives the device itself; kernel times come from the device's own events.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from data_plane.proof.challenger.reference import Reference
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.arithmetic.constants import SIDE, UNITS_PER_BLOCK
from data_plane.proof.protocol.messages import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    INNER_MAX,
    NONCE_BYTES,
    SEED_BYTES,
    TileKind,
)
from data_plane.proof.prover.device import Device, DeviceError

KINDS: tuple[TileKind, ...] = ("int8", "bf16")
SEED = bytes(range(SEED_BYTES))
NONCE = bytes(range(NONCE_BYTES))
"""Fixed, so that a failed run can be repeated: unlike a challenge, a measurement need not be unpredictable."""
SHARES = (0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.90, 0.80)
"""Shares of the free memory, tried in this order."""
SMALL_BLOCKS = 4096
COLUMNS = 1024


def exactness(device: Device) -> dict[str, Any]:
    """Whether the kernels compute exactly what docs/gpu-proof.md defines, on small sizes that are compared completely.

    `bf16` is also tested with the largest inner dimension, which reveals a tensor core that keeps too few bits.
    """
    device.fill(SEED, 3, SMALL_BLOCKS)
    chains = np.arange(257, dtype=np.uint32)
    memory = fill.blocks(SEED, 3, np.arange(SMALL_BLOCKS, dtype=np.uint64))
    walked = walk.digests(NONCE, chains, 65, SMALL_BLOCKS, lambda numbers: memory[numbers])
    found: dict[str, Any] = {
        "launch": device.launch(NONCE) == launches.launch(NONCE),
        "walk": b"".join(device.walk(NONCE, len(chains), 65)) == walked,
    }
    device.release()
    for kind in KINDS:
        for inner in (32, 16_384, INNER_MAX):
            some = np.arange(9, dtype=np.uint32)
            honest = tiles.digests(kind, NONCE, inner, 4, some)
            found[f"{kind}, inner {inner}"] = (
                b"".join(device.tiles(kind, NONCE, inner, 4, len(some))) == honest
            )
    return found


def launch_round(device: Device, rounds: int = 2000) -> dict[str, float]:
    """Microseconds of one launch with its copy back, over `rounds` launches."""
    took = []
    result = NONCE
    for number in range(rounds):
        message = launches.message(result, number)
        began = time.perf_counter()
        result = device.launch(message)
        took.append((time.perf_counter() - began) * 1e6)
    quantiles = np.quantile(np.array(took), (0.5, 0.99))
    return {
        "median_us": float(quantiles[0]),
        "p99_us": float(quantiles[1]),
        "longest_us": max(took),
        "all_seconds": sum(took) / 1e6,
    }


def largest_fill(device: Device, blocks_max: int) -> dict[str, Any]:
    """The largest share of the free memory that one allocation can take, filled with a single iteration."""
    identity, free = device.identity(), device.memory_free()
    total = identity.cuda_memory if identity.nvml_memory is None else identity.nvml_memory
    found: dict[str, Any] = {"free_bytes": free, "total_bytes": total, "share_of_free": 0.0, "bytes": 0}
    for share in SHARES:
        blocks = min(int(share * free) // BLOCK_BYTES, blocks_max)
        try:
            device.fill(SEED, 1, blocks)
        except DeviceError as error:
            if error.code != "out_of_memory":
                raise
            continue
        return {**found, "share_of_free": share, "bytes": blocks * BLOCK_BYTES}
    return found


def fill_rate(device: Device, iterations: int, blocks: int) -> dict[str, float]:
    """A fill as in a challenge: its seconds, and units times iterations per second."""
    seconds = _timed(lambda: device.fill(SEED, iterations, blocks))
    return {
        "iterations": iterations,
        "bytes": blocks * BLOCK_BYTES,
        "seconds": seconds,
        "rate": blocks * UNITS_PER_BLOCK * iterations / seconds,
    }


def walk_over(device: Device, reference: Reference, blocks: int, chains: int, steps: int) -> dict[str, float]:
    """A walk over this much memory, filled before: shows the cost of address translation for this size."""
    device.fill(SEED, 1, blocks)
    return {"bytes": blocks * BLOCK_BYTES, **walk_rate(device, reference, chains, steps)}


def walk_rate(device: Device, reference: Reference, chains: int, steps: int) -> dict[str, float]:
    """A walk over the filled memory: bytes per second, and the share of the data sheet's bandwidth."""
    took = _timed(lambda: _drain(device.walk(NONCE, chains, steps)))
    rate = chains * steps * BLOCK_BYTES / took
    return {
        "steps": steps,
        "chains": chains,
        "seconds": took,
        "kernel_seconds": device.busy_us() / 1e6,
        "rate": rate,
        "share_of_peak": rate / reference.bandwidth,
    }


def tile_rate(
    device: Device, kind: TileKind, reference: Reference, count: int, inner: int
) -> dict[str, float]:
    """Multiply-adds per second, and the share of the data sheet's dense peak."""
    took = _timed(lambda: _drain(device.tiles(kind, NONCE, inner, COLUMNS, count)))
    rate = count * SIDE * SIDE * inner / took
    peak = reference.peak(kind)
    return {
        "tiles": count,
        "seconds": took,
        "kernel_seconds": device.busy_us() / 1e6,
        "rate": rate,
        "share_of_peak": rate / peak if peak else 0.0,
    }


def gap_histogram(device: Device, milliseconds: int, threshold_us: int) -> dict[str, Any]:
    """How often the clock of each multiprocessor jumped. On an idle card it should never jump."""
    sms = device.gaps(milliseconds, threshold_us)
    return {
        "milliseconds": milliseconds,
        "threshold_us": threshold_us,
        "sms": len({one.sm for one in sms}),
        "samples_per_sm": int(np.median([one.samples for one in sms])) if sms else 0,
        "gaps": sum(one.gaps for one in sms),
        "longest_us": max((one.longest_us for one in sms), default=0),
    }


def repeated(ask: Callable[[], dict[str, float]], times: int, key: str) -> dict[str, Any]:
    """The median of several results by `key`, and the spread of all of them."""
    answers = sorted((ask() for _ in range(times)), key=lambda answer: answer[key])
    middle = answers[len(answers) // 2]
    return {**middle, "repeats": times, "spread": (answers[-1][key] - answers[0][key]) / middle[key]}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _drain(slices: Iterable[bytes]) -> int:
    """Compute all digests, and discard them."""
    return sum(len(one) // DIGEST_BYTES for one in slices)
