"""What NVML tells of by itself: errors and changes, waited for in a thread. Costs nothing while nothing happens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NoReturn

from data_plane.documents.health import Group
from data_plane.nvml.library import BINDINGS, Library, Lost
from data_plane.nvml.library import bus_id as read_bus_id

WAIT_MS = 1000
PAUSE_SECONDS = 5.0
"""After an error of the wait itself, which a lost card makes fail at once and for good."""

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
"""Which groups say something new after an event."""


@dataclass(frozen=True)
class Event:
    kind: int
    """nvmlEventType*."""
    data: int
    """The XID, where it is one."""
    bus_id: "str | None"


class Events:
    """Every event of these cards, from when this was made. Cards and drivers without events have none."""

    def __init__(self, library: Library, handles: "Sequence[object]") -> None:
        # Another thread than the reader's: its calls are not among those that are timed and counted.
        self._library = Library(library.api, library.source)
        self._heard: SimpleQueue[Event] = SimpleQueue()
        self._set = self._library.ask("nvmlEventSetCreate")
        self.registered = self._set is not None and sum(map(self._register, handles)) > 0

    def new(self) -> "list[Event]":
        """What happened since the last time."""
        found: list[Event] = []
        while True:
            try:
                found.append(self._heard.get_nowait())
            except Empty:
                return found

    def wait(self) -> bool:
        """Wait up to WAIT_MS for one event; False if waiting itself failed."""
        try:
            data = self._library.api.nvmlEventSetWait_v2(self._set, WAIT_MS)
        except BINDINGS.NVMLError as error:
            return bool(error.value == BINDINGS.NVML_ERROR_TIMEOUT)
        try:
            bus_id = read_bus_id(self._library, data.device)
        except Lost:
            bus_id = None  # Its last words came without an address; the kernel log has one.
        self._heard.put(Event(int(data.eventType), int(data.eventData), bus_id))
        return True

    def listen(self, sleep: "Callable[[float], object]") -> NoReturn:
        """Wait for ever, in a thread of its own."""
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
