"""What we keep of what a server host says. The scripts themselves run in
tests/integration/kubernetes/test_server_hosts.py."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from data_plane.access.port import StepFailed
from data_plane.cluster import files, server_scripts
from data_plane.cluster.k3s_files import K3sFile, K3sFiles
from data_plane.cluster.servers import ServerOrder
from data_plane.cluster.ssh_servers import SshServers, agent_token
from data_plane.mesh.node_scripts import APPLY_PEERS, MAKE_NODE_KEY
from data_plane.mesh.port import OverlayPlace
from tests.support.answering_machine import TARGET, Machine

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
TOKEN = "a-planted-token-of-servers"
PLACE = OverlayPlace("10.64.16.2", "10.64.16.0/20", "10.48.0.0/12")
ORDER = ServerOrder(
    host=TARGET,
    name="eu-1",
    outside="198.51.100.2",
    place=PLACE,
    services="10.43.0.0/16",
    token=TOKEN,
    fence=1,
)


def _files(folder: Path) -> K3sFiles:
    def file(name: str) -> K3sFile:
        (folder / name).write_bytes(name.encode())
        return K3sFile(folder / name, hashlib.sha256(name.encode()).hexdigest(), len(name))

    return K3sFiles(file("k3s"), file("install.sh"), ())


def test_lines_of_a_servers_journal_are_kept_without_its_credentials(tmp_path: Path) -> None:
    journal = f"\x1b[31mK10{'0' * 64}::server:{TOKEN} is wrong\nagents use {agent_token(TOKEN)}\n"
    for step in (server_scripts.INSTALL, server_scripts.AWAIT_NODE):
        host = Machine()
        host.tells(files.FIND, "0\n")
        host.tells(MAKE_NODE_KEY, f"{KEY}\n")
        host.tells(APPLY_PEERS, f"{KEY} 51820 1763000000\n")
        host.fails(step, 70, journal)
        with pytest.raises(StepFailed) as failed:
            asyncio.run(SshServers(host, _files(tmp_path)).install(ORDER))
        assert failed.value.detail == f"[31mK10{'0' * 64}::server:... is wrong agents use ..."
