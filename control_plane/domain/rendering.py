"""Boot orders: what we hand to cloud-init. Same input, same bytes.

The machine's SSH host key travels in the user data, so that it is known before first contact: a
host that shows another key is not the machine we ordered. JSON is YAML, and quotes itself.
"""

import json
from dataclasses import dataclass, field

LOGIN_USER = "splitplane"
"""Ours, for setting the machine up."""
CUSTOMER_USER = "ubuntu"
"""The customer's; the default user of the common GPU images."""


@dataclass(frozen=True, slots=True)
class BootOrder:
    host_key_private: str = field(repr=False)
    """OpenSSH ed25519 private key. Rendered once and never stored by us; a log of the order does not show it."""
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
