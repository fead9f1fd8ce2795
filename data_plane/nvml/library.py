"""Access to NVML. Importing this module needs neither a GPU nor a driver; opening the library does.

The bindings load `libnvidia-ml.so.1` lazily, so the import is safe anywhere. All of the agent's calls go through
`Library`, over the driver's NVML or an emulated one (`emulation.py`), so the reading code is the same for both. None
of the calls changes or wakes a card. `nvmlDeviceGetPcieThroughput` is never used, because it blocks for 20 ms.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pynvml

from data_plane.documents.inventory import Source
from data_plane.documents.strict import printable

BINDINGS: Any = pynvml


class NoLibrary(Exception):  # noqa: N818 - reads as a sentence
    """The NVIDIA management library is not installed on this machine."""


class Lost(Exception):  # noqa: N818
    """The card has fallen off the bus, or does not answer until it is reset."""


class Unanswered(Exception):  # noqa: N818
    """NVML did not answer a question that every card can answer. The agent prints a `protocol.Failure`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = printable(detail)


_GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_SILENT = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_FOUND}
)
"""Errors that only mean that this card, driver or slot has no such value."""

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


class Library:
    """Calls NVML. An absent value is None and not an exception, and every call is counted."""

    def __init__(self, api: Any, source: Source) -> None:
        self.api = api
        self.source: Source = source
        self.calls = 0
        self.refused = 0
        """Calls that failed with an error, where an absent value is no error."""
        self.about = "the machine"
        """Which card is being read, for error messages."""
        self.asking = "nothing"
        """The current call, for the error message if it hangs."""

    def ask(self, call: str, *arguments: object, refused: Any = None) -> Any:
        """The answer; None if there is no such value; `refused` after another error. Raises Lost."""
        try:
            return self._call(call, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _SILENT:
                return None
            self.refused += 1
            return refused

    def must(self, call: str, *arguments: object) -> Any:
        """The answer. Raises Unanswered if there is none, and Lost."""
        try:
            return self._call(call, *arguments)
        except pynvml.NVMLError as error:
            self.refused += error.value not in _SILENT
            raise Unanswered("nvml_error", f"{self.about}: {call}: {_words(error)}") from None

    def fields(self, handle: object, ids: "Sequence[int | tuple[int, int]]") -> "list[int | None]":
        """The values of fields, given by ids or pairs of id and scope, read in one call. Raises Lost.

        The driver reads related fields from the card together, so this is cheaper than separate calls.
        """
        values = self.ask("nvmlDeviceGetFieldValues", handle, list(ids))
        if values is None:
            return [None] * len(ids)
        return [self._field(value) for value in values]

    def _field(self, field: Any) -> "int | None":
        if field.nvmlReturn in _GONE:
            raise Lost
        member = _MEMBERS.get(field.valueType)
        if field.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
            return None
        return int(getattr(field.value, member))

    def _call(self, call: str, *arguments: object) -> Any:
        self.calls += 1
        self.asking = call
        try:
            answer = getattr(self.api, call)(*arguments)
            # The bindings decode most texts, but return a few as bytes.
            return answer.decode("ascii", "replace") if isinstance(answer, bytes) else answer
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise Lost from None
            raise
        except UnicodeDecodeError:  # The bindings decode strictly, and a card may return anything.
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from None
        finally:
            self.asking = "nothing"


def _words(error: Any) -> str:
    """NVML's text for an error. The bindings ask the library for it, which may return invalid text."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return f"error {error.value}"


@contextmanager
def opened(api: Any = pynvml, source: Source = "nvml") -> "Iterator[Library]":
    """NVML from its initialisation to its shutdown. Raises NoLibrary if the library cannot be loaded.

    For a library without a working driver it raises Unanswered and not NoLibrary: such a machine has, or claims to
    have, real cards, so emulated cards must not replace them.
    """
    try:
        api.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NoLibrary from None
    except pynvml.NVMLError as error:
        raise Unanswered("nvml_error", f"nvmlInit: {_words(error)}") from None
    try:
        yield Library(api, source)
    finally:
        api.nvmlShutdown()


def bus_id(library: Library, handle: object) -> "str | None":
    """The card's PCI address as sysfs writes it, such as `0000:3b:00.0`; None if it does not say. Raises Lost."""
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    return None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def processes(library: Library, handle: object, kind: "Literal['Compute', 'Graphics']") -> "int | None":
    """How many processes have a context on the card; None if it does not say. Raises Lost."""
    found = library.ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle)
    if found is None:  # Its name before R510.
        found = library.ask(f"nvmlDeviceGet{kind}RunningProcesses_v2", handle)
    return None if found is None else len(found)
