"""Reads which boot a machine is in: the random id that Linux makes anew whenever it boots."""

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step

BOOT_ID_LENGTH = 36
READ_BOOT_ID = Step(
    "read boot id",
    "cat /proc/sys/kernel/random/boot_id\n",
    seconds=10,
    user="login",
    output_bytes_max=256,
)


async def read_boot_id(session: Session) -> str:
    """Such as `6f1f7f7c-6bd8-4a30-8b0f-0b5a0d7f3a51`. Raises Unreachable, and StepFailed for anything else."""
    answer = await must(session, READ_BOOT_ID)
    boot_id = answer.output.decode("ascii", "replace").strip()
    if len(boot_id) != BOOT_ID_LENGTH or not set(boot_id) <= set("0123456789abcdef-"):
        raise StepFailed(READ_BOOT_ID.name, None, "the machine printed something else than a boot id")
    return boot_id
