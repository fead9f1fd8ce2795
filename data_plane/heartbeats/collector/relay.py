"""Passes on connections of agents, byte by byte, to the ingest process, which takes samples.

On the server of a cluster, where the nodes of all tenants connect to one socket. It bounds what one node can hold, and
reads nothing of what passes: the ingest process knows who may say what. Which nodes are of one organization, the
collector beside it is told and writes down.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from ipaddress import IPv4Network

from data_plane.heartbeats.collector.connections import Connections

CONNECTIONS_MAX = 384
"""At a time. With those to the ingest process, they are within the 1,024 files that a process may open."""
CONNECT_SECONDS = 5
PASS_SECONDS = 60
"""For a connection, from its beginning to its end."""
_PIECE_BYTES = 64 * 1024


class Relay:
    def __init__(self, host: str, port: int, nodes: IPv4Network) -> None:
        """`host` and `port` are the ingest process's. `nodes`: the addresses of nodes in their overlay."""
        self._host, self._port = host, port
        self.connections = Connections(CONNECTIONS_MAX, nodes)

    async def listen(self, given: "Sequence[socket.socket]") -> "list[asyncio.AbstractServer]":
        """Serve at these sockets."""
        return [await asyncio.start_server(self._of_agent, sock=each, limit=_PIECE_BYTES) for each in given]

    async def _of_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = str(writer.get_extra_info("peername")[0])
        passing = asyncio.ensure_future(self._pass(reader, writer))
        # Whoever has to make place loses both connections at once: the other one is an open file as well.
        with self.connections.place(source, passing.cancel) as is_free:
            try:
                if is_free:
                    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
                        await asyncio.wait_for(passing, PASS_SECONDS)
            finally:
                passing.cancel()
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connecting = asyncio.open_connection(self._host, self._port, limit=_PIECE_BYTES)
        far_reader, far_writer = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, and that nothing more comes."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):  # The other end has gone already.
        writer.write_eof()
