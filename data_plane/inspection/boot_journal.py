"""Reads the end of the journal of a machine's last boot, for a customer who asks why it does not work.

The journal is the machine's own word, and nothing is concluded from it.
"""

from data_plane.access.port import Session, must
from data_plane.access.step import Step

LINES_MAX = 2_000
JOURNAL_BYTES_MAX = 128 * 1024
READ_BOOT_JOURNAL = Step(
    "read boot journal",
    # A machine whose journal is broken still has the kernel's messages.
    f"{{ journalctl --boot --no-pager --quiet --output=short-iso --lines={LINES_MAX} || dmesg; }} 2>&1"
    f" | tail -c {JOURNAL_BYTES_MAX}\n",
    seconds=15,
    user="root",
    output_bytes_max=JOURNAL_BYTES_MAX + 1,
)


async def read_boot_journal(session: Session) -> str:
    """Its last lines, with replacement characters where it is no UTF-8. Raises StepFailed and Unreachable."""
    answer = await must(session, READ_BOOT_JOURNAL)
    return answer.output.decode(errors="replace")
