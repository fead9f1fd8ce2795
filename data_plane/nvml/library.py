"""The only owner of NVML. Importing this needs no GPU and no driver; opening does.

The bindings load `libnvidia-ml.so.1` lazily, so the import is safe anywhere. What the agent asks goes through
`Library`, which is a driver's or an emulation's (`emulation.py`): the code that reads is the same. No call used
here changes a card or wakes one; `nvmlDeviceGetPcieThroughput` is never used, because it blocks for 20 ms.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pynvml

from data_plane.documents.inventory import Source
from data_plane.documents.strict import printable

BINDINGS: Any = pynvml


class NoLibrary(Exception):  # noqa: N818 - reads as a sentence
    """There is no NVIDIA management library on this machine at all."""


class Lost(Exception):  # noqa: N818
    """The card that was asked has fallen off the bus, or answers nothing until it is reset."""


class Unanswered(Exception):  # noqa: N818
    """NVML would not say what every card has to say. Becomes a `protocol.Failure`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = printable(detail)


_GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_SILENT = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_FOUND}
)
"""Answers that say that there is nothing to say: by this card, by this driver, in this slot."""

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


class Library:
    """NVML, asked politely: what it does not say is None, and every call is counted."""

    def __init__(self, api: Any, source: Source) -> None:
        self.api = api
        self.source: Source = source
        self.calls = 0
        self.refused = 0
        """Calls that ended in another error than those that say that there is nothing to say."""
        self.about = "the machine"
        """Which card is being read, for error texts."""
        self.asking = "nothing"
        """The call under way, for whoever waits for it in vain."""

    def ask(self, call: str, *arguments: object, refused: Any = None) -> Any:
        """The answer; None where there is none; `refused` after any other error. Raises Lost."""
        try:
            return self._call(call, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _SILENT:
                return None
            self.refused += 1
            return refused

    def must(self, call: str, *arguments: object) -> Any:
        """The answer. Raises Unanswered, or Lost."""
        try:
            return self._call(call, *arguments)
        except pynvml.NVMLError as error:
            self.refused += error.value not in _SILENT
            raise Unanswered("nvml_error", f"{self.about}: {call}: {_words(error)}") from None

    def fields(self, handle: object, ids: "Sequence[int | tuple[int, int]]") -> "list[int | None]":
        """Field values in the order of their ids (or pairs of id and scope), all in one call. Raises Lost.

        The driver serves fields that belong together by one question to the card, so this is the cheap way.
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
            said = getattr(self.api, call)(*arguments)
            # The bindings decode most texts, and leave a few as they came.
            return said.decode("ascii", "replace") if isinstance(said, bytes) else said
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise Lost from None
            raise
        except UnicodeDecodeError:  # The bindings decode what the card says, strictly.
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from None
        finally:
            self.asking = "nothing"


def _words(error: Any) -> str:
    """What NVML calls its error. The library is asked for the newer ones, and may say what is no text."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return f"error {error.value}"


@contextmanager
def opened(api: Any = pynvml, source: Source = "nvml") -> "Iterator[Library]":
    """NVML from init to shutdown. Raises NoLibrary only if the library cannot be loaded.

    A library without a working driver is Unanswered, never NoLibrary: such a machine has, or claims to have,
    real cards, and nothing emulated may stand in for them.
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
    """`0000:3b:00.0`, as sysfs writes it; None where the card does not say. Raises Lost."""
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    return None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def processes(library: Library, handle: object, kind: "Literal['Compute', 'Graphics']") -> "int | None":
    """How many have a context on the card; None where it does not say. Raises Lost."""
    found = library.ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle)
    if found is None:  # The name before R510.
        found = library.ask(f"nvmlDeviceGet{kind}RunningProcesses_v2", handle)
    return None if found is None else len(found)
