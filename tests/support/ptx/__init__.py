"""Runs our kernels' PTX text without a GPU: `text` reads it, `warp` executes it 32 lanes at a time.

Only what our text uses is known, and anything else is an error: an instruction, a register of another
width, a register read before it is set, a branch that lanes disagree on, an address outside the memory
given. So what runs here is what the PTX ISA says of this text; what is left to hardware is hardware.
"""

from tests.support.ptx.text import Entry, PtxError, read
from tests.support.ptx.warp import Memory, launch

__all__ = ["Entry", "Memory", "PtxError", "launch", "read"]
