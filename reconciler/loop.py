"""A loop, one run of it, and what it may touch. Knows no loop by name.

A loop takes no input: it looks at the database, decides, acts, records. Whatever goes wrong, the next
activation is the retry; a crash between any two lines leaves rows that the next activation finds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from control_plane.db.engine import Database
from control_plane.domain.ids import AccountName
from data_plane.access.port import Access, HostKey
from data_plane.inspection.bundle import AgentBundle
from data_plane.mesh.port import Hub, HubIdentity
from data_plane.proof.challenger.port import Challenger
from providers.base import Provider


class HubSync:
    """Lets one hub call serve everyone in this process who waits for the same network.

    Joins that come in while a call runs are served together by the next one.
    """

    def __init__(self) -> None:
        self._locks: dict[UUID, asyncio.Lock] = {}
        self._wanted: dict[UUID, int] = {}
        self._served: dict[UUID, tuple[int, HubIdentity]] = {}

    async def covering(
        self, organization_id: UUID, call: Callable[[], Awaitable[HubIdentity]]
    ) -> HubIdentity:
        """The answer of a `call` that began after this was asked for. Raises what the call raises."""
        ticket = self._wanted[organization_id] = self._wanted.get(organization_id, 0) + 1
        async with self._locks.setdefault(organization_id, asyncio.Lock()):
            served = self._served.get(organization_id)
            if served is not None and served[0] >= ticket:
                return served[1]
            serves = self._wanted[organization_id]
            identity = await call()
            self._served[organization_id] = serves, identity
            return identity


@dataclass(frozen=True)
class World:
    """Everything a loop may touch. Built in `reconciler/__main__.py`; tests bring a virtual clock and fakes."""

    db: Database
    now: Callable[[], datetime]
    new_id: Callable[[], UUID]
    installation: str
    """The eight digits in our launch keys."""
    accounts: Mapping[AccountName, Provider]
    """Connected and guarded."""
    access: Access
    hub: Hub
    agent: AgentBundle
    login_key_public: str
    """Our SSH key, as machines are told to trust it."""
    new_host_key: Callable[[], HostKey]
    challenger: Challenger
    chance: Callable[[], float]
    """Uniform in [0, 1), and not to be foreseen by anybody: when an idle machine is challenged hangs on it."""
    accept_emulated: bool = False
    """Whether an emulated GPU reading may make a machine verified. Never in production."""
    orphans_dry_run: bool = False
    proof_dry_run: bool = False
    """Whether machines that fail their proof while a customer has them are only reported."""
    replica: str = "one"
    hub_sync: HubSync = field(default_factory=HubSync)

    def actor(self, loop: str) -> str:
        """How the journal names who did it."""
        return f"loop:{loop}"


@dataclass
class Report:
    """What one activation did. Stored, and shown to operators as the loop's last report."""

    looked_at: int = 0
    acted_on: int = 0
    errors: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    more: bool = False
    """The activation hit its bound; there is work left, come back at once."""


Item = TypeVar("Item")


async def each(items: Iterable[Item], act: Callable[[Item], Awaitable[None]], report: Report) -> None:
    """Act on all items at once. One that fails is an error in the report and disturbs no other.

    A cancelled neighbour would be worse than a failed one: its question to a provider may be under way.
    """

    async def one(item: Item) -> None:
        try:
            await act(item)
        except Exception as error:  # noqa: BLE001 - the outermost frame of one item; the next activation is its retry
            report.errors.append(f"{type(error).__name__}: {error}")

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))


LASTS = timedelta(seconds=30)
"""How long most activations may take: they wait for providers and databases, and not for machines."""

Activate = Callable[[World], Awaitable[Report]]
ActivateAccount = Callable[[World, AccountName], Awaitable[Report]]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the whole system."""

    name: str
    every: timedelta
    activate: Activate
    wakes: tuple[str, ...] = ()
    """Loops that have something to do when this one acted."""
    lasts: timedelta = LASTS
    """How long one activation may take and be well."""


@dataclass(frozen=True, slots=True)
class AccountLoop:
    """A loop that runs for each provider account on its own: a slow provider delays nobody else (law 14)."""

    name: str
    every: timedelta
    activate: ActivateAccount
    wakes: tuple[str, ...] = ()
    lasts: timedelta = LASTS
    lanes: int = 1
    """How many activations of one account run side by side, where a single one may take minutes: what one of them
    waits for delays the others' machines not. They share rows as replicas do, by claims."""
