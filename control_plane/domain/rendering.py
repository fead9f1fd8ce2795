"""The user data that cloud-init reads when a machine boots. The same input gives the same bytes.

It contains the machine's SSH host key, so that the key is known before first contact: a host that
presents another key is not the machine we ordered. It is written as JSON, which is valid YAML.
"""

import json
from dataclasses import dataclass, field

LOGIN_USER = "splitplane"
"""Our account on the machine, for setting it up."""
CUSTOMER_USER = "ubuntu"
"""The customer's account; the default user of the common GPU images."""


@dataclass(frozen=True, slots=True)
class BootOrder:
    host_key_private: str = field(repr=False)
    """OpenSSH ed25519 private key. We render it once and never store it; `repr` omits it, and so do logs."""
    host_key_public: str
    login_key_public: str


def user_data(order: BootOrder) -> str:
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
                "ssh_authorized_keys": [order.login_key_public],
            },
            {
                "name": CUSTOMER_USER,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
            },
        ],
    }
    return "#cloud-config\n" + json.dumps(config, indent=1, sort_keys=True) + "\n"
