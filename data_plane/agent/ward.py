"""The cards of a machine under watch: reads what is due of each, hears what happened, writes it down.

A card that is lost keeps its place and what it said last; the others are read on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from data_plane.agent.events import CHANGES, XID, Events
from data_plane.agent.groups import READERS
from data_plane.agent.kernel_log_source import KernelLog
from data_plane.agent.schedule import Schedule
from data_plane.agent.xids import Xids
from data_plane.documents.health import GpuHealth, Group, Health, Reading, Usage
from data_plane.documents.inventory import GPUS_MAX
from data_plane.nvml.library import Library, Lost, Unanswered, bus_id

SETTLE_SECONDS = 1.5
"""A sample of utilisation covers up to one second."""


@dataclass
class _Card:
    handle: Any
    """None when the card was lost before it could be opened."""
    health: GpuHealth
    lost: bool = False
    """As far as this look has seen."""


class Ward:
    """One look is one document. Raises nvml.Unanswered where there are no cards to speak of at all."""

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
        self._cards: list[_Card] = []
        self._readings: dict[Group, Reading] = {}

    def listen(self) -> Events:
        """From now on, hear of events as they happen. The cards must have been looked at once."""
        self._events = Events(self._library, [card.handle for card in self._cards if card.handle is not None])
        return self._events

    def hasten(self, group: Group) -> None:
        """The next look reads this group, whenever it was read last."""
        self._schedule.hasten(group)

    def look(self) -> Health:
        """Hear what happened, read what is due of every card, and say how it all is now."""
        self._hear()
        if any(card.lost for card in self._cards):
            self._schedule.hasten("identity")  # It may be back, or another in its place.
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

    def _hear(self) -> None:
        now = int(self._unix())
        for event in self._events.new() if self._events is not None else ():
            for group in CHANGES.get(event.kind, ()):
                self._schedule.hasten(group)
            if event.kind == XID:
                self._xids.hear("xid", event.data, event.bus_id, now, "event")
        for seen, at in self._kernel_log.new():
            self._xids.hear(seen.kind, seen.number, seen.bus_id, at, "log")

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
            said: Any = {group: READERS[group](self._library, card.handle)}
        except Lost:
            card.lost = True
            return
        card.health = replace(card.health, **said)

    def _admit(self) -> "list[_Card]":
        """Who is there, by index. A card that was there before keeps what is known of it."""
        count = int(self._library.must("nvmlDeviceGetCount"))
        if count > GPUS_MAX:
            raise Unanswered("bad_reading", f"{count} GPUs are more than {GPUS_MAX}")
        found = [self._card(index) for index in range(count)]
        present = {card.health.uuid for card in found if not card.lost}
        for card in found:
            if card.lost and card.health.uuid in present:  # It was taken for one that is elsewhere now.
                card.health = GpuHealth(card.health.index, None, None, lost=True)
        return found

    def _card(self, index: int) -> _Card:
        self._library.about = f"GPU {index}"
        try:
            handle = self._library.must("nvmlDeviceGetHandleByIndex", index)
            uuid = str(self._library.must("nvmlDeviceGetUUID", handle))
            where = bus_id(self._library, handle)
        except (Lost, Unanswered):
            # A process that starts after a card fell off the bus is often told of an unknown error and not of a
            # lost card, and here the others matter more than the reason.
            if index >= len(self._cards):
                return _Card(None, GpuHealth(index, None, None, lost=True), lost=True)
            before = self._cards[index]
            return _Card(before.handle, before.health, lost=True)
        known = next((card.health for card in self._cards if card.health.uuid == uuid), None)
        health = known or GpuHealth(index, uuid, where, lost=False)
        return _Card(handle, replace(health, index=index, bus_id=where))


def once(ward: Ward, *, sleep: "Callable[[float], object]") -> Health:
    """A look at cards that may have been woken by it.

    Where no process is, what keeps a card busy may be ourselves: a driver that wakes a card scrubs its memory, and
    a prover of ours that just ended is in the sample still. So such a card is asked again when that is over.
    """
    health = ward.look()
    if any(_is_restless(card.usage) for card in health.gpus):
        sleep(SETTLE_SECONDS)
        ward.hasten("usage")
        health = ward.look()
    return health


def _is_restless(usage: Usage) -> bool:
    return bool(usage.utilisation_percent) and not usage.compute_processes and not usage.graphics_processes


def watch(
    ward: Ward,
    seconds: float,
    *,
    monotonic: "Callable[[], float]",
    sleep: "Callable[[float], object]",
    beside: "Callable[[Callable[[], object]], object]",
) -> "Iterator[Health]":
    """A look now, and one every so many seconds, for ever.

    After a look that took longer than that, a driver in trouble is left alone for as long again. `beside` runs
    the listener in a thread of its own.
    """
    yield ward.look()
    events = ward.listen()
    if events.registered:
        beside(lambda: events.listen(sleep))
    due = monotonic()
    while True:
        due += seconds
        if due < monotonic():
            due = monotonic() + seconds
        sleep(due - monotonic())
        yield ward.look()
