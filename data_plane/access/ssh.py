"""Access to machines over SSH. Every host key is pinned before the first contact; no key is trusted on first use.

By default asyncssh reads `~/.ssh/config`, the SSH agent and X.509 stores. All of that is switched off, so that the
behaviour depends on the arguments only.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncssh

from data_plane.access.port import (
    HostKey,
    HostKeyChanged,
    LoginRefused,
    StepFailed,
    Target,
    Unreachable,
)
from data_plane.access.ssh_line import SshLine, converse
from data_plane.access.step import DETAIL_CHARACTERS_MAX, OUTPUT_BYTES_MAX, Answer, Step, detail_of
from data_plane.documents.strict import printable

CONNECT_SECONDS = 8
"""The time limit of a login: TCP connection, key exchange and authentication together."""
GRACE_SECONDS = 5
"""A step has its own time limit on the machine. We wait this much longer before we give it up."""
CLOSE_SECONDS = 2
SESSION_SECONDS_MAX = 900
"""A session outlives its certificate, which sshd reads at the login only, so we end it after this time."""
KEEPALIVE_SECONDS = 10
KEEPALIVES_MISSED_MAX = 3

# All kinds of keys are offered so that a machine with another kind of key than the pinned one shows its key and
# raises HostKeyChanged. With only the pinned kind, it would hang up during the key exchange, which would look like a
# network failure. Only the pinned key is ever accepted.
_HOST_KEY_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


def new_host_key() -> HostKey:
    """A new ed25519 host key for a machine that is about to be ordered."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return HostKey(
        private_openssh=key.export_private_key().decode(), public=key.export_public_key().decode().strip()
    )


Certify = Callable[[str, str], Awaitable[Sequence[str]]]
"""Certificates for a public key and a principal, one OpenSSH line each, the likeliest to be accepted first. There are
several while authorities are rotated. Raises NotCertified."""


