"""Reads which boot a machine is in: the random id that Linux makes anew at each boot, and for how long it is up."""

from dataclasses import dataclass
from datetime import timedelta

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step

BOOT_ID_LENGTH = 36
UP_SECONDS_MAX = 100 * 366 * 24 * 3_600
READ_BOOT = Step(
    "read boot",
    "cat /proc/sys/kernel/random/boot_id /proc/uptime\n",
    seconds=10,
    user="login",
    output_bytes_max=256,
)


@dataclass(frozen=True, slots=True)
class MachineBoot:
    """A boot of a machine, as the machine itself reports it."""

    id: str
    """Such as `6f1f7f7c-6bd8-4a30-8b0f-0b5a0d7f3a51`."""
    up: timedelta
    """How long ago it began, with the time in which the machine was suspended."""


async def read_boot(session: Session) -> MachineBoot:
    """Raises Unreachable, and StepFailed for anything else."""
    answer = await must(session, READ_BOOT)
    words = answer.output.decode("ascii", "replace").split()
    if len(words) != 3 or len(words[0]) != BOOT_ID_LENGTH or not set(words[0]) <= set("0123456789abcdef-"):
        raise StepFailed(
            READ_BOOT.name, None, "the machine printed something else than a boot id and its uptime"
        )
    return MachineBoot(words[0], timedelta(seconds=_seconds(words[1])))


def _seconds(word: str) -> float:
    """Such as `350735.47`."""
    digits = word.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or not float(word) <= UP_SECONDS_MAX:
        raise StepFailed(READ_BOOT.name, None, "the machine printed something else than its uptime")
    return float(word)
