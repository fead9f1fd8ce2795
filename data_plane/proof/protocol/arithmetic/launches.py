"""The launch chain: rounds that cannot overlap, each with a little work on the CPU and then on the GPU.

The chain does not prove that there is a GPU: a CPU does both parts of 2,000 rounds in 0.02 s. It detects CUDA calls
that are forwarded over a network without the prover's knowledge. A prover that knows can compute the chain itself.

`message` is the CPU's part. A prover uses it together with its GPU, which does `launch`; a verifier does both parts
here. Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import hashlib
from struct import Struct

from data_plane.proof.protocol.arithmetic.constants import BEGINNING_ROUNDS
from data_plane.proof.protocol.messages import NONCE_BYTES

_WORDS = Struct("<4I")
_ROUND = Struct("<I")


def message(previous: bytes, number: int) -> bytes:
    """The 16 bytes that the GPU gets in round `number`, counted from 0."""
    return hashlib.sha256(previous + _ROUND.pack(number)).digest()[:NONCE_BYTES]


def launch(message: bytes) -> bytes:
    """What the `echo` kernel returns: the four words of the message, mixed."""
    a, b, c, d = _WORDS.unpack(message)
    for _ in range(BEGINNING_ROUNDS):
        a = (a + b) & 0xFFFFFFFF
        d ^= a
        d = (d << 16 | d >> 16) & 0xFFFFFFFF
        c = (c + d) & 0xFFFFFFFF
        b ^= c
        b = (b << 12 | b >> 20) & 0xFFFFFFFF
        a = (a + b) & 0xFFFFFFFF
        d ^= a
        d = (d << 8 | d >> 24) & 0xFFFFFFFF
        c = (c + d) & 0xFFFFFFFF
        b ^= c
        b = (b << 7 | b >> 25) & 0xFFFFFFFF
    return _WORDS.pack(a, b, c, d)


def chain(start: bytes, rounds: int) -> bytes:
    """The result of the last of `rounds` rounds."""
    result = start
    for number in range(rounds):
        result = launch(message(result, number))
    return result