class SshAccess:
    """`port.Access` over SSH. Its key lives as long as the process, and each login has a certificate of its own."""

    def __init__(
        self,
        certify: Certify,
        *,
        login_user: str = "splitplane",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` times a prover's frames."""
        self._certify = certify
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._public_key = self._key.export_public_key().decode().strip()
        self._clock = clock
        self._options = asyncssh.SSHClientConnectionOptions(
            config=None,
            agent_path=None,
            x509_trusted_certs=None,
            username=login_user,
            client_keys=None,
            preferred_auth="publickey",
            gss_auth=False,
            gss_kex=False,
            password_auth=False,
            kbdint_auth=False,
            compression_algs=["none"],  # A compressed packet can unpack to a thousand times its size.
            connect_timeout=CONNECT_SECONDS,
            login_timeout=CONNECT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVES_MISSED_MAX,
        )

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator["SshSession"]:
        """Log in. Raises Unreachable, HostKeyChanged, LoginRefused or NotCertified."""
        connection = await self._dial(target)
        end = asyncio.get_running_loop().call_later(SESSION_SECONDS_MAX, connection.abort)
        try:
            yield SshSession(connection, self._clock)
        finally:
            end.cancel()
            connection.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(_closed(connection), CLOSE_SECONDS)
            connection.abort()  # A machine that never acknowledges the close must not keep our socket open.

    async def _dial(self, target: Target) -> asyncssh.SSHClientConnection:
        where = f"{target.address} port {target.port}"
        try:
            pinned = asyncssh.import_public_key(target.host_key)
        except asyncssh.KeyImportError:
            raise HostKeyChanged(f"{where}: the host key on record is not a public key") from None
        certified = await self._certified(target.principal)
        own = [name for name in _HOST_KEY_ALGORITHMS if name == pinned.get_algorithm()]
        others = [name for name in _HOST_KEY_ALGORITHMS if name not in own]
        try:
            async with asyncio.timeout(CONNECT_SECONDS + CLOSE_SECONDS):
                return await asyncssh.connect(
                    target.address,
                    target.port,
                    options=self._options,
                    client_keys=certified,
                    known_hosts=([pinned], [], []),
                    server_host_key_algs=own + others,
                )
        except asyncssh.HostKeyNotVerifiable:
            raise HostKeyChanged(f"{where} shows another host key than the one we gave the machine") from None
        except asyncssh.PermissionDenied:
            raise LoginRefused(
                f"{where} does not accept our certificate: it does not trust our SSH authority (yet), or its clock is"
                " more than a minute behind ours or some minutes ahead"
            ) from None
        except TimeoutError:
            raise Unreachable(f"{where}: no answer in time") from None
        except Exception as error:  # noqa: BLE001 - a hostile peer can make the library raise anything
            raise Unreachable(f"{where}: {_short(error)}") from None

    async def _certified(self, principal: str) -> list[asyncssh.SSHKeyPair]:
        """Our key with each certificate. It is not offered alone: no machine knows it, and sshd counts the tries."""
        lines = await self._certify(self._public_key, principal)
        certificates = [asyncssh.import_certificate(line) for line in lines]
        return [asyncssh.load_keypairs([(self._key, certificate)])[0] for certificate in certificates]


class SshSession:
    """`port.Session` over an SSH connection."""

    def __init__(self, connection: asyncssh.SSHClientConnection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    async def run(
        self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> Answer:
        seconds = step.seconds + GRACE_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._run(step, step.command(arguments), stdin, private)
        except TimeoutError:
            raise StepFailed(step.name, None, f"did not end within {seconds} s") from None
        except (StepFailed, Unreachable):
            raise
        except Exception as error:  # noqa: BLE001 - as above: whatever the library raises, the connection is lost to us
            raise Unreachable(f"{step.name}: {_short(error)}") from None

    @asynccontextmanager
    async def converse(self, step: Step, arguments: Sequence[str] = ()) -> AsyncIterator[SshLine]:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(GRACE_SECONDS):
                    line = await stack.enter_async_context(
                        converse(self._connection, step.command(arguments), self._clock)
                    )
            except TimeoutError:
                raise Unreachable(f"{step.name}: did not start within {GRACE_SECONDS} s") from None
            except Exception as error:  # noqa: BLE001 - as above
                raise Unreachable(f"{step.name}: {_short(error)}") from None
            yield line

    async def _run(self, step: Step, command: str, stdin: bytes, private: Sequence[str]) -> Answer:
        process = await self._connection.create_process(command, encoding=None)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_feed(process.stdin, stdin))
                output = group.create_task(_read_to_end(process.stdout, step, "to standard output"))
                errors = group.create_task(_read_to_end(process.stderr, step, "to standard error"))
            await process.wait_closed()
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            process.close()
        if process.exit_signal is not None:
            raise StepFailed(step.name, None, "was killed by a signal")
        if process.exit_status is None:
            raise Unreachable(f"{step.name}: the connection broke")
        return Answer(process.exit_status, output.result(), detail_of(errors.result(), private))


async def _feed(writer: "asyncssh.SSHWriter[bytes]", content: bytes) -> None:
    # A step may end without reading all of its input; its exit status tells why.
    with suppress(BrokenPipeError):
        writer.write(content)
        await writer.drain()
        writer.write_eof()


async def _read_to_end(reader: "asyncssh.SSHReader[bytes]", step: Step, where: str) -> bytes:
    content = bytearray()
    while chunk := await reader.read(OUTPUT_BYTES_MAX):
        content += chunk
        if len(content) > step.output_bytes_max:
            raise StepFailed(step.name, None, f"printed more than {step.output_bytes_max} bytes {where}")
    return bytes(content)


async def _closed(connection: asyncssh.SSHClientConnection) -> None:
    with suppress(asyncssh.Error, OSError):
        await connection.wait_closed()


def _short(error: Exception) -> str:
    """The error in one bounded line. Parts of its text may come from the peer."""
    text = " ".join(printable(str(error), DETAIL_CHARACTERS_MAX).split())
    return f"{type(error).__name__}: {text}"[:DETAIL_CHARACTERS_MAX]
