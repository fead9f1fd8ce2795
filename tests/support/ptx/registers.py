"""How many registers each kernel may use."""

REGISTERS_MAX = {"fill": 48, "walk": 40, "tiles_int8": 255, "tiles_bf16": 255, "echo": 32, "gaps": 32}
"""Per thread, so that Kernel.resident blocks fit a multiprocessor. A multiprocessor has 65,536 registers, given out
to warps in units of 256: 5 blocks of `fill`, 6 of `walk`, 2 of the tiles."""
