"""A test cloud around each provider, so that one suite of laws runs over all of them.

A new provider adds one module here with `make() -> Cloud`; the roster test fails until it does. For
a provider with an emulator that module is a subclass of EmulatedCloud (HTTP) or ScriptedCloud (any other client),
which have the faults already.
"""

import importlib
import json
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import httpx
from litestar import Litestar

from control_plane.domain.ids import LaunchKey, ProviderRef, launch_key
from control_plane.domain.ingress import Ingress
from providers.base import LaunchOrder, Provider, Verb
from providers.emulators.scenario import EmulatorTransport, FaultKind, Scenario
from tests.support.clock import Clock

INSTALLATION = "0a1b2c3d"
USER_DATA_SECRET = "hunter2-bootstrap-token"
UNKNOWN_STATUS = "daydreaming"
"""A status word that no specification has."""


def a_key(number: int = 1) -> LaunchKey:
    return launch_key(INSTALLATION, UUID(int=number))


class Cloud(ABC):
    """A provider under test, its clock, and the faults that can be injected into it."""

    name: str
    provider: Provider
    clock: Clock
    secret: str | None = None
    """The account's key, planted; it must never show."""
    native_type: str
    native_region: str
    absent_ref = ProviderRef("f" * 32)
    seconds_to_run: float = 0.0
    ends_while_creating = True
    """Whether a machine can be ended before it runs."""
    lists_what_is_sold_out: bool = True
    """Whether an offer stays on the list, as not available, while it is sold out."""
    may_sell_out_later: bool = False
    """Whether the provider may accept a launch and find later that it is sold out."""
    verb_of_planned_work: str = "inventory"
    """What faults call the list of planned work."""
    lists_types: bool = True
    """Whether a listed machine says what it was ordered as, so that one without a record has a price."""
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
        """Machines that ever existed under this key."""

    @abstractmethod
    def alive(self, key: LaunchKey) -> int:
        """Machines under this key that run or will run, listed or not."""

    def boots(self, ref: ProviderRef) -> int:
        """How often a machine booted. Of clouds whose provider can reboot or start machines."""
        raise NotImplementedError  # Not asked of the others, which have nothing to tell.

    def is_spot(self, key: LaunchKey) -> bool:
        """Whether the machine of this key was bought as spot. Of clouds whose provider sells it, as the next four."""
        raise NotImplementedError  # Not asked of the others, which have no spot machines.

    def announce_eviction(self, ref: ProviderRef) -> None:
        """The provider says that it takes the machine back. It runs on."""
        raise NotImplementedError  # Not asked of the others, which have no spot machines.

    def withdraw_eviction(self, ref: ProviderRef) -> None:
        raise NotImplementedError  # Not asked of the others, which have no spot machines.

    async def evict(self, ref: ProviderRef) -> None:
        """The provider takes the machine back."""
        raise NotImplementedError  # Not asked of the others, which have no spot machines.

    def plan_work(self, ref: ProviderRef, event: str, at: datetime) -> None:
        """The provider announces that it stops the machine, or another time for that event. Of clouds whose provider
        tells of planned work, as the next one.
        """
        raise NotImplementedError  # Not asked of the others, which announce nothing.

    def call_off_work(self, ref: ProviderRef, event: str) -> None:
        raise NotImplementedError  # Not asked of the others, which announce nothing.

    def sell_out_spot(self) -> None:
        """From now on there is no `native_type` in `native_region` as spot. There is on demand."""
        raise NotImplementedError  # Not asked of the others, which have no spot machines.

    def lets_in(self, ref: ProviderRef) -> list[Ingress]:
        """What the provider's firewall lets in to a machine. Of clouds whose provider has `HasFirewall`."""
        raise NotImplementedError  # Not asked of the others, which have nothing to tell.

    def open_by_hand(self, ref: ProviderRef, opened: Ingress) -> None:
        """Have somebody open something in the provider's own console. Of the same clouds."""
        raise NotImplementedError  # Not asked of the others, which have nothing to open.

    @abstractmethod
    async def add_foreign_machine(self) -> None:
        """Add a machine to our account that carries none of our launch keys."""

    # Faults. Each one is about the next call of the verb, unless it says otherwise.

    @abstractmethod
    def lose_the_answer(self, verb: str) -> None:
        """Have the next call take effect, and cut the connection before its answer."""

    @abstractmethod
    def fail_after_the_effect(self, verb: str) -> None:
        """Have the next call take effect, and answer with an internal error."""

    @abstractmethod
    def sell_out(self) -> None:
        """From now on there is no `native_type` in `native_region`."""

    @abstractmethod
    def refuse_though_listed(self) -> None:
        """The next launch is refused for capacity, whatever the offers say."""

    def sell_out_later(self) -> None:
        """The next launch is accepted, and then there is no place for its machine."""
        raise NotImplementedError  # Asked only of clouds whose provider refuses late.

    @abstractmethod
    def throttle(self, verb: str) -> None: ...

    @abstractmethod
    def break_the_listing(self) -> None:
        """The next listing fails half-way."""

    @abstractmethod
    def refuse_terminate(self) -> None: ...

    @abstractmethod
    def show_unknown_status(self, ref: ProviderRef) -> None:
        """From now on listings show this machine with a status word that no specification has."""

    @abstractmethod
    def never_boot(self) -> None:
        """The next launch is accepted and its machine never runs."""

    @abstractmethod
    def revoke_the_key(self) -> None:
        """From now on the account's key is not valid."""

    @abstractmethod
    def cut_the_network(self) -> None:
        """From now on no request leaves us."""


