"""What loops need that ask providers."""

from collections.abc import Mapping
from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from providers.base import Provider
from reconciler.worlds.accounts import AccountWorld


@dataclass(frozen=True, kw_only=True)
class ProviderWorld(AccountWorld):
    accounts: Mapping[AccountName, Provider]
    """Connected, and guarded by `providers/guard.py`."""
    orphans_dry_run: bool = False
    """Whether orphans are only reported."""
