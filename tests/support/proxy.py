"""A database server over TCP that can stand still: a relay in front of the test server's socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

BYTES_MAX = 65_536


@dataclass
class Proxy:
    url: str
    """The database behind the relay, over TCP."""
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: nothing is relayed, as with a server whose processes are stopped. Connections can still be opened."""


@asynccontextmanager
async def proxied(database_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(database_url)
    path = f"{unquote(parse_qs(parts.query)['host'][0])}/.s.PGSQL.5432"
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            there, back = await asyncio.open_unix_connection(path)
            both = [asyncio.create_task(_copy(*way)) for way in ((reader, back), (there, writer))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                back.close()
        writer.close()

    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(BYTES_MAX):
            await made.flows.wait()
            target.write(data)
            await target.drain()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = Proxy(f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}")
    made.flows.set()
    try:
        yield made
    finally:
        server.close()
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
