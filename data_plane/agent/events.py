"""NVML's events: a thread waits for errors and changes, at no cost while nothing happens."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NoReturn

from data_plane.documents.health import Group
from data_plane.nvml.library import BINDINGS, Library, Lost
from data_plane.nvml.library import bus_id as read_bus_id

WAIT_MS = 1000
PAUSE_SECONDS = 5.0
"""The pause after the wait itself failed. Once a card is lost, every wait fails at once."""

XID = BINDINGS.nvmlEventTypeXidCriticalError
CHANGES: "Mapping[int, tuple[Group, ...]]" = {
    XID: ("recovery", "ecc"),
    BINDINGS.nvmlEventTypeSingleBitEccError: ("ecc",),
    BINDINGS.nvmlEventTypeDoubleBitEccError: ("ecc", "recovery"),
    BINDINGS.nvmlEventTypeFatalPoisonError: ("ecc", "recovery"),
    BINDINGS.nvmlEventTypeGpuUnavailableError: ("identity", "recovery"),
    BINDINGS.nvmlEventTypeGpuRecoveryAction: ("recovery",),
    BINDINGS.nvmlEventMigConfigChange: ("mig",),
}
"""Which groups change with an event, and so must be read again."""


@dataclass(frozen=True)
class Event:
    kind: int
    """nvmlEventType*."""
    data: int
    """The XID's number, if the event is an XID."""
    bus_id: "str | None"


class Events:
    """Every event of these cards from now on. Some cards and drivers do not have events."""

    def __init__(self, library: Library, handles: "Sequence[object]") -> None:
        # A Library of its own, because events are read in another thread and must not count as the reader's calls.
        self._library = Library(library.api, library.source)
        self._heard: SimpleQueue[Event] = SimpleQueue()
        self._news = threading.Event()
        self._set = self._library.ask("nvmlEventSetCreate")
        self.registered = self._set is not None and sum(map(self._register, handles)) > 0

    def rest(self, seconds: float) -> bool:
        """Return after `seconds`, or as soon as there is an event that `new` has not returned: True then."""
        return self._news.wait(max(0.0, seconds))

    def new(self) -> "list[Event]":
        """The events since the last call."""
        self._news.clear()
        found: list[Event] = []
        while True:
            try:
                found.append(self._heard.get_nowait())
            except Empty:
                return found

    def wait(self) -> bool:
        """Wait up to WAIT_MS for one event. Returns False if the wait itself failed."""
        try:
            data = self._library.api.nvmlEventSetWait_v2(self._set, WAIT_MS)
        except BINDINGS.NVMLError as error:
            return bool(error.value == BINDINGS.NVML_ERROR_TIMEOUT)
        try:
            bus_id = read_bus_id(self._library, data.device)
        except Lost:
            bus_id = None  # A lost card does not tell its address; the kernel log does.
        self._heard.put(Event(int(data.eventType), int(data.eventData), bus_id))
        self._news.set()
        return True

    def listen(self, sleep: "Callable[[float], object]") -> NoReturn:
        """Wait for events, for ever. Runs in a thread of its own."""
        while True:
            if not self.wait():
                sleep(PAUSE_SECONDS)

    def _register(self, handle: object) -> bool:
        try:
            supported = self._library.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
            wanted = sum(kind for kind in CHANGES if kind & supported)
            if not wanted:
                return False
            self._library.api.nvmlDeviceRegisterEvents(handle, wanted, self._set)
        except (Lost, BINDINGS.NVMLError):
            return False
        return True
