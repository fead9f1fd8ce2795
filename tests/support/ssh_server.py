"""An SSH server in this process that accepts our key and behaves as its handler does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncssh

from data_plane.access.port import Target
from data_plane.access.ssh import new_host_key

Process = asyncssh.SSHServerProcess
Handler = Callable[["Process[bytes]"], Awaitable[None]]

OURS = new_host_key()
MACHINE = new_host_key()


class Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "splitplane" and key.export_public_key().decode().strip() == OURS.public


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
        yield Target("127.0.0.1", server.get_port(), pinned)
    finally:
        server.close()
        await server.wait_closed()
