"""The relay of samples on the server of a cluster, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from data_plane.heartbeats.collector import relay
from data_plane.heartbeats.collector.relay import CONNECTIONS_OF_ONE_MAX, Relay

HOST = "127.0.0.1"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when everything has come."""
    writer.write(b"got " + await reader.read())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _relayed(port: int) -> AsyncIterator[int]:
    """The port at which a relay to `port` listens."""
    given = socket.create_server((HOST, 0))
    servers = await Relay(HOST, port).listen([given])
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


async def _is_closed_on(port: int) -> bool:
    async with _connected(port) as (reader, _):
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
            for _ in range(CONNECTIONS_OF_ONE_MAX):
                _, writer = await held.enter_async_context(_connected(port))
                writer.write(b"held")
            await asyncio.sleep(0.2)  # Real sockets take real time.
            assert await _is_closed_on(port)
            assert await _answer(port, b"of another node", "127.0.0.2") == b"got of another node"
        await asyncio.sleep(0.2)
        assert await _answer(port, b"later") == b"got later", "a connection that has ended counts no more"


async def test_who_holds_a_connection_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "PASS_SECONDS", 0.3)
    async with await asyncio.start_server(_echo, HOST, 0) as ingest, _relayed(_port(ingest)) as port:
        assert await _is_closed_on(port)


async def test_without_an_ingest_process_the_connection_is_closed() -> None:
    with socket.create_server((HOST, 0)) as nobody:
        port_of_nobody = int(nobody.getsockname()[1])
    async with _relayed(port_of_nobody) as port:
        assert await _is_closed_on(port)
