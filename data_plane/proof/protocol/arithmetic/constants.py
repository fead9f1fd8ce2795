"""The constants of the proof's arithmetic (docs/gpu-proof.md), for numpy and for the GPU's kernels.

Standard library only, Python 3.10 and up: the kernels are generated on rented machines.
"""

from data_plane.proof.protocol.messages import TileKind

SIGMA = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""`expand 32-byte k`: the first four words of every ChaCha20 state (RFC 8439 2.3)."""
FILL = 0x4C4C4946
"""`FILL`: the last word of a unit's state, so that no other use of ChaCha with this seed has the same state."""
UNITS_PER_BLOCK = 8
WORDS_PER_UNIT = 16

LANES = 32
"""The lanes of a warp, which walk one chain and compute one tile together."""
WALK = 0x4B4C4157
"""`WALK`."""
GOLDEN = 0x9E3779B9
"""2^32 divided by the golden ratio. It makes the lanes of a chain different."""

SIDE = 64
"""Rows and columns of a tile."""
TAGS: "dict[TileKind, tuple[int, int]]" = {"int8": (0x41, 0x42), "bf16": (0x61, 0x62)}
"""The tags of the rows of A and of B, which make their words different."""
ENTRIES_PER_WORD: "dict[TileKind, int]" = {"int8": 4, "bf16": 2}
ENTRY_FACTOR = 0x2C1B3C6D
"""A factor between two xor-shifts, which spreads a row's counter over the word. It is odd and therefore invertible."""
BF16_KEPT = 0x80608060
"""The bits of a word that are kept: the signs and the two highest mantissa bits of two bf16."""
BF16_ONE = 0x3F803F80
"""The exponent of 1, twice."""

BEGINNING_ROUNDS = 8
"""Quarter rounds after a seed or nonce is taken in, before the state is used."""
ENDING_ROUNDS = 4
"""Quarter rounds after the last use of a state, before its digest is taken."""
