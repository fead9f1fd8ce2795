"""Which SSH keys log in as the customer on a machine, and how a customer's access ends."""

import re
from collections.abc import Sequence

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import CUSTOMER, Step

_SSH_KEY = re.compile(
    r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)"
    r" [A-Za-z0-9+/]{40,8192}={0,2}(?: [^\x00-\x1f\x7f]{1,512})?"
)
_AUTHORIZED_KEYS_MAX = 1_000

# The script runs as the customer and not as root: the directory belongs to the customer, who could put a symbolic
# link there, and root would write through it to any file. The rename replaces the whole list at once.
INSTALL_KEYS = Step(
    "install keys",
    """set -eu
umask 077
mkdir -p "$HOME/.ssh"
chmod 700 "$HOME/.ssh"
new=$(mktemp "$HOME/.ssh/.authorized_keys.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
chmod 600 "$new"
mv -f "$new" "$HOME/.ssh/authorized_keys"
""",
    seconds=10,
    user="customer",
)

# An expired account accepts no key, wherever the customer may have put keys. Every process that holds a GPU is killed
# too, because a customer with root can run processes as any user; only the driver's own daemons are spared. The loop
# runs three times to catch processes that fork meanwhile.
END_CUSTOMER = Step(
    "end customer",
    f"""set -eu
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


async def install_keys(session: Session, authorized_keys: Sequence[str]) -> None:
    """Let exactly these keys log in as the customer (`ubuntu`); with an empty list nobody can.

    A key is one OpenSSH public key line without options. Anything else raises StepFailed and changes nothing.
    Raises Unreachable and StepFailed.
    """
    try:
        text = authorized_keys_text(authorized_keys)
    except ValueError as error:
        raise StepFailed(INSTALL_KEYS.name, None, str(error)) from None
    await must(session, INSTALL_KEYS, stdin=text.encode())


async def end_customer(session: Session) -> None:
    """Disable the customer's login and kill the customer's processes, and every other process that holds a GPU.

    A customer with root can prevent this, so success here proves nothing about the machine. Raises Unreachable and
    StepFailed.
    """
    await must(session, END_CUSTOMER)


def authorized_keys_text(keys: Sequence[str]) -> str:
    """The content of an `authorized_keys` file with these keys.

    Raises ValueError for anything but plain OpenSSH public key lines. Options (`command=...`) and line breaks are
    refused, so that the file grants exactly what the customer asked for.
    """
    if len(keys) > _AUTHORIZED_KEYS_MAX:
        raise ValueError(f"more than {_AUTHORIZED_KEYS_MAX} keys")
    for number, key in enumerate(keys, start=1):
        if not _SSH_KEY.fullmatch(key.strip()):
            raise ValueError(f"key {number} is not one plain OpenSSH public key line")
    return "".join(f"{key.strip()}\n" for key in keys)
