"""Who may log in as the customer on a machine: exactly these keys, and at the end nobody."""

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

# As the customer, not as root: the directory is the customer's after the first time, and a root that writes
# through a link laid there would write anywhere. The rename makes the list whole at every moment.
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

# An expired account admits no key, wherever keys may lie by now. Whoever holds a GPU is ended as well, as a customer
# with root may have processes of any name; only the driver's own daemons stay. Three times, to outrun what forks.
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
    """Let exactly these keys log in as the customer (`ubuntu`); an empty list lets nobody in.

    A key is one OpenSSH public key line without options; anything else is StepFailed and changes nothing.
    Raises Unreachable and StepFailed.
    """
    try:
        text = authorized_keys_text(authorized_keys)
    except ValueError as error:
        raise StepFailed(INSTALL_KEYS.name, None, str(error)) from None
    await must(session, INSTALL_KEYS, stdin=text.encode())


async def end_customer(session: Session) -> None:
    """Let the customer in no more, and end what the customer runs and whoever else holds a GPU.

    A customer who took root may prevent it: what follows has to be proven, not believed. Raises Unreachable and
    StepFailed.
    """
    await must(session, END_CUSTOMER)


def authorized_keys_text(keys: Sequence[str]) -> str:
    """The file for exactly these keys. Raises ValueError for anything but plain OpenSSH public key lines.

    Options (`command=...`) and line breaks are refused: what we install must be what the customer asked for.
    """
    if len(keys) > _AUTHORIZED_KEYS_MAX:
        raise ValueError(f"more than {_AUTHORIZED_KEYS_MAX} keys")
    for number, key in enumerate(keys, start=1):
        if not _SSH_KEY.fullmatch(key.strip()):
            raise ValueError(f"key {number} is not one plain OpenSSH public key line")
    return "".join(f"{key.strip()}\n" for key in keys)
