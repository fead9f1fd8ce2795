"""The agent's command line. `inventory` and `health` print JSON documents, one a line; `prove` speaks in frames.

    agent.pyz inventory                  what the GPUs are, and what is around them; once
    agent.pyz health [--watch SECONDS]   how the GPUs are; once, or every so many seconds
    agent.pyz prove                      takes orders from standard input, and answers (data_plane/proof)
    agent.pyz version

Exit status 0 with what was asked for, 3 with a failure document, 2 for a wrong command line. It holds no
secret, opens no socket, needs no root, and writes no file but what the driver compiles while it proves.
"""

import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from data_plane.agent import inventory, kernel_log_source
from data_plane.agent.guard import Hangs, guarded
from data_plane.agent.schedule import Schedule
from data_plane.agent.ward import SETTLE_SECONDS, Ward, once, watch
from data_plane.documents.health import Health
from data_plane.documents.inventory import Inventory
from data_plane.documents.protocol import VERSION, Failure, Message, decode, encode
from data_plane.documents.strict import Malformed, printable
from data_plane.nvml import emulation_file
from data_plane.nvml.library import Library, Unanswered
from data_plane.nvml.selection import opened
from data_plane.proof.prover import command

USAGE = "usage: agent.pyz inventory | health [--watch SECONDS] | prove | version\n"
HANGS_SECONDS = 35
"""Without a persistence daemon a driver wakes its cards at every start, seconds for each."""
WATCH_SECONDS_MAX = 3600

Work = Callable[[Library], "Iterator[Inventory | Health]"]


def inventories(library: Library) -> "Iterator[Inventory]":
    yield inventory.read(library)


def healths(
    library: Library, seconds: "int | None", *, sleep: "Callable[[float], object]" = time.sleep
) -> "Iterator[Health]":
    """One document, or one every so many seconds for ever."""
    ward = Ward(
        library,
        Schedule(seconds or 0),
        kernel_log_source.find(lambda: time.time() - time.monotonic()),
        monotonic=time.monotonic,
        unix=time.time,
    )
    if seconds is None:
        yield once(ward, sleep=sleep)
    else:
        yield from watch(ward, seconds, monotonic=time.monotonic, sleep=sleep, beside=_beside)


def _beside(work: "Callable[[], object]") -> None:
    threading.Thread(target=work, daemon=True).start()


def documents(
    work: Work, emulation: Path, *, every: float = 0, hangs: float = HANGS_SECONDS
) -> "Iterator[Message]":
    """What `work` reads; a Failure, and the end, when something is in its way. `every`: seconds that it pauses."""
    at_work: list[Library] = []

    def run() -> "Iterator[Inventory | Health]":
        with opened(emulation) as library:
            at_work.append(library)
            yield from work(library)

    try:
        for message in guarded(run, every + hangs):
            decode(encode(message).encode())  # Said only if it will be understood.
            yield message
    except Unanswered as error:
        yield Failure(error.code, error.detail)
    except Malformed as error:
        yield Failure("bad_reading", printable(str(error)))
    except Hangs:
        doing = f"{at_work[0].about}: {at_work[0].asking}" if at_work else "nvmlInit"
        yield Failure("nvml_hangs", f"{doing} has not answered for {hangs:g} s")


def main(arguments: "list[str]", emulation: Path = emulation_file.PATH) -> int:
    match arguments:
        case ["version"]:
            sys.stdout.write(f"{VERSION}\n")
            return 0
        case ["inventory"]:
            return _say(documents(inventories, emulation))
        case ["health"]:
            return _say(documents(lambda library: healths(library, None), emulation, every=SETTLE_SECONDS))
        case ["health", "--watch", text] if re.fullmatch("[0-9]{1,4}", text):
            seconds = int(text)
            if 1 <= seconds <= WATCH_SECONDS_MAX:
                return _say(documents(lambda library: healths(library, seconds), emulation, every=seconds))
        case ["prove"]:
            return _prove(emulation)
    sys.stderr.write(USAGE)
    return 2


def _prove(emulation: Path) -> int:
    with TemporaryDirectory(prefix="splitplane-") as folder:
        _gone_when_told(folder)
        os.environ["CUDA_CACHE_PATH"] = (
            folder  # Compiled once for all GPUs of the machine, and for nobody else.
        )
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's order.
        command.conversation(emulation)
    return 0


def _gone_when_told(folder: str) -> None:
    """Leave nothing and end, on the spot: giving back a GPU that is at work can outlast who waits for our end.

    Told once is told: `timeout` tells a process twice, as its child and as a member of its group.
    """

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def _say(messages: "Iterator[Message]") -> int:
    status = 0
    try:
        for message in messages:
            sys.stdout.write(encode(message) + "\n")
            sys.stdout.flush()
            status = 3 if isinstance(message, Failure) else 0
    except BrokenPipeError:  # Nobody listens any more. Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
