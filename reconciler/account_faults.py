"""Marks an account as failing when what it lists cannot be taken in, so that no operator reads a healthy account."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol

from control_plane.db.connection import Connection
from control_plane.domain.ids import AccountName
from reconciler.world import World


class RecordFailure(Protocol):
    """A query of `db/accounts.py` that stores why an account fails."""

    def __call__(
        self, connection: Connection, name: AccountName, /, *, why: str, now: datetime
    ) -> Awaitable[None]: ...


async def store(world: World, account: AccountName, record: RecordFailure, why: str) -> None:
    """Store why an account fails, in a transaction of its own."""
    async with world.db.transaction() as connection:
        await record(connection, account, why=why, now=world.now())


@asynccontextmanager
async def marked(world: World, account: AccountName, record: RecordFailure, what: str) -> AsyncIterator[None]:
    """Mark the account as failing when the block raises. The error goes on to the loop's report, with its text.

    The mark has only the error's type, because its text may hold parts of our database, and customers read why nothing
    is bought at an account. `what` says what could not be done.
    """
    try:
        yield
    except Exception as error:
        await store(world, account, record, f"{what}: {type(error).__name__}")
        raise
