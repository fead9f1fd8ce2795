"""The file by which a machine joins its tenant's network."""

from dataclasses import replace

import pytest

from data_plane.mesh.machine import machine_config
from data_plane.mesh.port import MeshLink

LINK = MeshLink(
    address="10.64.12.7",
    network="10.64.12.0/22",
    hub_address="10.64.12.1",
    hub_public_key="xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    hub_endpoint="198.51.100.1:20003",
)


def test_the_machines_file_reads_so() -> None:
    assert (
        machine_config(LINK)
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
    assert "[2001:db8::1]:20003" in machine_config(replace(LINK, hub_endpoint="[2001:db8::1]:20003"))


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
        machine_config(link)
