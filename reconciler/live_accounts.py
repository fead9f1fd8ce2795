"""The provider accounts of a running process: those of its environment, and those whose credentials operators stored.

`refresh` takes over what changed in the database since the last time, so that nobody restarts a reconciler for a new
account or a new key. What the environment says of an account counts until operators store credentials for it, and never
again afterwards: not when the account was removed, and not in a process that starts while they cannot be opened. An
account whose new credentials cannot be opened keeps what it had in a process that had it, and is shown as failing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime

import structlog

from control_plane.db import account_requests, accounts
from control_plane.db.account_requests import StoredAccount
from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName
from control_plane.vault.errors import KeyManagerError
from control_plane.vault.unsealing.port import KeyManager
from providers.base import Provider
from providers.registry import AccountOffError
from reconciler.credentials import settings_of
from reconciler.worlds.requests import Connect

CLOSED_AFTER_SECONDS = 120.0
"""How long a provider that was replaced stays connected, for the calls that are under way."""

log = structlog.get_logger()


class LiveAccounts(Mapping[AccountName, Provider]):
    def __init__(
        self,
        db: Database,
        now: Callable[[], datetime],
        keys: KeyManager | None,
        connect: Connect,
        environment: Mapping[AccountName, Provider],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._db = db
        self._now = now
        self._keys = keys
        self._connect = connect
        self._environment = dict(environment)
        self._began = False
        self._stored: dict[AccountName, tuple[int, Provider]] = {}
        self._failed: dict[AccountName, int] = {}
        """Versions that could not be used, so that each is logged once."""
        self._sleep = sleep
        self._closing: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: AccountName) -> Provider:
        stored = self._stored.get(name)
        return self._environment[name] if stored is None else stored[1]

    def __iter__(self) -> Iterator[AccountName]:
        yield from sorted({*self._environment, *self._stored})

    def __len__(self) -> int:
        return len({*self._environment, *self._stored})

    async def refresh(self) -> None:
        """Take over additions, rotations and removals. Raises what the database raises."""
        async with self._db.reading() as connection:
            listed = {account.name: account for account in await account_requests.stored(connection)}
            taken_over = await account_requests.taken_over(connection)
        for name in [name for name in self._stored if name not in listed]:
            self._retire(self._stored.pop(name)[1])
            log.info("account_removed", account=name)
        for account in listed.values():
            known = self._stored.get(account.name)
            if known is None or known[0] != account.version:
                await self._load(account)
        for name in self._environment.keys() & set(taken_over):
            if name in self._stored or name not in listed or not self._began:
                # Whoever connected it closes it, at the end of the process.
                del self._environment[name]
                log.info(
                    "account_of_environment_ignored", account=name, why="operators stored its credentials"
                )
        self._began = True

    async def close(self) -> None:
        """Close all connections to stored accounts."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for _, provider in self._stored.values():
            await provider.close()

    async def _load(self, account: StoredAccount) -> None:
        try:
            provider = self._connect(account.name, await settings_of(self._db, self._keys, account.secret_id))
        except (KeyManagerError, AccountOffError, ValueError) as error:
            await self._note(account, f"{type(error).__name__}: {error}")
            return
        if account.name in self._stored:
            self._retire(self._stored[account.name][1])
        self._stored[account.name] = account.version, provider
        self._failed.pop(account.name, None)
        log.info("account_loaded", account=account.name, version=account.version)

    async def _note(self, account: StoredAccount, why: str) -> None:
        if self._failed.get(account.name) == account.version:
            return
        log.error("account_not_loaded", account=account.name, version=account.version, why=why)
        async with self._db.transaction() as connection:
            await accounts.record_failure(
                connection, account.name, why=f"Its credentials cannot be used: {why}", now=self._now()
            )
        self._failed[account.name] = account.version

    def _retire(self, provider: Provider) -> None:
        """Close a provider when the calls that may be under way have ended."""
        task = asyncio.create_task(self._close_later(provider), name="close provider")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_later(self, provider: Provider) -> None:
        try:
            await self._sleep(CLOSED_AFTER_SECONDS)
        finally:
            await provider.close()
