"""The agent's command line. `inventory` and `health` print JSON documents, one per line; `prove` exchanges frames.

    agent.pyz inventory                  the GPUs and the hardware around them, once
    agent.pyz health [--watch SECONDS]   the state of the GPUs, once or every SECONDS
    agent.pyz prove                      reads orders from standard input and answers them (data_plane/proof)
    agent.pyz serve                      reports for as long as the lease lasts (service.py, sampling.py)
    agent.pyz version

The exit status is 0 after an answer, 3 after a failure document, 2 for a wrong command line. The agent needs no root.
Except for `serve`, it has no secret, opens no socket, and writes no file but the driver's compiled kernels during a
proof.
"""

import hashlib
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

from data_plane.agent import (
    hub_line,
    inference,
    inventory,
    kernel_log_source,
    local_page,
    pods,
    sample_line,
    tasks,
)
from data_plane.agent.events import Events
from data_plane.agent.gpu_watch import GpuWatch, starting
from data_plane.agent.guard import Hangs, guarded
from data_plane.agent.host_usage import HostUsage
from data_plane.agent.inference import Inference
from data_plane.agent.monitor import SETTLE_SECONDS, Monitor, once, watch
from data_plane.agent.new_xids import NewXids
from data_plane.agent.sampling import Reader, Sampling
from data_plane.agent.schedule import Schedule
from data_plane.agent.service import Service
from data_plane.agent.signal_file import SignalFile
from data_plane.agent.spool import HEARTBEATS, HEARTBEATS_MAX, SAMPLES, SAMPLES_MAX, Spool
from data_plane.documents.agent_config import Config, read_config
from data_plane.documents.health import Health
from data_plane.documents.inventory import Inventory
from data_plane.documents.protocol import VERSION, Failure, Message, decode, encode
from data_plane.documents.strict import Malformed, printable
from data_plane.nvml import emulation_file
from data_plane.nvml.library import Library, Unanswered
from data_plane.nvml.selection import opened
from data_plane.proof.prover import command

USAGE = "usage: agent.pyz inventory | health [--watch SECONDS] | prove | serve | version\n"
HANGS_SECONDS = 35
"""Without a persistence daemon, the driver initialises every card anew, which takes seconds for each."""
WATCH_SECONDS_MAX = 3600

Work = Callable[[Library], "Iterator[Inventory | Health]"]


def inventories(library: Library) -> "Iterator[Inventory]":
    yield inventory.read(library)


def healths(
    library: Library, seconds: "int | None", *, sleep: "Callable[[float], object]" = time.sleep
) -> "Iterator[Health]":
    """One document; or, if `seconds` is given, one document every so many seconds, for ever."""
    monitor = Monitor(
        library,
        Schedule(seconds or 0),
        kernel_log_source.find(lambda: time.time() - time.monotonic()),
        monotonic=time.monotonic,
        unix=time.time,
    )
    if seconds is None:
        yield once(monitor, sleep=sleep)
    else:
        yield from watch(
            monitor, seconds, monotonic=time.monotonic, sleep=sleep, beside=_beside, rest=Events.rest
        )


def _beside(work: "Callable[[], object]") -> None:
    threading.Thread(target=work, daemon=True).start()


def documents(
    work: Work, emulation: Path, *, every: float = 0, hangs: float = HANGS_SECONDS
) -> "Iterator[Message]":
    """The documents that `work` makes. If something prevents it from going on, the last document is a Failure.

    `every` is the pause between two documents and `hangs` the time limit for making one, both in seconds.
    """
    at_work: list[Library] = []

    def run() -> "Iterator[Inventory | Health]":
        with opened(emulation) as library:
            at_work.append(library)
            yield from work(library)

    try:
        for message in guarded(run, every + hangs):
            decode(encode(message).encode())  # Print only what the other side accepts.
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
            return _print(documents(inventories, emulation))
        case ["health"]:
            return _print(documents(lambda library: healths(library, None), emulation, every=SETTLE_SECONDS))
        case ["health", "--watch", text] if re.fullmatch("[0-9]{1,4}", text):
            seconds = int(text)
            if 1 <= seconds <= WATCH_SECONDS_MAX:
                return _print(documents(lambda library: healths(library, seconds), emulation, every=seconds))
        case ["prove"]:
            return _prove(emulation)
        case ["serve"]:
            return _serve()
    sys.stderr.write(USAGE)
    return 2


def _prove(emulation: Path) -> int:
    with TemporaryDirectory(prefix="splitplane-") as folder:
        _end_at_sigterm(folder)
        # The kernels are compiled once for all GPUs, and the result is for this run only.
        os.environ["CUDA_CACHE_PATH"] = folder
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # The order in which NVML counts.
        command.conversation(emulation)
    return 0


def _serve() -> int:
    """Serve with what systemd gives: the credential, and a folder for the spool."""
    agent = Path(sys.argv[0]).resolve()
    try:
        config = read_config(Path(os.environ["CREDENTIALS_DIRECTORY"]) / "agent")
        folder = Path(os.environ["STATE_DIRECTORY"])
        spool = Spool(folder, HEARTBEATS, HEARTBEATS_MAX)
    except (KeyError, OSError, Malformed) as error:
        sys.stderr.write(f"the agent cannot serve: {type(error).__name__}: {error}\n")
        return 2
    try:
        _sample(config, folder / "samples", agent)
    except OSError as error:
        sys.stderr.write(f"the agent cannot sample: {error}\n")
    read = tasks.read_by(agent)
    return Service(
        config,
        spool,
        hub_line.sender(config),
        lambda task: tasks.perform(task, agent, spool, read),
        boot=_boot_id(),
    ).run()


def _sample(config: Config, folder: Path, agent: Path) -> None:
    """Sample in threads of their own, so that nothing there keeps the heartbeats waiting. Raises OSError."""
    # Clocks count faster than samples do, so an agent that has lost its folder goes on with higher sequences.
    spool = Spool(spool_folder(folder, config.credential), SAMPLES, SAMPLES_MAX, first=int(time.time()))
    gpus = GpuWatch(starting(agent, config.sample_seconds))
    ports = inference.ports(os.environ.get(inference.VARIABLE, ""))
    reader = Reader(
        gpus,
        HostUsage(),
        Inference(local_page.get, ports, pods.addresses),
        NewXids(folder / "xids.json"),
        boot=_boot_id(),
    )
    _beside(gpus.run)
    runtime = os.environ.get("RUNTIME_DIRECTORY", "")
    signals = SignalFile(Path(runtime)) if runtime else None
    _beside(Sampling(reader.next, spool, sample_line.sender(config), signals=signals).run)


def spool_folder(folder: Path, credential: str) -> Path:
    """The folder for samples under this credential. What waits for another one is deleted: it is of another lease."""
    own = folder / hashlib.sha256(credential.encode()).hexdigest()[:16]
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.iterdir():
        if other.is_dir() and other != own:
            shutil.rmtree(other, ignore_errors=True)
    return own


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _end_at_sigterm(folder: str) -> None:
    """At SIGTERM, delete the folder and end at once, because releasing a GPU that is at work can take too long.

    A second SIGTERM is ignored: `timeout` sends one to its child and one to its process group.
    """

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def _print(messages: "Iterator[Message]") -> int:
    """Print the documents and return the exit status."""
    status = 0
    try:
        for message in messages:
            sys.stdout.write(encode(message) + "\n")
            sys.stdout.flush()
            status = 3 if isinstance(message, Failure) else 0
    except BrokenPipeError:  # The reader has gone. Without this, Python would write again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
