"""The CPU architectures of machines, and on which of them we run."""

from enum import StrEnum


class Architecture(StrEnum):
    X86_64 = "x86_64"
    ARM64 = "arm64"
    """Hosts of GH200 and GB200."""


SOLD = frozenset({Architecture.X86_64})
"""Where the agent, the GPU proof and K3s are known to run. Offers of others are listed and not sold."""
