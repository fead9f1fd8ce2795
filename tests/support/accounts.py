"""Accounts at a provider that checks keys, for tests of how operators add and change accounts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from control_plane.domain.child import Child
from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import (
    Capabilities,
    LaunchOrder,
    Listed,
    Provider,
    Sighting,
    Unauthorized,
    Unavailable,
)
from providers.fake import CAPABILITIES, FakeProvider
from providers.registry import AccountOffError, UnknownProviderError
from tests.support.clock import Clock


@dataclass
class Keyring:
    """The accounts there are, by the keys that open them."""

    clock: Clock
    accounts: dict[str, FakeProvider] = field(default_factory=dict[str, FakeProvider])
    away: bool = False
    """Nobody answers."""
    closed: int = 0
    """How many connections were closed."""

    def account(self, key: str) -> FakeProvider:
        """A new account that this key opens."""
        self.accounts[key] = FakeProvider(now=self.clock.now)
        return self.accounts[key]

    def connect(self, name: AccountName, given: Mapping[str, str]) -> Provider:
        provider = name.partition("/")[0]
        if provider != "fake":
            raise UnknownProviderError(f"no provider for account {name!r}; there are fake")
        if set(given) != {"api_key"}:
            raise AccountOffError(f"{name}: fake takes only api_key")
        return _Keyed(self, given["api_key"])


@dataclass
class _Keyed:
    """A connection with one key. The provider quotes no key in its errors, as the port demands."""

    ring: Keyring
    key: str = field(repr=False)
    capabilities: Capabilities = CAPABILITIES

    def _account(self) -> FakeProvider:
        if self.ring.away:
            raise Unavailable("the connection was refused")
        if self.key not in self.ring.accounts:
            raise Unauthorized("invalid API key", code="global/invalid-api-key")
        return self.ring.accounts[self.key]

    async def offers(self) -> tuple[Listed, ...]:
        return await self._account().offers()

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        return await self._account().launch(order)

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self._account().inventory()

    async def terminate(self, provider_ref: ProviderRef) -> None:
        await self._account().terminate(provider_ref)

    async def children(self) -> tuple[Child, ...]:
        return await self._account().children()

    async def delete_child(self, child: Child) -> None:
        await self._account().delete_child(child)

    async def close(self) -> None:
        self.ring.closed += 1
