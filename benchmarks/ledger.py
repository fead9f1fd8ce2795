"""Ledger transactions a second with durable commits, by 1 and by 4 clients, beside django-hordak on the same server.

A client is a process with one connection. It pays a dollar into the wallet of a random customer, in a database
transaction of its own: here it locks the customer's standing and calls `ledger.post`, as everything does that posts, in
the role of the API and under row-level security, and there it calls `Account.transfer_to`. In both, the database
refuses a transaction that does not sum to zero: ours at the end of each statement, theirs at the commit. Ours also
numbers transactions, keeps the balances after each, refuses a second transaction with the same key, and books each one
in a period that is open. The two take turns, so that other work on the machine slows both.

Ours is also measured with several transactions of a customer in each commit, as `rate_usage` posts charges.
"""

import asyncio
import json
import random
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import uvloop
from sqlalchemy import text

from benchmarks import ground, peer
from benchmarks.results import Figure, median
from control_plane.db import ledger
from control_plane.db.engine import Database, Role
from control_plane.db.organizations import lock_standings
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import Approval, top_up
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.services import organizations
from control_plane.world import World, uuid7
from tests.support.rows import rows

CUSTOMERS = 50
CLIENTS = (1, 4)
ROUNDS = 7
SECONDS = 2.0
TOGETHER = 100
"""Transactions in a commit, where there are several."""
_HERE = Path(__file__).parent
_DOLLAR = Nano(NANO_PER_USD)
_PAID = Approval("administrator", "benchmark")
_DURABLE = text("SELECT current_setting('fsync') || ' ' || current_setting('synchronous_commit') AS settings")
_BOOKS = text("""
SELECT (SELECT count(*) FROM transactions) AS posted, (SELECT sum(amount_nano) FROM postings) AS difference,
       (SELECT sum(posted_nano) FROM standings) = (
         SELECT sum(p.amount_nano) FROM postings p JOIN ledger_accounts a ON a.id = p.account_id WHERE a.kind = 'wallet'
       ) AS balances_agree
""")


@dataclass(frozen=True, slots=True)
class _Ledger:
    """One of the ledgers that are compared."""

    name: str
    client: Sequence[str]
    """The command of a client."""


