"""What some providers can do besides the port (`base.py`), a protocol for each, under the same laws.

`Capabilities` says who has what; the guard or the loop that calls asks there first.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.base import (
    Child,
    Ingress,
    LateRefusal,
    LaunchOrder,
    Page,
    PlannedWork,
    PowerAction,
    Sighting,
    ToldLimit,
)


@runtime_checkable
class NeedsPreparing(Protocol):
    """A provider whose launches need something registered first, such as an SSH key.

    Each `prepare` is one call to the provider that may be repeated, so that the guard can pace it.
    """

    def prepared(self, order: LaunchOrder) -> bool: ...

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step. Raises Rejected, Throttled, Unavailable."""
        ...


@runtime_checkable
class ListsInPages(Protocol):
    """A provider whose inventory takes one call per page, so that the guard can pace and retry each of them."""

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        """The first page for None, then the page of `cursor`. Raises Unauthorized, Throttled, Unavailable."""
        ...


@runtime_checkable
class RefusesLater(Protocol):
    """A provider that accepts launches first and may refuse them afterwards, without a machine that is listed."""

    async def refused_later(self) -> tuple[LateRefusal, ...]:
        """The latest refusals. Raises Unauthorized, Throttled, Unavailable."""
        ...


@runtime_checkable
class ListsSomeRegions(Protocol):
    """A provider whose settings say in which of its regions it looks for machines.

    A list is incomplete while one of our machines may be elsewhere, and then nobody draws conclusions from it.
    """

    def lists(self, native_region: str) -> bool:
        """Whether the inventory would show a machine that was bought in this `native_region`."""
        ...


@runtime_checkable
class TellsLimits(Protocol):
    """A provider whose answers say what its limits are."""

    def told_limits(self) -> tuple[ToldLimit, ...]:
        """What the last answer said; empty when it said nothing."""
        ...


@runtime_checkable
class HasChildren(Protocol):
    """A provider whose launches make more than a machine. A lost launch may leave children without a machine.

    A child is made after its launch key is on record and carries that key, so a child without a record is not ours.
    """

    async def children(self) -> tuple[Child, ...]:
        """Every child that carries a launch key of ours, complete. Raises Rejected, Throttled, Unavailable."""
        ...

    async def delete_child(self, child: Child) -> None:
        """Delete it for good. Raises Rejected (also when it is gone), Throttled, Unavailable."""
        ...


@runtime_checkable
class HasPower(Protocol):
    """A provider that can reboot, stop or start machines: what `Capabilities.power` names.

    A stopped machine keeps its disk and its reference, and is listed as STOPPED. Its address may be another one after
    it was started.
    """

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        """Ask for it. When it returns, the provider accepted the request; only the inventory shows the effect.

        A stop of a stopped machine and a start of a running one succeed without effect. Raises Rejected, NotYet (the
        machine is being changed), MachineNotFound, Throttled, Unavailable (never left us), OutcomeUnknown.
        """
        ...


@runtime_checkable
class HasFirewall(Protocol):
    """A provider whose firewall can let in other packets to one machine than to another."""

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        """Take one step towards a machine that lets in `wanted`, SSH and WireGuard, and nothing else: look, and change
        one thing at most. True when there was nothing to change.

        What it makes beside the machine carries the launch key, and is a child. Raises Rejected, NotYet (the machine is
        being changed), MachineNotFound, Throttled, Unavailable (also when an answer was lost: the next step looks).
        """
        ...


@runtime_checkable
class TellsPlannedWork(Protocol):
    """A provider that announces its work on machines to programs."""

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        """All of it that is not over, from the budget of `inventory`. Raises Unauthorized, Throttled, Unavailable."""


@dataclass(frozen=True, slots=True)
class ConsoleTicket:
    """The provider gets the console first. It is asked for again with this, in some seconds."""

    value: str


@runtime_checkable
class HasConsole(Protocol):
    """A provider that keeps what machines print on their consoles."""

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str | ConsoleTicket:
        """The end of what the machine printed, as the provider has it now; empty where it has nothing.

        `ticket` is the value of the one that the last call returned, None at first. The text is the machine's, and may
        be anything. Raises Rejected, NotYet (the machine is being changed), MachineNotFound, Throttled, Unavailable.
        """
        ...
