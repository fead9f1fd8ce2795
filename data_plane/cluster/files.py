"""Sends files to a machine in parts, so that a connection that breaks costs a part, and keeps them by digest.

Several runs may send the same file at the same time, such as one whose connection is dead without anybody's knowing.
Each part is appended under a lock on the machine, and only where it belongs; who is behind goes on where the other one
is.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from data_plane.access.port import AccessError, Session, StepFailed, must
from data_plane.access.step import Answer, Step
from data_plane.access.turns import alone
from data_plane.cluster.k3s_files import K3sFile

FOLDER = "/var/lib/splitplane/files"
PART_BYTES = 8 * 1024 * 1024
"""So much is in memory for each machine that files are sent to."""
PART_SECONDS = 120
TURN_SECONDS = 240
"""For so long files are sent to a machine at a time, and the part that is being sent then is finished."""


class StillSending(AccessError):  # noqa: N818 - it is no error: the next turn goes on
    """The time of this turn is over, and not all files are there. The next turn goes on where this one ended."""

    def __init__(self, there: int, size: int, *, arrived: int, seconds: float) -> None:
        megabytes = 1_000_000
        super().__init__(
            f"{there // megabytes:,} of {size // megabytes:,} MB of the K3s files have arrived,"
            f" {arrived // megabytes:,} MB of them in the last {seconds:.0f} s"
        )
        self.arrived, self.seconds = arrived, seconds


@dataclass
class Turn:
    """How far one turn of sending to a machine has come."""

    files: Sequence[K3sFile]
    began: float
    there: int = 0
    """Bytes of all files that are on the machine."""
    arrived: int = 0
    """Bytes of them that arrived in this turn."""

    def go_on(self) -> None:
        """Raises StillSending when the time of the turn is over."""
        seconds = monotonic() - self.began
        if seconds >= TURN_SECONDS:
            size = sum(file.size for file in self.files)
            raise StillSending(self.there, size, arrived=self.arrived, seconds=seconds)


# Prints how many bytes are there already. Arguments: digest, size.
FIND = Step(
    "find file",
    f"""set -eu
file={FOLDER}/$1
if [ -f "$file" ] && [ "$(sha256sum < "$file" | cut -c 1-64)" != "$1" ]; then rm -f "$file"; fi
if [ -f "$file" ]; then
  echo "$2"
elif [ -f "$file.part" ]; then
  stat -c %s "$file.part"
else
  echo 0
fi
""",
    seconds=60,
    user="root",
)
# Another run holds the lock for one part, or, where its connection is dead, until its `cat` is ended.
_ALONE = alone(f"{FOLDER}/.lock", "transfer of files", PART_SECONDS + 10)
# Arguments: digest, the offset at which the part begins. Prints how many bytes are there then. A part that is there
# already, because another run sent it, is read and left alone.
PUT = Step(
    "send file",
    f"""set -eu
umask 077
mkdir -p {FOLDER}
{_ALONE}
part={FOLDER}/$1.part
if [ -f "{FOLDER}/$1" ]; then part={FOLDER}/$1; else touch "$part"; fi
there=$(stat -c %s "$part")
[ "$there" -ge "$2" ] || {{ echo 'the part before is missing' >&2; exit 66; }}
if [ "$there" -gt "$2" ]; then cat > /dev/null; else timeout {PART_SECONDS} cat >> "$part"; fi
stat -c %s "$part"
""",
    seconds=2 * PART_SECONDS + 20,
    user="root",
)
CHECK = Step(
    "check file",
    f"""set -eu
{_ALONE}
file={FOLDER}/$1
[ ! -f "$file.part" ] || mv -f "$file.part" "$file"
[ "$(sha256sum < "$file" | cut -c 1-64)" = "$1" ] || {{
  rm -f "$file"
  echo 'what arrived has another digest' >&2
  exit 65
}}
""",
    seconds=PART_SECONDS + 70,
    user="root",
)


async def send(session: Session, files: Sequence[K3sFile]) -> None:
    """Have the files on the machine, each as `FOLDER`/DIGEST. Raises Unreachable, StepFailed and StillSending.

    A file that is there already is not sent again, and one that arrived in part is continued.
    """
    turn = Turn(files, monotonic())
    for file in files:
        await _send(session, file, turn)


async def _send(session: Session, file: K3sFile, turn: Turn) -> None:
    at = await _there(session, file)
    before, turn.there = turn.there, turn.there + at
    while at < file.size:
        turn.go_on()
        part = await asyncio.to_thread(_part, file, at)
        answer = await must(session, PUT, [file.sha256, str(at)], stdin=part)
        found = _size(PUT, answer)
        if not at < found <= file.size:
            raise StepFailed(PUT.name, None, "the machine did not keep what was sent")
        turn.arrived += found - at
        at = found
        turn.there = before + at
    await must(session, CHECK, [file.sha256])


async def _there(session: Session, file: K3sFile) -> int:
    """Where to go on. What is longer than the file has another digest, and is deleted when that is found."""
    return min(_size(FIND, await must(session, FIND, [file.sha256, str(file.size)])), file.size)


def _size(step: Step, answer: Answer) -> int:
    """How many bytes a machine says are there."""
    try:
        size = int(answer.output)
    except ValueError:
        size = -1
    if size < 0:
        raise StepFailed(step.name, None, "the machine did not answer with a size")
    return size


def _part(file: K3sFile, at: int) -> bytes:
    with file.path.open("rb") as opened:
        opened.seek(at)
        return opened.read(PART_BYTES)
