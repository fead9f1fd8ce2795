"""Who may log in as the customer on a machine, and how a customer's access ends."""

import re

from data_plane.access.login import PRINCIPALS
from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import CUSTOMER, Step

_PRINCIPAL = re.compile(r"[a-z0-9_-]{1,80}")

# The rename replaces the file at once. sshd reads it at each login.
ADMIT_CUSTOMER = Step(
    "admit customer",
    f"""set -eu
umask 022
mkdir -p {PRINCIPALS}
new=$(mktemp {PRINCIPALS}/.new.XXXXXX)
trap 'rm -f "$new"' EXIT
printf '%s\\n' "$1" > "$new"
chmod 644 "$new"
mv -f "$new" {PRINCIPALS}/{CUSTOMER}
""",
    seconds=10,
    user="root",
)

# An expired account accepts no certificate, and no key either, wherever a customer with root may have put keys. Every
# process that holds a GPU is killed too, because a customer with root can run processes as any user; only the driver's
# own daemons are spared. The loop runs three times to catch processes that fork meanwhile.
END_CUSTOMER = Step(
    "end customer",
    f"""set -eu
rm -f {PRINCIPALS}/{CUSTOMER}
usermod --expiredate 1 {CUSTOMER}
for round in 1 2 3; do
  {{
    find /proc -maxdepth 1 -name '[0-9]*' -user {CUSTOMER}
    find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*'
  }} 2>/dev/null | cut -d / -f 3 | sort -u | while read -r pid; do
    case "$(cat "/proc/$pid/comm" 2>/dev/null)" in nvidia-persiste* | nv-fabricmanage* | nv-hostengine) continue ;; esac
    kill -KILL "$pid" 2>/dev/null || true
  done
done
""",
    seconds=20,
    user="root",
)


async def admit_customer(session: Session, principal: str) -> None:
    """Let certificates that name this principal, and no other, log in as the customer (`ubuntu`).

    Raises Unreachable, and StepFailed, also for a principal that sshd could read as something else.
    """
    if not _PRINCIPAL.fullmatch(principal):
        raise StepFailed(
            ADMIT_CUSTOMER.name, None, "the principal is not one word of lower-case letters and digits"
        )
    await must(session, ADMIT_CUSTOMER, [principal])


async def end_customer(session: Session) -> None:
    """Disable the customer's login and kill the customer's processes, and every other process that holds a GPU.

    A customer with root can prevent this, so success here proves nothing about the machine. Raises Unreachable and
    StepFailed.
    """
    await must(session, END_CUSTOMER)
