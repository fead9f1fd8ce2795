"""The world of loops that call providers."""

from collections.abc import Mapping
from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from providers.base import Provider
from reconciler.worlds.accounts import AccountWorld


@dataclass(frozen=True, kw_only=True)
class ProviderWorld(AccountWorld):
    accounts: Mapping[AccountName, Provider]
    """The connected providers, each behind `providers/guard.py`."""
    orphans_dry_run: bool = False
    """Whether orphans are only reported and never terminated."""
