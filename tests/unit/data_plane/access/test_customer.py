"""Which keys a customer may bring."""

from collections.abc import Callable

import asyncssh
import pytest

from data_plane.access.customer import authorized_keys_text
from data_plane.access.ssh import new_host_key


def test_usual_customer_keys_are_accepted() -> None:
    lines = []
    for kind in ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521"):
        key = asyncssh.generate_private_key(kind, comment="ana@laptop (2026)")
        lines.append(key.export_public_key().decode())
    text = authorized_keys_text(lines)
    assert text.splitlines() == [line.strip() for line in lines]
    assert authorized_keys_text([]) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda key: f'command="sh" {key}',
        lambda key: f"{key}\n{key}",
        lambda key: f"{key} comment\r{key}",
        lambda key: f"# {key}",
        lambda key: key.split()[1],
        lambda key: key.split()[0],
        lambda key: key.replace("ssh-ed25519", "ssh-dss"),
        lambda key: "",
        lambda key: f"{key} \x1b[2J",
    ],
)
def test_anything_but_one_plain_key_line_is_refused(change: Callable[[str], str]) -> None:
    key = new_host_key().public
    with pytest.raises(ValueError, match="key 2 is not"):
        authorized_keys_text([key, change(key)])
