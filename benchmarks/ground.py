"""What the benchmarks share: a durable embedded PostgreSQL, a customer, a price book."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from control_plane.db import embedded
from control_plane.db.engine import Database
from control_plane.db.engine import Role as DatabaseRole
from control_plane.db.migrate import migrate
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import Approval
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.request import CapacityRequest
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION
from control_plane.services import api_keys, catalogue, leases, ledger, organizations
from control_plane.services.leases import WantedLease
from control_plane.world import World, uuid7

SKU = "h100-sxm.1x"
_SERVER = Path("var/bench/postgres")


async def empty_database(name: str) -> str:
    """A migrated, empty database; durable commits (fsync on), as in production. Returns its URL."""
    url = await blank_database(name)
    await migrate(url)
    await make_logins(url)
    return url


async def blank_database(name: str) -> str:
    """The same without tables, for a peer. Returns its URL."""
    server = await asyncio.to_thread(embedded.start, _SERVER)
    await asyncio.to_thread(embedded.recreate, server, name)
    return embedded.named(server, name)


async def make_logins(url: str) -> None:
    """Make the logins of the processes; a process refuses a superuser's."""
    for role in (DatabaseRole.API, DatabaseRole.RECONCILER, DatabaseRole.INGEST):
        await embedded.create_login(url, _login(role), role)


def login_url(url: str, role: DatabaseRole) -> str:
    """The URL of the database for a process in this role."""
    return embedded.with_login(url, _login(role))


def _login(role: DatabaseRole) -> str:
    return f"bench_{role.removeprefix('splitplane_')}"


def postmaster() -> int:
    """The id of the server's process."""
    return int((_SERVER / "postmaster.pid").read_text().split()[0])


def server_cpu() -> float:
    """The CPU seconds of the server so far: of all of its processes, and of those that have ended."""
    server = psutil.Process(postmaster())
    own = server.cpu_times()
    spent = own.user + own.system + own.children_user + own.children_system
    for process in server.children():
        with suppress(psutil.NoSuchProcess):  # It ended meanwhile.
            times = process.cpu_times()
            spent += times.user + times.system
    return float(spent)


def stop() -> None:
    """Stop the server, if any benchmark needed one."""
    if (_SERVER / "postmaster.pid").exists():
        embedded.stop(_SERVER)


@asynccontextmanager
async def customer(url: str) -> AsyncIterator[tuple[World, OrganizationId, str]]:
    """An organization that can afford everything, and its API key."""
    database = Database(url, role=None, pool_size=16)
    world = World(database)
    organization_id = OrganizationId(uuid7())
    async with database.transaction() as connection:
        await organizations.create(
            connection, world, organization_id, f"bench-{organization_id.hex}", gpu_quota=10**6
        )
        await catalogue.load_price_book(connection, world, book())
        await ledger.top_up(
            connection,
            world,
            organization_id,
            Nano(10**8 * NANO_PER_USD),
            key=organization_id.hex,
            approval=Approval("administrator", "benchmark"),
        )
        account = await organizations.create_first_account(
            connection, world, organization_id, "bench", role=Role.OWNER, scope=ORGANIZATION
        )
        issued = await api_keys.issue(connection, world, organization_id, account.subject, name="bench")
    yield world, organization_id, issued.secret
    await database.close()


def book() -> list[ListPrice]:
    """The shipped price book, without demanding proof, because simulated machines cannot prove anything."""
    shipped = catalogue.parse_price_book(Path("control_plane/price_book.toml").read_text())
    return [replace(price, sku=replace(price.sku, proof=Tier.LISTED)) for price in shipped]


async def order(world: World, organization_id: OrganizationId, count: int) -> None:
    """Create leases through the service, eight at a time."""
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with gate, world.db.transaction(organization_id) as connection:
            await leases.create(
                connection,
                world,
                organization_id,
                WantedLease(CapacityRequest(SKU), f"n{number}", ssh_key_ids=[]),
                actor=Actor(ActorKind.CUSTOMER, "bench"),
                reach=EVERYWHERE,
            )

    await asyncio.gather(*map(one, range(count)))
