"""The system's ssh with our pinning, against a server that has the key and one that has another."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from control_plane.cli import ssh

ALIAS = "mc_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c"
pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")


class Open(asyncssh.SSHServer):
    """Accepts every client, because only the server's identity is tested here."""

    def begin_auth(self, username: str) -> bool:
        return False


def _handle(process: asyncssh.SSHServerProcess[str]) -> None:
    process.stdout.write(f"{process.get_extra_info('username')} ran {process.command}\n")
    process.exit(7)


@asynccontextmanager
async def _server(key: asyncssh.SSHKey) -> AsyncIterator[int]:
    server = await asyncssh.create_server(
        Open, "127.0.0.1", 0, server_host_keys=[key], process_factory=_handle
    )
    async with server:
        yield server.get_port()


async def _connect(
    home: Path, port: int, pinned: asyncssh.SSHKey, *remote: str
) -> tuple[int | None, str, str]:
    host_key = pinned.export_public_key().decode().strip()
    # A blank and a percent sign in the path: ssh would split at the one and expand the other.
    environ = {"XDG_STATE_HOME": str(home / "a state 100%d")}
    command = ssh.command(
        address="127.0.0.1",
        port=port,
        user="ubuntu",
        options=ssh.options(
            alias=ALIAS,
            known_hosts=ssh.pin(environ, ALIAS, host_key),
            certificate=home / "none-cert.pub",
            identity=str(home / "none"),
        ),
        remote=remote,
    )
    process = await asyncio.create_subprocess_exec(
        *command[:1],
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        *command[1:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_machine_with_the_pinned_key_is_reached_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with _server(key) as port:
        code, out, err = await _connect(tmp_path, port, key, "nvidia-smi", "-L")
    assert (code, out) == (7, "ubuntu ran nvidia-smi -L\n"), err


async def test_a_machine_with_another_key_at_the_same_address_is_refused(tmp_path: Path) -> None:
    pinned, another = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    async with _server(another) as port:
        code, out, err = await _connect(tmp_path, port, pinned, "true")
    assert (code, out) == (255, "")
    assert "Host key verification failed" in err


async def test_a_fingerprint_reads_as_openssh_prints_it(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    line = key.export_public_key().decode().strip()
    assert ssh.fingerprint(line) == f"{key.get_fingerprint()} (ECDSA)"
