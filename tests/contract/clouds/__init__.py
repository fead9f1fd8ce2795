"""One world around each provider, so that one suite of laws runs over all of them.

A new provider adds one module here with `make() -> Cloud`; the roster test fails until it does.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from uuid import UUID

from control_plane.domain.ids import LaunchKey, ProviderRef, launch_key
from providers.base import LaunchOrder, Provider
from tests.support.clock import Clock

INSTALLATION = "0a1b2c3d"
USER_DATA_SECRET = "hunter2-bootstrap-token"


def a_key(number: int = 1) -> LaunchKey:
    return launch_key(INSTALLATION, UUID(int=number))


class Cloud(ABC):
    """A provider under test, its clock, and everything that may befall it."""

    name: str
    provider: Provider
    clock: Clock
    secret: str | None = None
    """The account's key, planted; it must never show."""
    native_type: str
    native_region: str
    absent_ref = ProviderRef("f" * 32)
    seconds_to_run: float = 0.0
    seconds_to_be_gone: float = 0.0
    """From an accepted terminate until the provider says GONE or shows nothing."""

    def order(self, number: int = 1, *, user_data: str | None = None) -> LaunchOrder:
        return LaunchOrder(
            launch_key=a_key(number),
            native_type=self.native_type,
            native_region=self.native_region,
            user_data=f"#cloud-config\n# {USER_DATA_SECRET}\n" if user_data is None else user_data,
            ssh_public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T reconciler",
        )

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # What is behind the provider, seen from its side.

    @abstractmethod
    def ever(self, key: LaunchKey) -> int:
        """Machines that ever lived under this key."""

    @abstractmethod
    def alive(self, key: LaunchKey) -> int:
        """Machines under this key that run or will, listed or not."""

    @abstractmethod
    async def plant_a_strangers_machine(self) -> None:
        """A machine in our account without our mark."""

    # Weather. Each speaks of the next call of the verb.

    @abstractmethod
    def lose_the_answer(self, verb: str) -> None:
        """It happens, and the connection is cut before we hear."""

    @abstractmethod
    def spoil_the_answer(self, verb: str) -> None:
        """It happens, and what we hear is an internal error."""

    @abstractmethod
    def sell_out(self) -> None:
        """No more of `native_type` in `native_region`."""

    @abstractmethod
    def refuse_though_listed(self) -> None:
        """The next launch is refused for capacity, whatever the offers say."""

    @abstractmethod
    def throttle(self, verb: str) -> None: ...

    @abstractmethod
    def break_the_list(self) -> None:
        """The next listing fails half way."""

    @abstractmethod
    def refuse_terminate(self) -> None: ...

    @abstractmethod
    def speak_an_odd_word(self, ref: ProviderRef) -> None:
        """The next listing shows this machine with a status that no specification has."""

    @abstractmethod
    def never_boot(self) -> None:
        """The next launch is accepted and never runs."""

    @abstractmethod
    def revoke_the_key(self) -> None: ...

    @abstractmethod
    def cut_the_line(self) -> None:
        """From now on no request leaves us."""


def clouds() -> dict[str, Callable[[], Cloud]]:
    found: dict[str, Callable[[], Cloud]] = {}
    for entry in pkgutil.iter_modules(__path__):
        found[entry.name] = importlib.import_module(f"{__name__}.{entry.name}").make
    return found
