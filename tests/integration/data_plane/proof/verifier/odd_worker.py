"""A worker whose check does what the job's number of rounds says: the ways in which a computation can go wrong.

`python -m tests.integration.data_plane.proof.verifier.odd_worker`, as a pool runs its workers.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from data_plane.proof.verifier.jobs import Checked, Fault, Job, LaunchJob
from data_plane.proof.verifier.service.worker import MEMORY_BYTES_MAX, serve

RIGHT, WRONG, HANG, DIE, MEMORY, RAISE, PRINT, ENVIRONMENT, ANSWER_PART, UNTIL_TOLD = range(1, 11)


def check(jobs: Sequence[Job]) -> list[Checked]:
    return [_one(job.rounds if isinstance(job, LaunchJob) else RIGHT) for job in jobs]


def _one(behaviour: int) -> Checked:
    act = _ACTS.get(behaviour)
    return (act and act()) or Checked(None, "", behaviour, 0.5)


def _wrong() -> Checked:
    return Checked(Fault.DIGEST, "not what it should be", 1, 0.25)


def _hang() -> NoReturn:
    while True:
        pass


def _die() -> NoReturn:
    os._exit(3)


def _memory() -> None:
    bytearray(MEMORY_BYTES_MAX + 1)


def _raise() -> NoReturn:
    raise ZeroDivisionError("planted-secret-7f3a")


def _print() -> None:
    print("a library that talks")  # noqa: T201 - must not be taken for an answer
    sys.stdout.flush()


def _environment() -> Checked:
    return Checked(None, " ".join(sorted(os.environ)), 0, 0.0)


def _answer_part() -> NoReturn:
    """The pipe of answers is one of those from 3 up; whichever it is, it gets half a length and ends."""
    for number in range(3, 16):
        try:
            os.write(number, b"\0\0")
        except OSError:
            continue
    os._exit(0)


def _until_told() -> None:
    signal.sigwait({signal.SIGUSR1})


_ACTS: dict[int, Callable[[], Checked | None]] = {
    WRONG: _wrong,
    HANG: _hang,
    DIE: _die,
    MEMORY: _memory,
    RAISE: _raise,
    PRINT: _print,
    ENVIRONMENT: _environment,
    ANSWER_PART: _answer_part,
    UNTIL_TOLD: _until_told,
}


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    serve(check)
