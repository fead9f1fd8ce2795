"""The command `prove`: finds the machine's GPUs and holds the conversation over pipes."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from data_plane.proof.prover import cuda, prover
from data_plane.proof.prover.claims import Claims
from data_plane.proof.prover.cuda_machine import CudaMachine
from data_plane.proof.prover.device import DeviceError, Machine


def conversation(emulation: Path) -> None:
    """Hold one conversation over standard input and output."""
    with ExitStack() as stack, _pipes() as (orders, answers):
        prover.serve(partial(machine, emulation, stack), orders.read, partial(_write, answers))


def machine(emulation: Path, stack: ExitStack) -> Machine:
    """The GPUs of the driver; if there is no driver at all, those of the emulation file.

    Raises DeviceError. `stack` closes what stays open.
    """
    library = cuda.library()
    if library is not None:
        claims = Claims()
        stack.callback(claims.close)
        return CudaMachine(library, claims)
    if not emulation.exists():
        raise DeviceError("no_driver", f"{cuda.SONAME} is not on this machine: install NVIDIA's driver")
    try:
        # Imported only here, because it needs numpy, which most machines with GPUs do not have.
        from data_plane.proof.prover.emulation.machine import machine_from  # noqa: PLC0415 - for this reason
    except ImportError as error:
        raise DeviceError("emulation_missing", f"{error}: emulated GPUs need python3-numpy") from None
    return machine_from(emulation)


@contextmanager
def _pipes() -> "Iterator[tuple[BinaryIO, BinaryIO]]":
    """The pipes for orders and answers. Other output, such as a driver's, goes to standard error from now on."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        yield sys.stdin.buffer, answers


def _write(answers: BinaryIO, frame: bytes) -> None:
    answers.write(frame)
    answers.flush()
