"""Monitors the cards of a machine: reads the groups that are due and collects the errors that were reported.

A lost card keeps its place in the list and its last values. The other cards are still read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from data_plane.agent.events import CHANGES, XID, Events
from data_plane.agent.groups import READERS
from data_plane.agent.kernel_log_source import KernelLog
from data_plane.agent.profile import Profiles
from data_plane.agent.schedule import Schedule
from data_plane.agent.xids import Xids
from data_plane.documents.health import GpuHealth, Group, Health, Reading, Usage
from data_plane.documents.inventory import GPUS_MAX
from data_plane.nvml.library import Library, Lost, Unanswered, bus_id

SETTLE_SECONDS = 1.5
"""Longer than one sampling period of utilisation, which has up to one second."""

EARLY_SECONDS = 5
"""Between two looks, however many events there are."""
TOGETHER_SECONDS = 0.5
"""From an event to the look that it leads to."""


@dataclass
class _Card:
    handle: Any
    """None if the card was lost before it could be opened."""
    health: GpuHealth
    lost: bool = False
    """Whether the card was lost at this look."""


class Monitor:
    """Each look makes one document. Raises nvml.Unanswered if not even the number of cards can be read."""

    def __init__(
        self,
        library: Library,
        schedule: Schedule,
        kernel_log: KernelLog,
        *,
        monotonic: "Callable[[], float]",
        unix: "Callable[[], float]",
    ) -> None:
        self._library = library
        self._schedule = schedule
        self._kernel_log = kernel_log
        self._monotonic = monotonic
        self._unix = unix
        self._events: Events | None = None
        self._xids = Xids()
        self._profiles = Profiles()
        self._cards: list[_Card] = []
        self._readings: dict[Group, Reading] = {}

    def listen(self) -> Events:
        """Start to receive events. There must have been one look at the cards before."""
        self._events = Events(self._library, [card.handle for card in self._cards if card.handle is not None])
        return self._events

    def hasten(self, group: Group) -> None:
        """Read this group at the next look, no matter when it was read last."""
        self._schedule.hasten(group)

    def look(self) -> Health:
        """Collect new errors, read the due groups of every card, and return the current state of all cards."""
        self._collect_errors()
        if any(card.lost for card in self._cards):
            self._schedule.hasten("identity")  # The card may be back, or another one may be in its place.
        for group in self._schedule.due(self._monotonic()):
            self._read(group)
        return Health(
            source=self._library.source,
            at=int(self._unix()),
            gpus=tuple(replace(card.health, lost=card.lost) for card in self._cards),
            xids=self._xids.latest(),
            xids_dropped=self._xids.dropped,
            events=self._events is not None and self._events.registered,
            kernel_log=self._kernel_log.name,
            readings=tuple(self._readings.values()),
        )

    def _collect_errors(self) -> None:
        now = int(self._unix())
        for event in self._events.new() if self._events is not None else ():
            for group in CHANGES.get(event.kind, ()):
                self._schedule.hasten(group)
            if event.kind == XID:
                self._xids.note("xid", event.data, event.bus_id, now, "event")
        for seen, at in self._kernel_log.new():
            self._xids.note(seen.kind, seen.number, seen.bus_id, at, "log")

    def _read(self, group: Group) -> None:
        library, began = self._library, self._monotonic()
        library.about = "the machine"
        calls, refused = library.calls, library.refused
        if group == "identity":
            self._cards = self._admit()
        else:
            for card in self._cards:
                self._read_card(card, group)
        self._readings[group] = Reading(
            group=group,
            at=int(self._unix()),
            microseconds=max(0, int((self._monotonic() - began) * 1_000_000)),
            calls=library.calls - calls,
            refused=library.refused - refused,
        )

    def _read_card(self, card: _Card, group: Group) -> None:
        if card.handle is None:
            return
        self._library.about = f"GPU {card.health.index}"
        try:
            reading: Any = {group: self._reading(card, group)}
        except Lost:
            card.lost = True
            return
        card.health = replace(card.health, **reading)

    def _reading(self, card: _Card, group: Group) -> object:
        if group == "profile":
            return self._profiles.read(self._library, card.handle, card.health.uuid)
        return READERS[group](self._library, card.handle)

    def _admit(self) -> "list[_Card]":
        """The cards that are there now, in the order of their indices. Known cards keep their values."""
        count = int(self._library.must("nvmlDeviceGetCount"))
        if count > GPUS_MAX:
            raise Unanswered("bad_reading", f"{count} GPUs are more than {GPUS_MAX}")
        found = [self._card(index) for index in range(count)]
        present = {card.health.uuid for card in found if not card.lost}
        for card in found:
            if card.lost and card.health.uuid in present:  # The card that was here is at another index now.
                card.health = GpuHealth(card.health.index, None, None, lost=True)
        return found

    def _card(self, index: int) -> _Card:
        self._library.about = f"GPU {index}"
        try:
            handle = self._library.must("nvmlDeviceGetHandleByIndex", index)
            uuid = str(self._library.must("nvmlDeviceGetUUID", handle))
            where = bus_id(self._library, handle)
        except (Lost, Unanswered):
            # If a card fell off the bus before this process started, NVML often reports an unknown error instead of
            # a lost card. Whatever the reason, the other cards are still read.
            if index >= len(self._cards):
                return _Card(None, GpuHealth(index, None, None, lost=True), lost=True)
            before = self._cards[index]
            return _Card(before.handle, before.health, lost=True)
        known = next((card.health for card in self._cards if card.health.uuid == uuid), None)
        health = known or GpuHealth(index, uuid, where, lost=False)
        return _Card(handle, replace(health, index=index, bus_id=where))


def once(monitor: Monitor, *, sleep: "Callable[[float], object]") -> Health:
    """One look, repeated if a card seems to be busy only because of us.

    A card that is busy without any process may be busy because of us: the driver clears a card's memory when it
    initialises the card, and a prover that has just ended is still in the sampling period. So it is read again later.
    """
    health = monitor.look()
    if any(_is_restless(card.usage) for card in health.gpus):
        sleep(SETTLE_SECONDS)
        monitor.hasten("usage")
        health = monitor.look()
    return health


def _is_restless(usage: Usage) -> bool:
    return bool(usage.utilisation_percent) and not usage.compute_processes and not usage.graphics_processes


def watch(
    monitor: Monitor,
    seconds: float,
    *,
    monotonic: "Callable[[], float]",
    sleep: "Callable[[float], object]",
    beside: "Callable[[Callable[[], object]], object]",
    rest: "Callable[[Events, float], bool]",
) -> "Iterator[Health]":
    """A look now, and then one every `seconds`, for ever; and one soon after an event.

    After a look that took longer than `seconds`, the next one comes `seconds` later, to spare a driver in trouble.
    `beside` runs the listener for events in a thread of its own, and `rest` waits so many seconds for an event.
    """
    yield monitor.look()
    looked = due = monotonic()
    events = monitor.listen()
    if events.registered:
        beside(lambda: events.listen(sleep))
    while True:
        if due <= looked:
            due += seconds
        if due < monotonic():
            due = monotonic() + seconds
        if rest(events, due - monotonic()):
            # Errors come many at a time, and perhaps for ever.
            sleep(max(TOGETHER_SECONDS, looked + EARLY_SECONDS - monotonic()))
        looked = monotonic()
        yield monitor.look()