class _Client:
    """A process that posts transactions for as long as it is told to."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ready(self) -> None:
        answer = await self._line()
        if answer != b"ready\n":
            raise RuntimeError(f"a client does not begin: {answer!r}")

    async def post(self, seconds: float) -> tuple[int, float]:
        """Returns how many transactions were committed, and in how many seconds."""
        if self._process.stdin is None:
            raise RuntimeError("a client has no input")
        self._process.stdin.write(f"{seconds}\n".encode())
        await self._process.stdin.drain()
        answer = json.loads(await self._line())
        return answer["posted"], answer["seconds"]

    async def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> bytes:
        if self._process.stdout is None:
            raise RuntimeError("a client has no output")
        return await self._process.stdout.readline()


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_ledger")
    ids = await _prepare(url)
    client = [sys.executable, "-m", "benchmarks.ledger", ground.login_url(url, Role.API)]
    ours, together = (
        _Ledger(name, [*client, str(count), *map(str, ids)])
        for name, count in (("ours", 1), (f"ours, {TOGETHER} in a commit", TOGETHER))
    )
    peers = await _peers()
    compared = [ours, *peers, together]
    rates = await _rates(compared)
    await _check(url)
    figures = [_figure(one.name, count, rates[one.name, count]) for one in compared for count in CLIENTS]
    ratios = [
        _ratio(one.name, count, rates[ours.name, count], rates[one.name, count])
        for one in peers
        for count in CLIENTS
    ]
    return figures + ratios


async def _peers() -> list[_Ledger]:
    """django-hordak with its accounts; none when it cannot be installed."""
    python = await asyncio.to_thread(peer.interpreter, _HERE / "ledger-peer.lock")
    if python is None:
        return []
    program = [str(python), str(_HERE / "ledger_hordak.py")]
    url = await ground.blank_database("bench_ledger_hordak")
    await asyncio.to_thread(subprocess.run, [*program, "prepare", url, str(CUSTOMERS)], check=True)
    return [_Ledger("django-hordak", [*program, "serve", url])]


async def _prepare(url: str) -> list[OrganizationId]:
    """Make the customers."""
    database = Database(url, role=None, pool_size=8)
    world = World(database)
    ids = [OrganizationId(uuid7()) for _ in range(CUSTOMERS)]
    async with database.transaction() as connection:
        for number, organization_id in enumerate(ids):
            await organizations.create(connection, world, organization_id, f"bench-{number}")
        (durable,) = await rows(connection, _DURABLE)
    await database.close()
    if durable.settings != "on on":
        raise RuntimeError(f"commits are not durable: fsync and synchronous_commit are {durable.settings}")
    return ids


async def _rates(compared: Sequence[_Ledger]) -> dict[tuple[str, int], list[float]]:
    """Transactions a second of every round, by ledger and number of clients."""
    clients = {one.name: [await _start(one) for _ in range(max(CLIENTS))] for one in compared}
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for count in CLIENTS:
            for one in compared:
                posted = await asyncio.gather(*(client.post(SECONDS) for client in clients[one.name][:count]))
                rates.setdefault((one.name, count), []).append(sum(done / took for done, took in posted))
    await asyncio.gather(*(client.stop() for some in clients.values() for client in some))
    return rates


async def _start(one: _Ledger) -> _Client:
    client = _Client(await asyncio.create_subprocess_exec(*one.client, stdin=PIPE, stdout=PIPE))
    await client.ready()
    return client


async def _check(url: str) -> None:
    """Raises RuntimeError unless the books add up."""
    database = Database(url, role=None)
    async with database.reading() as connection:
        (found,) = await rows(connection, _BOOKS)
    await database.close()
    if found.difference != 0 or not found.balances_agree:
        raise RuntimeError(f"the books do not add up: {found}")


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


def _figure(name: str, count: int, rates: Sequence[float]) -> Figure:
    note = f"{min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} rounds"
    return Figure(f"{name}, {_clients(count)}", median(rates), "txn/s", note=note)


def _ratio(name: str, count: int, ours: Sequence[float], peers: Sequence[float]) -> Figure:
    ratios = [rate / peers_rate for rate, peers_rate in zip(ours, peers, strict=True)]
    note = f"{min(ratios):.1f} to {max(ratios):.1f} in {len(ratios)} rounds"
    return Figure(f"ours to {name}, {_clients(count)}", median(ratios), "times", ">= 2", note)


async def _serve(url: str, together: int, ids: Sequence[OrganizationId]) -> None:
    """Post for as many seconds as each line of the input says, so many transactions in each commit."""
    database = Database(url, role=Role.API, pool_size=1, readers=1)
    world = World(database)
    await _post(world, ids, together)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        posted, begun = 0, time.perf_counter()
        until = begun + float(line)
        while time.perf_counter() < until:
            await _post(world, ids, together)
            posted += together
        print(json.dumps({"posted": posted, "seconds": time.perf_counter() - begun}), flush=True)
    await database.close()


async def _post(world: World, ids: Sequence[OrganizationId], together: int) -> None:
    """Pay a dollar into the wallet of one of these customers, so many times. Returns after the commit."""
    customer, now = random.choice(ids), world.now()
    paid = [
        (world.new_id(), top_up(customer, _DOLLAR, key=uuid7().hex, at=now, approval=_PAID))
        for _ in range(together)
    ]
    async with world.db.transaction(customer) as connection:
        await lock_standings(connection, [customer])
        posted = await ledger.post(connection, paid, now=now)
    if len(posted) != together:
        raise RuntimeError(f"{len(posted)} of {together} transactions were posted")


if __name__ == "__main__":
    # As the processes of the product run.
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2]), [OrganizationId(UUID(each)) for each in sys.argv[3:]]))
