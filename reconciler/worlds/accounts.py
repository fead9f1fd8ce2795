"""What loops need that run for each provider account, without reaching the provider."""

from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from reconciler.world import World


@dataclass(frozen=True, kw_only=True)
class AccountWorld(World):
    account_names: tuple[AccountName, ...]
    """Accounts that are configured and on. An account loop runs for each of them."""
    installation: str
    """The eight digits in every launch key of this database."""
