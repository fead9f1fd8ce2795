"""The world of the loop that does what operators ask for concerning provider accounts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from control_plane.domain.ids import AccountName
from providers.base import Provider
from reconciler.worlds.providers import ProviderWorld
from reconciler.worlds.secrets import SecretWorld

Connect = Callable[[AccountName, Mapping[str, str]], Provider]
"""Makes a provider, behind `providers/guard.py`, of an account's name and its settings. The caller closes it. Raises
AccountOffError for settings that cannot be used, and ValueError for a provider that does not exist."""


def no_connection(name: AccountName, given: Mapping[str, str]) -> Provider:
    """For worlds in which no account is added."""
    raise ValueError(f"no provider for account {name!r}, which has {len(given)} settings")


@dataclass(frozen=True, kw_only=True)
class RequestWorld(ProviderWorld, SecretWorld):
    connect: Connect = no_connection
