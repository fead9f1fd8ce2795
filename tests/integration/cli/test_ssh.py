"""The system's ssh with our pinning and our configuration, against servers that have the key or the authority or not."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from control_plane.cli import ssh
from control_plane.cli.terminal import make_key

LEASE = "le_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b"
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


def _certificate_of(authority: asyncssh.SSHKey, public: Path, principal: str) -> str:
    made = authority.generate_user_certificate(
        asyncssh.read_public_key(public), "test", principals=[principal], valid_before="+10m"
    )
    return made.export_certificate().decode()


async def test_plain_ssh_gets_a_certificate_before_it_connects_and_none_without(tmp_path: Path) -> None:
    """OpenSSH's own reading of the block: `Match ... exec` runs the renewal, and `CertificateFile` is read afterwards."""
    authority, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    state = tmp_path / "a state 100%d"
    state.mkdir()
    identity, issued, certificate = state / "id", state / "issued", state / "id-cert.pub"
    make_key(identity)
    issued.write_text(_certificate_of(authority, identity.with_name("id.pub"), LEASE))
    environ = {"XDG_STATE_HOME": str(state)}
    trusted = f'cert-authority,principals="{LEASE}" {authority.export_public_key().decode()}'
    server = await asyncssh.create_server(
        asyncssh.SSHServer,
        "127.0.0.1",
        0,
        server_host_keys=[key],
        authorized_client_keys=asyncssh.import_authorized_keys(trusted),
        process_factory=_handle,
    )
    async with server:
        block = ssh.config_block(
            "gpu",
            address="127.0.0.1",
            port=server.get_port(),
            user="ubuntu",
            options=ssh.options(
                alias=ALIAS,
                known_hosts=ssh.pin(environ, ALIAS, key.export_public_key().decode().strip()),
                certificate=certificate,
                identity=str(identity),
            ),
            renewal=["cp", str(issued), str(certificate)],
        )
        config = tmp_path / "config"
        config.write_text(block)
        command = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "gpu", "true"]
        assert await _exit_code(*command) == 7, "the renewal was run, and its certificate was used"
        for changed in (
            _certificate_of(authority, identity.with_name("id.pub"), "le_another"),
            _certificate_of(key, identity.with_name("id.pub"), LEASE),
        ):
            issued.write_text(changed)
            assert await _exit_code(*command) == 255
        certificate.unlink()
        config.write_text(block.partition("\n")[2])
        assert await _exit_code(*command) == 255, "without the renewal there is no certificate"


async def _exit_code(*command: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
