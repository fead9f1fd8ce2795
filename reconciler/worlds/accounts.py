"""The world of loops that run for each provider account without calling the provider."""

from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from reconciler.world import World


@dataclass(frozen=True, kw_only=True)
class AccountWorld(World):
    account_names: tuple[AccountName, ...]
    """The accounts that are configured and on. An account loop runs for each of them."""
    installation: str
    """The eight hexadecimal digits in every launch key of this database."""
