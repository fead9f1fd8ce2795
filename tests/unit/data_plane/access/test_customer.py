import subprocess
from collections.abc import Callable
from dataclasses import replace

import asyncssh
import pytest

from data_plane.access import bootstrap
from data_plane.access.port import MeshLink
from data_plane.access.shell import Step
from data_plane.access.ssh import new_host_key

LINK = MeshLink(
    address="10.64.12.7",
    network="10.64.12.0/22",
    hub_address="10.64.12.1",
    hub_public_key="xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    hub_endpoint="198.51.100.1:20003",
)
STEPS = [
    bootstrap.INSTALL_KEYS,
    bootstrap.MESH_KEY,
    bootstrap.JOIN_MESH,
    bootstrap.RUN_AGENT,
    bootstrap.READ_HEALTH,
    bootstrap.PUSH_AGENT,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_script_is_sh(step: Step) -> None:
    subprocess.run(["sh", "-n"], input=step.script.encode(), check=True)


def test_the_machines_file_reads_so() -> None:
    assert (
        bootstrap.machine_config(LINK)
        == """[Interface]
Address = 10.64.12.7/22
PostUp = wg set %i private-key /etc/wireguard/splitplane.key

[Peer]
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 10.64.12.0/22
Endpoint = 198.51.100.1:20003
PersistentKeepalive = 25
"""
    )
    assert "[2001:db8::1]:20003" in bootstrap.machine_config(
        replace(LINK, hub_endpoint="[2001:db8::1]:20003")
    )


@pytest.mark.parametrize(
    "link",
    [
        replace(LINK, address="10.64.16.7"),
        replace(LINK, address="10.64.12.7\nPostUp = sh"),
        replace(LINK, network="0.0.0.0/0\n"),
        replace(LINK, hub_address="10.64.99.1"),
        replace(LINK, hub_public_key=LINK.hub_public_key + "\n\n"),
        replace(LINK, hub_public_key="x" * 44),
        replace(LINK, hub_endpoint="198.51.100.1:20003\nPostUp = sh"),
        replace(LINK, hub_endpoint="198.51.100.1"),
        replace(LINK, hub_endpoint="$(reboot):1"),
    ],
)
def test_no_field_smuggles_a_line_into_a_file_that_root_obeys(link: MeshLink) -> None:
    with pytest.raises(ValueError, match=".+"):  # noqa: RUF043 - any sentence
        bootstrap.machine_config(link)


def test_usual_customer_keys_are_accepted() -> None:
    lines = []
    for kind in ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521"):
        key = asyncssh.generate_private_key(kind, comment="ana@laptop (2026)")
        lines.append(key.export_public_key().decode())
    text = bootstrap.authorized_keys_text(lines)
    assert text.splitlines() == [line.strip() for line in lines]
    assert bootstrap.authorized_keys_text([]) == ""


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
        bootstrap.authorized_keys_text([key, change(key)])


def test_arguments_cannot_leave_their_quotes() -> None:
    step = Step("say", 'printf %s "$1"', seconds=5, user="login")
    nasty = "'; touch /tmp/x; $(id) \"`"
    done = subprocess.run(["sh", "-c", step.command([nasty])], capture_output=True, check=True)
    assert done.stdout.decode() == nasty
