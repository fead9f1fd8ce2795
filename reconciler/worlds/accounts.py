"""The world of loops that run for each provider account without calling the provider."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from reconciler.world import World


async def nothing_to_refresh() -> None:
    """The accounts of this world never change."""


@dataclass(frozen=True, kw_only=True)
class AccountWorld(World):
    account_names: Collection[AccountName]
    """The accounts that are configured and on. An account loop runs for each of them. Operators add and remove some
    while the process runs."""
    refresh_accounts: Callable[[], Awaitable[None]] = nothing_to_refresh
    """Take over what operators changed about the accounts since the last time."""
    installation: str
    """The eight hexadecimal digits in every launch key of this database."""