class CloudWithChildren(Cloud):
    """A provider whose launches, or whose firewalls, make children."""

    children_of_launches: bool = True
    """False where only the rules of a firewall make any. They can be deleted once their machine has ended."""

    @abstractmethod
    async def add_foreign_child(self) -> None:
        """Add something to our account that is like a child and carries none of our launch keys."""


class Network(httpx.AsyncBaseTransport):
    """The network between an adapter and an emulator. It counts requests, takes time, and can be cut or answer by itself."""

    def __init__(self, app: object, clock: Clock, *, seconds_between: float = 0.0) -> None:
        self._emulator = EmulatorTransport(app)
        self._clock = clock
        self.seconds_between = seconds_between
        """How far the clock advances before each request."""
        self.cut = False
        self.answer: Callable[[httpx.Request], httpx.Response] | None = None
        """Answers instead of the emulator while it is set."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut:
            raise httpx.ConnectError("no route", request=request)
        self._clock.advance(self.seconds_between)
        self.requests.append((request.method, request.url.path))
        if self.answer is not None:
            await request.aread()
            return self.answer(request)
        return await self._emulator.handle_async_request(request)


class ScriptedCloud(Cloud):
    """A provider whose faults are those of an emulator's scenario, whatever they speak with each other."""

    scenario: Scenario

    @abstractmethod
    def connected(self, key: str) -> Provider:
        """The adapter, connected over the network with this key."""

    def refusal(self, quote: str) -> bytes:
        """An error body that repeats a text: whichever format a provider has, its code and message are in one place."""
        error = {"code": quote, "message": quote}
        quotes = {"error": error, **error, "msg": quote, "detail": quote, "error_reason": quote}
        return json.dumps({**quotes, "status": False}).encode()

    def lose_the_answer(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.CUT_AFTER)

    def fail_after_the_effect(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.ERROR_AFTER)

    def sell_out(self) -> None:
        self.scenario.stock[self.native_type, self.native_region] = 0

    def refuse_though_listed(self) -> None:
        self.scenario.add("launch", FaultKind.NO_CAPACITY)

    def sell_out_later(self) -> None:
        self.scenario.add("launch", FaultKind.SOLD_OUT_LATER)

    def throttle(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.THROTTLE)

    def break_the_listing(self) -> None:
        self.scenario.add("inventory", FaultKind.PARTIAL_LIST)

    def refuse_terminate(self) -> None:
        self.scenario.add("terminate", FaultKind.REFUSE_TERMINATE)

    def never_boot(self) -> None:
        self.scenario.add("launch", FaultKind.NEVER_BOOTS)

    def revoke_the_key(self) -> None:
        self.provider = self.connected("revoked-key-0123456789")


class EmulatedCloud(ScriptedCloud):
    """An adapter of an HTTP API over its emulator in this process."""

    network: Network
    app: Litestar
    empty_answers: frozenset[tuple[Verb, int]] = frozenset()
    """The verbs that the provider documents to answer without a body, with the status: Rest.call's `empty_status`."""
    lists_are_plain: bool = False
    """Whether a list of machines is a JSON array without an envelope, so that `[]` says that there are none."""

    harmless: str | None = None
    """A text of a launch request that an error may repeat; None is the name of the machine type."""

    def boots(self, ref: ProviderRef) -> int:
        account = self.app.state.account
        rentals = account.machines if hasattr(account, "machines") else account.instances
        return int(rentals.host.boots.get(ref.rpartition("/")[2], 1))

    def quotable(self) -> tuple[str, ...]:
        """The secrets that the provider could quote: they travel with calls of the port, once launches are prepared."""
        return (self.secret or "", USER_DATA_SECRET)

    def cut_the_network(self) -> None:
        self.network.cut = True


def clouds() -> dict[str, Callable[[], Cloud]]:
    found: dict[str, Callable[[], Cloud]] = {}
    for entry in pkgutil.iter_modules(__path__):
        found[entry.name] = importlib.import_module(f"{__name__}.{entry.name}").make
    return found
