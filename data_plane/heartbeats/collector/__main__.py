"""The collector's command line, on the hub.

    collector.pyz collect FOLDER [NODES]  answers agents at FOLDER/reports, and the reconciler at FOLDER/exchange
    collector.pyz exchange FOLDER         passes a request from standard input to the collector, and prints its answer
    collector.pyz relay HOST PORT NODES FOLDER  passes on connections to the ingest process (relay.py)

NODES is the range of the addresses of nodes in their overlay, such as 10.64.16.0/20.

systemd makes the folder and listens for agents (`heartbeats/scripts.py`): on the hub in the namespace of each network,
with a proxy to FOLDER/reports; on the server of a cluster at its address in the overlay, at a socket that is handed to
this process. Whoever may open `exchange` decides who is believed, so only its owner and root may.
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from data_plane.documents import strict
from data_plane.documents.heartbeat import LINE_BYTES_MAX, encode
from data_plane.heartbeats.collector import exchange, sources
from data_plane.heartbeats.collector.connections import Connections
from data_plane.heartbeats.collector.mailbox import Mailbox
from data_plane.heartbeats.collector.relay import Relay
from data_plane.heartbeats.collector.sources import Holders

USAGE = "usage: collector.pyz collect FOLDER [NODES] | exchange FOLDER | relay HOST PORT NODES FOLDER\n"
AGENT_SECONDS = 10
"""For a whole delivery, from the connection to its answer."""
CONNECTIONS_MAX = 768
"""At a time. With what Python needs, they are within the 1,024 files that a process may open."""
HOLDERS_SECONDS = 15
"""How often the relay reads whose nodes are whose."""
_CREDENTIALS = struct.Struct("3i")
"""SO_PEERCRED, unix(7): the process, the user and the group at the other end."""
_FIRST_FILE = 3
"""Of those that systemd hands over: sd_listen_fds(3)."""
EXCHANGE_SECONDS = 15

Answered = Callable[[bytes], bytes]


class Collector:
    """Answers a line for each connection, and closes it."""

    def __init__(self, folder: Path, nodes: "IPv4Network | None" = None) -> None:
        """`nodes`: the addresses of nodes in their overlay; None on the hub, where agents come through proxies."""
        self._folder = folder
        self._mailbox = Mailbox()
        self._connections = Connections(CONNECTIONS_MAX, nodes)
        self._holders = Holders(folder)

    async def listen(self, given: "Sequence[socket.socket]" = ()) -> "list[asyncio.AbstractServer]":
        """Serve at the two sockets in the folder, and agents also at those that were given."""
        return [
            await _listen(self._folder / "reports", 0o666, self._of_agents, LINE_BYTES_MAX),
            await _listen(self._folder / "exchange", 0o600, self._of_reconciler, exchange.REQUEST_BYTES_MAX),
            *[await asyncio.start_server(self._of_agents, sock=each, limit=LINE_BYTES_MAX) for each in given],
        ]

    async def _of_agents(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._connections.place(_source(writer), writer.transport.abort) as is_free:
            if is_free:
                await _answer_line(reader, writer, self._delivered, AGENT_SECONDS)
            else:
                writer.transport.abort()

    async def _of_reconciler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer_line(reader, writer, self._exchanged, EXCHANGE_SECONDS)

    def _delivered(self, line: bytes) -> bytes:
        return encode(self._mailbox.deliver(line, time.monotonic()))

    def _exchanged(self, line: bytes) -> bytes:
        request = exchange.read_request(line)
        self._connections.belong(self._holders.written(request.holders))
        return exchange.encode(self._mailbox.exchange(request.known, time.monotonic()))


async def _answer_line(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: Answered, seconds: float
) -> None:
    """One line in, one line out. Whoever is too slow, sends too much or breaks off gets no answer."""

    async def talk() -> None:
        writer.write(answered(await reader.readline()))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    # ValueError: the line is longer than the reader's limit.
    with contextlib.suppress(asyncio.TimeoutError, OSError, ValueError, strict.Malformed):
        await asyncio.wait_for(talk(), seconds)
    writer.transport.abort()


async def _listen(
    path: Path,
    mode: int,
    serve: "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]",
    bytes_max: int,
) -> asyncio.AbstractServer:
    return await asyncio.start_unix_server(serve, sock=_bound(path, mode), limit=bytes_max)


def _source(writer: asyncio.StreamWriter) -> str:
    """The address that a connection comes from, or the network whose proxy it comes through."""
    peer = writer.get_extra_info("peername")
    if isinstance(peer, tuple):
        return str(peer[0])
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    return sources.of_process(_CREDENTIALS.unpack(credentials)[0])


def _bound(path: Path, mode: int) -> socket.socket:
    path.unlink(missing_ok=True)  # Left by a collector that was killed.
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o177)  # So that nobody else can open it before its mode is set.
    listener.bind(os.fspath(path))
    path.chmod(mode)
    return listener


def _handed_over() -> "list[socket.socket]":
    """The sockets at which systemd listens for this process."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    return [socket.socket(fileno=_FIRST_FILE + n) for n in range(int(os.environ.get("LISTEN_FDS", "0")))]


async def collect(folder: Path, nodes: "IPv4Network | None") -> None:
    await Collector(folder, nodes).listen(_handed_over())
    await asyncio.Event().wait()


async def relay(host: str, port: int, nodes: IPv4Network, folder: Path) -> None:
    passing, holders = Relay(host, port, nodes), Holders(folder)
    await passing.listen(_handed_over())
    while True:
        passing.connections.belong(holders.read())
        await asyncio.sleep(HOLDERS_SECONDS)


def pass_on(folder: Path) -> int:
    """Pass a line from standard input to the collector, and its answer to standard output."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(EXCHANGE_SECONDS)
        line.connect(os.fspath(folder / "exchange"))
        line.sendall(sys.stdin.buffer.read())
        with line.makefile("rb") as answers:
            answer = answers.readline()
    sys.stdout.buffer.write(answer)
    return 0 if answer.endswith(b"\n") else 1


def main(arguments: "list[str]") -> int:
    match arguments:
        case ["collect", folder, *nodes] if len(nodes) <= 1:
            asyncio.run(collect(Path(folder), IPv4Network(nodes[0]) if nodes else None))
            return 0
        case ["exchange", folder]:
            return pass_on(Path(folder))
        case ["relay", host, port, nodes, folder] if port.isdecimal():
            asyncio.run(relay(host, int(port), IPv4Network(nodes), Path(folder)))
            return 0
    sys.stderr.write(USAGE)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
