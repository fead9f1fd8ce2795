"""An SSH server in this process that accepts our certificates and behaves as its handler does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import asyncssh

from data_plane.access.authority import new_authority
from data_plane.access.port import Target
from data_plane.access.ssh import new_host_key
from tests.support.certificates import our_access

Process = asyncssh.SSHServerProcess
Handler = Callable[["Process[bytes]"], Awaitable[None]]

AUTHORITY = new_authority()
MACHINE = new_host_key()
PRINCIPAL = "sp-one-machine"
_TRUSTED = asyncssh.import_authorized_keys(
    f'cert-authority,principals="{PRINCIPAL}" {AUTHORITY.public_key}\n'
)


ours = partial(our_access, AUTHORITY)
"""Our access to such machines."""


class Server(asyncssh.SSHServer):
    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username == "splitplane":
            self._connection.set_authorized_keys(_TRUSTED)
        return True

    def public_key_auth_supported(self) -> bool:
        return True


@asynccontextmanager
async def a_machine(
    handler: Handler,
    *,
    private_key: str = MACHINE.private_openssh,
    pinned: str = MACHINE.public,
    window: int = 2 << 20,
) -> AsyncIterator[Target]:
    """`window`: bytes that it lets a client send ahead."""
    server = await asyncssh.create_server(
        Server,
        "127.0.0.1",
        0,
        server_host_keys=[asyncssh.import_private_key(private_key)],
        process_factory=handler,
        encoding=None,
        window=window,
    )
    try:
        yield Target("127.0.0.1", server.get_port(), pinned, PRINCIPAL)
    finally:
        server.close()
        await server.wait_closed()
