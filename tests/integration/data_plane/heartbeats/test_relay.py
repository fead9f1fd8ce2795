"""The relay of samples on the server of a cluster, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from data_plane.heartbeats.collector import relay
from data_plane.heartbeats.collector.connections import OF_ONE_NODE_MAX
from data_plane.heartbeats.collector.relay import Relay

HOST = "127.0.0.1"
NODES = IPv4Network("127.0.0.0/24")
POD = "127.0.1.7"
"""An address that the tunnel of a node lets through, and that is no node's."""


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when everything has come."""
    writer.write(b"got " + await reader.read())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _relayed(port: int) -> AsyncIterator[int]:
    """The port at which a relay to `port` listens."""
    given = socket.create_server((HOST, 0))
    servers = await Relay(HOST, port, NODES).listen([given])
    try:
        yield given.getsockname()[1]
    finally:
        for server in servers:
            server.close()


@asynccontextmanager
async def _connected(
    port: int, source: str = HOST
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _answer(port: int, sent: bytes, source: str = HOST) -> bytes:
    async with _connected(port, source) as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)


async def _is_closed_on(port: int, source: str = HOST) -> bool:
    async with _connected(port, source) as (reader, _):
        try:
            return await asyncio.wait_for(reader.read(), 10) == b""
        except ConnectionResetError:
            return True


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def test_bytes_pass_both_ways_and_so_does_their_end() -> None:
    async with await asyncio.start_server(_echo, HOST, 0) as ingest, _relayed(_port(ingest)) as port:
        sent = b"x" * 300_000
        assert await _answer(port, sent) == b"got " + sent


async def test_one_node_cannot_use_up_the_connections_of_the_others() -> None:
    async with await asyncio.start_server(_echo, HOST, 0) as ingest, _relayed(_port(ingest)) as port:
        async with AsyncExitStack() as held:
            for _ in range(OF_ONE_NODE_MAX):
                _, writer = await held.enter_async_context(_connected(port))
                writer.write(b"held")
            await asyncio.sleep(0.2)  # Real sockets take real time.
            assert await _is_closed_on(port)
            assert await _answer(port, b"of another node", "127.0.0.2") == b"got of another node"
        await asyncio.sleep(0.2)
        assert await _answer(port, b"later") == b"got later", "a connection that has ended counts no more"


def _connections_to(port: int) -> int:
    """How many open files of processes are connected to a port, half closed connections among them."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # The other end, and the inode, which is 0 once the process has closed it. While others come and go, the kernel may list
    # a socket twice.
    return len({each[9] for each in sockets if int(each[2].partition(":")[2], 16) == port} - {"0"})


async def test_whoever_has_most_makes_place_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CONNECTIONS_MAX", OF_ONE_NODE_MAX)

    over = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.transport.abort()  # Nobody else would: a connection that only its other end has closed stays half open.

    async with AsyncExitStack() as held:
        held.callback(over.set)
        ingest = await held.enter_async_context(await asyncio.start_server(say_nothing, HOST, 0))
        port = await held.enter_async_context(_relayed(_port(ingest)))
        first, *_ = [await held.enter_async_context(_connected(port)) for _ in range(OF_ONE_NODE_MAX)]
        await asyncio.sleep(0.2)
        assert _connections_to(_port(ingest)) == OF_ONE_NODE_MAX
        await held.enter_async_context(_connected(port, "127.0.0.2"))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(first[0].read(), 10) == b"", "the oldest one is ended"
        await asyncio.sleep(0.2)
        assert _connections_to(_port(ingest)) == OF_ONE_NODE_MAX, "and so is its other end"


async def test_a_node_gets_no_connection_from_the_addresses_of_its_pods() -> None:
    async with await asyncio.start_server(_echo, HOST, 0) as ingest, _relayed(_port(ingest)) as port:
        assert await _is_closed_on(port, POD)
        assert await _answer(port, b"of a node") == b"got of a node"


async def test_who_holds_a_connection_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "PASS_SECONDS", 0.3)
    async with await asyncio.start_server(_echo, HOST, 0) as ingest, _relayed(_port(ingest)) as port:
        assert await _is_closed_on(port)


async def test_without_an_ingest_process_the_connection_is_closed() -> None:
    with socket.create_server((HOST, 0)) as nobody:
        port_of_nobody = int(nobody.getsockname()[1])
    async with _relayed(port_of_nobody) as port:
        assert await _is_closed_on(port)
