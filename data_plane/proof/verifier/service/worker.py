"""A worker process of `pool`, which checks one batch of jobs at a time, over standard input and output.

A batch is a length (32-bit, big-endian) and a `CheckRequest`. The answer is a length, a byte that tells how the batch
ended, and a `CheckResponse` or a sentence. The first answer is empty and means that the worker is ready. The end of
the input ends the process. It is a process and not a thread, because only a process can be stopped during a
computation, and because numpy holds Python's lock while it handles small arrays (docs/decisions/0007).
"""

import ctypes
import os
import resource
import signal
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import BinaryIO

from data_plane.documents import strict
from data_plane.proof.verifier.jobs import Checked, Job
from data_plane.proof.verifier.recompute import check as check_jobs
from data_plane.proof.verifier.service.codec import REQUEST_BYTES_MAX, read_request, write_response

LENGTH_BYTES = 4
MEMORY_BYTES_MAX = 4 << 30
"""The address space of one worker. A batch within all limits needs far less; any other batch is refused."""
_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h; see prctl(2)."""


Check = Callable[[Sequence[Job]], list[Checked]]


class Ended(IntEnum):
    """How a batch ended: the first byte of the answer."""

    CHECKED = 0
    TOO_LARGE = 1
    """The batch needs more memory than a worker has."""
    FAILED = 2
    """The check itself raised an exception, which is a bug of ours."""


def serve(check: Check) -> None:
    """Check batches until the end of the input."""
    _settle()
    batches, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # A library's output must not be mistaken for an answer.
    _write(answers, b"")
    while (content := _read(batches)) is not None:
        _write(answers, _answer(check, content))


def _settle() -> None:
    """Prepare this process. It ignores the signals that stop the service, which drains and then closes our input."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # So that no core dump writes seeds to disk.


def _answer(check: Check, content: bytes) -> bytes:
    try:
        results = check(read_request(content))
    except MemoryError:
        return bytes([Ended.TOO_LARGE]) + f"it needs more than {MEMORY_BYTES_MAX >> 30} GiB".encode()
    except Exception as error:  # noqa: BLE001 - the pool tells the caller its type and place, and no values
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        return bytes([Ended.FAILED]) + strict.printable(f"{type(error).__name__} at {where}").encode()
    return bytes([Ended.CHECKED]) + write_response(results)


def _read(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "big")
    if size > REQUEST_BYTES_MAX:
        return None
    content = stream.read(size)
    return content if len(content) == size else None


def _write(stream: BinaryIO, content: bytes) -> None:
    stream.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
    stream.flush()


if __name__ == "__main__":
    serve(check_jobs)
