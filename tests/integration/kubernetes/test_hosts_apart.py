"""Hosts with an internet between them open although cables of an earlier run are still there."""

import subprocess
from pathlib import Path

from data_plane.access.authority import new_authority
from providers.emulators.host_resources import delete_link
from tests.support.certificates import our_access
from tests.support.hosts_apart import hosts_apart


async def test_hosts_open_while_cables_of_the_same_names_are_left(tmp_path: Path) -> None:
    authority = new_authority()
    names, access = ("ours", "theirs"), our_access(authority)
    async with hosts_apart(names, tmp_path, tmp_path, authority, access) as first:
        left = [f"{host.bridge}-net" for host in first.hosts.values()]
    for cable in left:
        _leave_behind(cable)
    try:
        async with hosts_apart(names, tmp_path, tmp_path, authority, access) as second:
            assert len(second.hosts) == 2
    finally:
        for cable in left:
            delete_link(cable)


def _leave_behind(cable: str) -> None:
    delete_link(cable)
    subprocess.run(("ip", "link", "add", cable, "type", "bridge"), check=True)
