"""The user data that cloud-init reads when a machine boots. The same input gives the same bytes.

Where a provider only runs a script, `boot_script.py` does the same. The user data contains the machine's SSH host key,
so that the key is known before first contact: a host that presents another key is not the machine we ordered. It has
the machine trust our SSH authorities and no list of keys: sshd accepts only certificates that name a principal of the
user. Ours is the machine's launch key. The customer has none until a customer is admitted. It is written as JSON, which
is valid YAML.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

LOGIN_USER = "splitplane"
"""Our account on the machine, for setting it up."""
CUSTOMER_USER = "ubuntu"
"""The customer's account; the default user of the common GPU images."""


@dataclass(frozen=True, slots=True)
class BootOrder:
    host_key_private: str = field(repr=False)
    """OpenSSH ed25519 private key. We render it once, and we never store it; where the provider keeps scripts, it holds
    it until the machine is reached. `repr` omits it, and so do logs."""
    host_key_public: str
    authorities: Sequence[str]
    """The public keys of our SSH authorities, one OpenSSH line each."""
    principal: str
    """What a certificate has to name to log in as our account: the machine's launch key."""


SSH_DIRECTORY = "/etc/ssh/splitplane"
AUTHORITIES = f"{SSH_DIRECTORY}/authorities"
PRINCIPALS = f"{SSH_DIRECTORY}/principals"
REVOKED = f"{SSH_DIRECTORY}/revoked"
SSHD_CONFIG = "/etc/ssh/sshd_config.d/00-splitplane.conf"
"""sshd takes the first value of a setting, so this file comes before those of the image."""

# sshd refuses every key while the file of revoked ones is missing. It is read at each login, as are the authorities and
# the principals.
SSHD_SETTINGS = f"""\
TrustedUserCAKeys {AUTHORITIES}
AuthorizedPrincipalsFile {PRINCIPALS}/%u
RevokedKeys {REVOKED}
AuthorizedKeysFile none
AuthorizedKeysCommand none
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
GSSAPIAuthentication no
PermitRootLogin no
"""


def cloud_config(order: BootOrder) -> str:
    config = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": order.host_key_private, "ed25519_public": order.host_key_public},
        "ssh_pwauth": False,
        "disable_root": True,
        "users": [
            {
                "name": LOGIN_USER,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
            },
            {
                "name": CUSTOMER_USER,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
            },
        ],
        "write_files": [_file(path, content) for path, content in sshd_files(order).items()],
    }
    return "#cloud-config\n" + json.dumps(config, indent=1, sort_keys=True) + "\n"


def sshd_files(order: BootOrder) -> dict[str, str]:
    """What sshd reads, by path: the same files whatever writes them."""
    return {
        AUTHORITIES: "".join(f"{line}\n" for line in order.authorities),
        f"{PRINCIPALS}/{LOGIN_USER}": f"{order.principal}\n",
        REVOKED: "# Nothing is revoked.\n",
        SSHD_CONFIG: SSHD_SETTINGS,
    }


def _file(path: str, content: str) -> dict[str, str]:
    return {"path": path, "content": content, "owner": "root:root", "permissions": "0644"}
