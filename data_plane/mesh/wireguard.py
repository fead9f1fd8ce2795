"""Reads WireGuard public keys as its tools print them."""

import re

from data_plane.access.port import StepFailed
from data_plane.access.step import Answer, Step

_WIREGUARD_KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")  # 32 bytes in base64, and only those.


def wireguard_key(text: str) -> str:
    """The WireGuard public key in `text`, without a final newline. Raises ValueError for anything else."""
    key = text.removesuffix("\n")
    if not _WIREGUARD_KEY.fullmatch(key):
        raise ValueError("not a WireGuard public key")
    return key


def public_key(step: Step, answer: Answer) -> str:
    """The WireGuard public key that a step printed. Raises StepFailed for anything else."""
    try:
        return wireguard_key(answer.output.decode("ascii"))
    except ValueError:  # UnicodeDecodeError is one too.
        raise StepFailed(step.name, None, "the machine did not answer with a WireGuard public key") from None
