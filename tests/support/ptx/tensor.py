"""`mma.sync.aligned` over the lanes of one warp, for the two shapes that our kernels use.

PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and "... for mma.m16n8k32", with
g = lane / 4 (groupID) and t = lane mod 4 (threadID_in_group), e entries to a 32-bit register, low bits first:

    A, 16 x 8e  register r, entry i:  row g + 8 (r mod 2), column  t * e + i + 4e (r / 2)
    B, 8e x 8   register r, entry i:  row t * e + i + 4e r, column g
    C, 16 x 8   register r:           row g + 8 (r / 2),    column 2t + r mod 2
"""

import numpy as np
from numpy.typing import NDArray

from tests.support.ptx.text import PtxError

_LANE = np.arange(32)
_G, _T = _LANE // 4, _LANE % 4


def _rows_and_columns_of_c() -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    return [(_G + 8 * (r // 2), 2 * _T + r % 2) for r in range(4)]


def _entries(word: NDArray[np.uint32], kind: str) -> NDArray[np.float64]:
    """(32, e) numbers in the 32 lanes of one register."""
    if kind == "s8":
        return word.astype("<u4").view(np.int8).reshape(32, 4).astype(np.float64)
    halves = word.astype("<u4").view("<u2").reshape(32, 2).astype(np.uint32)
    return (halves << np.uint32(16)).view(np.float32).astype(np.float64)


def multiply(
    kind: str, a: list[NDArray[np.uint32]], b: list[NDArray[np.uint32]], c: list[NDArray[np.generic]]
) -> list[NDArray[np.generic]]:
    """A * B + C in the registers of D. `kind` is `s8` (wraps at 32 bits) or `bf16` (must be exact)."""
    e = {"s8": 4, "bf16": 2}[kind]
    left, right = np.zeros((16, 8 * e)), np.zeros((8 * e, 8))
    total = np.zeros((16, 8))
    for r in range(4):
        for i in range(e):
            left[_G + 8 * (r % 2), _T * e + i + 4 * e * (r // 2)] = _entries(a[r], kind)[:, i]
    for r in range(2):
        for i in range(e):
            right[_T * e + i + 4 * e * r, _G] = _entries(b[r], kind)[:, i]
    for r, (rows, columns) in enumerate(_rows_and_columns_of_c()):
        total[rows, columns] = c[r].view(np.int32) if kind == "s8" else c[r]
    total += left @ right  # Exact: everything is a multiple of 1/16 far below 2^48.
    results: list[NDArray[np.generic]] = []
    for rows, columns in _rows_and_columns_of_c():
        exact = total[rows, columns]
        if kind == "s8":
            results.append(exact.astype(np.int64).astype(np.uint32))
            continue
        rounded = exact.astype(np.float32)
        if not np.array_equal(rounded.astype(np.float64), exact):
            raise PtxError("a bf16 sum that float32 cannot hold: the result depends on the order")
        results.append(rounded)
    return results
