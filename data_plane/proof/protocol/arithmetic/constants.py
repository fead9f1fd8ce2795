"""The numbers of the proof's arithmetic (docs/gpu-proof.md), for numpy and for the GPU's kernels alike.

Standard library only, Python 3.10 and up: the kernels are put together on rented machines.
"""

from data_plane.proof.protocol.messages import TileKind

SIGMA = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""`expand 32-byte k`: the first four words of every ChaCha20 state (RFC 8439 2.3)."""
FILL = 0x4C4C4946
"""`FILL`, the last word of a unit's state: no other use of ChaCha with this seed gives the same words."""
UNITS_PER_BLOCK = 8
WORDS_PER_UNIT = 16

LANES = 32
"""Of a warp: a chain of the walk is this wide, a tile is computed by this many."""
WALK = 0x4B4C4157
"""`WALK`."""
GOLDEN = 0x9E3779B9
"""2^32 over the golden ratio: sets the lanes of a chain apart."""

SIDE = 64
"""Rows and columns of a tile."""
TAGS: "dict[TileKind, tuple[int, int]]" = {"int8": (0x41, 0x42), "bf16": (0x61, 0x62)}
"""Of the rows of A and of B."""
ENTRIES_PER_WORD: "dict[TileKind, int]" = {"int8": 4, "bf16": 2}
ENTRY_FACTOR = 0x2C1B3C6D
"""Odd, so that multiplying loses nothing: between two xor-shifts it spreads a row's counter over its word."""
BF16_KEPT = 0x80608060
"""Of a word: the signs and the two highest mantissa bits of two bf16."""
BF16_ONE = 0x3F803F80
"""The exponent of 1, twice."""

BEGINNING_ROUNDS = 8
"""Quarter rounds between a seed or nonce and the first use of a state."""
ENDING_ROUNDS = 4
"""Quarter rounds between the last use of a state and its digest."""
