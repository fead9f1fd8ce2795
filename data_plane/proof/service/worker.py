"""One process that checks one job at a time, for `pool`: frames on standard input and output.

A job comes as a 32-bit big-endian length and a `Job`; the answer is a length, one byte that says how it
ended, and a `Checked` or a sentence. The first frame is an empty answer: ready. The end of input ends the
process. It is a process and not a thread because only a process can be stopped in the middle of a
computation, and because numpy on small arrays holds Python's lock (docs/decisions/0007).
"""

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from enum import IntEnum
from typing import BinaryIO

from data_plane import strict
from data_plane.proof.jobs import Checked, Job
from data_plane.proof.service.codec import JOB_BYTES_MAX, read_job, write_checked

LENGTH_BYTES = 4
MEMORY_BYTES_MAX = 4 << 30
"""Address space of one worker. A job within all bounds needs far less; one that would not is refused."""
_PR_SET_PDEATHSIG = 1
"""prctl(2), linux/prctl.h."""


class Ended(IntEnum):
    """How a job ended in the worker: the first byte of its answer."""

    CHECKED = 0
    TOO_LARGE = 1
    """It needs more memory than a worker has."""
    FAILED = 2
    """The check itself raised: a bug of ours."""


def serve(check: Callable[[Job], Checked]) -> None:
    """Check jobs until the input ends."""
    _settle()
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Whatever a library prints must not be taken for an answer.
    _write(answers, b"")
    while (content := _read(jobs)) is not None:
        _write(answers, _answer(check, content))


def _settle() -> None:
    """The signals of whoever stops the service are its own business: it drains, and then closes our input."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # Seeds do not belong on disk.


def _answer(check: Callable[[Job], Checked], content: bytes) -> bytes:
    try:
        checked = check(read_job(content))
    except MemoryError:
        return bytes([Ended.TOO_LARGE]) + f"it needs more than {MEMORY_BYTES_MAX >> 30} GiB".encode()
    except Exception as error:  # noqa: BLE001 - the pool counts it and tells the caller; values stay here
        return bytes([Ended.FAILED]) + strict.printable(f"the check raised {type(error).__name__}").encode()
    return bytes([Ended.CHECKED]) + write_checked(checked).SerializeToString()


def _read(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "big")
    if size > JOB_BYTES_MAX:
        return None
    content = stream.read(size)
    return content if len(content) == size else None


def _write(stream: BinaryIO, content: bytes) -> None:
    stream.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
    stream.flush()
