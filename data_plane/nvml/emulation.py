"""An emulated NVML: answers as the bindings do, from a description of cards. The agent's own code reads from it.

A description resembles a recording: for each card it maps the names of calls to their answers.

    {"driver_version": "570.124.06",
     "gpus": [{"index": 0, "name": "NVIDIA H200", "uuid": "GPU-...", "memory_total_mib": 143771,
               "answers": {"nvmlDeviceGetPowerUsage": 76000,
                           "nvmlDeviceGetClockInfo": {"1": 345, "2": 3201},      by further argument
                           "nvmlDeviceGetPciInfo": {"domain": 0, "bus": 59},      a structure
                           "nvmlDeviceGetSerial": {"error": "NO_PERMISSION"}},
               "fields": {"230": 0, "165": {"0": 1, "1": 1}},                     by link where there are links
               "instances": [{"answers": {"nvmlDeviceGetUUID": "MIG-..."}}]}],
     "every_gpu": {"answers": {...}, "fields": {...}},
     "ancestors": [[0, 40], [40, 0]],
     "script": [{"at": 30, "gpu": 0, "fields": {"230": 1}, "xid": 79}]}

Only the first four values of a card are required; a card without others is idle and healthy. A call whose answer is
null or is not described fails with "not supported". A script changes cards `at` so many seconds after the start: it
sets `answers`, `fields`, `instances`, `lost`, `slow` (seconds by call) and the machine's `count` of cards, and sends
events (`xid`, or `event` and `data`). Steps that are added to a file's script while a process reads from it happen `at`
so many seconds after that (`emulation_file.py`). Constants, structures and errors are those of the real bindings.
"""

import copy
from collections.abc import Callable, Sequence
from ctypes import addressof, c_ulonglong, pointer
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

from data_plane.nvml.library import BINDINGS

EVENTS_SUPPORTED = BINDINGS.nvmlEventTypeAll

_IDLE: "dict[str, Any]" = {
    "nvmlDeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
    "nvmlDeviceGetComputeRunningProcesses_v3": [],
    "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
    "nvmlDeviceGetCurrentClocksEventReasons": BINDINGS.nvmlClocksEventReasonGpuIdle,
    "nvmlDeviceGetSupportedEventTypes": EVENTS_SUPPORTED,
}
_WELL = {str(BINDINGS.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION): BINDINGS.NVML_GPU_RECOVERY_ACTION_NONE}


class _Thing:
    """What a handle refers to: a card or a MIG device."""

    def __init__(self, described: "dict[str, Any]", answers: "dict[str, Any]") -> None:
        self.answers: dict[str, Any] = {**answers, **described.get("answers", {})}
        self.fields: dict[str, Any] = {}
        self.slow: dict[str, float] = {}
        self.instances: list[_Thing] = []
        self.lost = False

    def divide(self, instances: "list[dict[str, Any]]") -> None:
        self.instances = [_Thing(one, {}) for one in instances]


class EmulatedNvml:
    """Replaces the module `pynvml`. `clock` returns seconds, and `sleep` lets them pass."""

    def __init__(
        self,
        described: "dict[str, Any]",
        clock: "Callable[[], float]",
        sleep: "Callable[[float], object]",
        news: "Callable[[], list[dict[str, Any]]]" = list,
    ) -> None:
        """`news` returns further steps of the script that begin now. Raises KeyError, TypeError or ValueError for an
        invalid description.
        """
        self._clock, self._sleep, self._news = clock, sleep, news
        self._began = clock()
        self._driver = _text(described["driver_version"])
        every = described.get("every_gpu", {})
        self._cards = [_card(one, every) for one in described["gpus"]]
        if [one["index"] for one in described["gpus"]] != list(range(len(self._cards))):
            raise ValueError("the indices are not 0, 1, 2, ...")
        self._count = len(self._cards)
        self._ancestors: list[list[int]] = described.get("ancestors", [])
        self._script: list[dict[str, Any]] = []
        self._plan(described.get("script", []), 0)
        self._events: list[SimpleNamespace] = []
        self._watched: dict[int, int] = {}
        self._gpm: list[tuple[Any, _Thing | None]] = []
        """Samples of the driver's, and the card of each."""

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(BINDINGS, name)
        return partial(self._answer, name) if isinstance(theirs, FunctionType) else theirs

    # Calls about the machine.

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's names, here and below
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return self._driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._pass()
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> _Thing:  # noqa: N802
        self._pass()
        if not 0 <= index < self._count:
            raise _error("INVALID_ARGUMENT")
        return self._known(self._cards[index], "nvmlDeviceGetHandleByIndex")

    def nvmlDeviceGetTopologyCommonAncestor(self, one: _Thing, other: _Thing) -> int:  # noqa: N802
        self._known(one, "nvmlDeviceGetTopologyCommonAncestor")
        if not self._ancestors:
            raise _error("NOT_SUPPORTED")
        return self._ancestors[self._cards.index(one)][self._cards.index(other)]

    # Calls about a card.

    def nvmlDeviceGetFieldValues(self, card: _Thing, ids: "Sequence[Any]") -> "list[Any]":  # noqa: N802
        self._known(card, "nvmlDeviceGetFieldValues")
        return [_field(card, one) for one in ids]

    def nvmlDeviceGetGpuFabricInfoV(self, card: _Thing, info: Any) -> int:  # noqa: N802
        for key, value in vars(self._answer("nvmlDeviceGetGpuFabricInfoV", card)).items():
            if hasattr(info._obj, key):  # noqa: SLF001 - what byref() points at
                setattr(info._obj, key, value)  # noqa: SLF001
        return int(BINDINGS.NVML_SUCCESS)

    def nvmlDeviceGetGspFirmwareVersion(self, card: _Thing) -> bytes:  # noqa: N802 - NVML's name
        """The only text that the bindings return as bytes."""
        return _text(self._answer("nvmlDeviceGetGspFirmwareVersion", card)).encode()

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: _Thing, index: int) -> _Thing:  # noqa: N802
        self._known(card, "nvmlDeviceGetMigDeviceHandleByIndex")
        if index >= len(card.instances):
            raise _error("NOT_FOUND")
        return card.instances[index]

    def nvmlDeviceGetGpuInstanceById(self, card: _Thing, number: int) -> _Thing:  # noqa: N802
        self._known(card, "nvmlDeviceGetGpuInstanceById")
        for one in card.instances:
            if one.answers.get("nvmlDeviceGetGpuInstanceId") == number:
                return one
        raise _error("NOT_FOUND")

    # How busy a card's units are. The description of a card has it at nvmlGpmMetricsGet: per cent by number.

    def nvmlGpmQueryDeviceSupport(self, card: _Thing) -> SimpleNamespace:  # noqa: N802
        self._known(card, "nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int("nvmlGpmMetricsGet" in card.answers))

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        self._gpm.append((sample := BINDINGS.struct_c_nvmlGpmSample_t(), None))
        return pointer(sample)

    def nvmlGpmSampleGet(self, card: _Thing, sample: Any) -> Any:  # noqa: N802
        self._known(card, "nvmlGpmSampleGet")
        where = addressof(sample.contents)
        self._gpm = [(each, card if addressof(each) == where else of) for each, of in self._gpm]
        return sample

    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:  # noqa: N802
        where = addressof(wanted.sample2.contents)
        card = next(of for each, of in self._gpm if addressof(each) == where)
        if card is None:
            raise _error("INVALID_ARGUMENT")
        values = card.answers["nvmlGpmMetricsGet"]
        for metric in wanted.metrics[: wanted.numMetrics]:
            known = values.get(str(metric.metricId))
            metric.nvmlReturn = BINDINGS.NVML_ERROR_NOT_SUPPORTED if known is None else BINDINGS.NVML_SUCCESS
            metric.value = known or 0.0
        return wanted

    # Events.

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, card: _Thing, kinds: int, _set: object) -> None:  # noqa: N802
        self._known(card, "nvmlDeviceRegisterEvents")
        self._watched[id(card)] = kinds

    def nvmlEventSetWait_v2(self, _set: object, milliseconds: int) -> SimpleNamespace:  # noqa: N802
        self._pass()
        if not self._events:
            self._sleep(milliseconds / 1000)
            self._pass()
        if not self._events:
            raise _error("TIMEOUT")
        return self._events.pop(0)

    # Internals.

    def _answer(self, call: str, thing: object = None, *arguments: object) -> Any:
        if not isinstance(thing, _Thing):
            raise _error("NOT_SUPPORTED")  # A call about the machine other than those above.
        answer = self._known(thing, call).answers.get(call)
        if arguments and isinstance(answer, dict) and answer and all(key.isdecimal() for key in answer):
            answer = answer.get(str(arguments[0]))
        if answer is None:
            raise _error("NOT_SUPPORTED")
        if isinstance(answer, dict) and "error" in answer:
            raise _error(answer["error"])
        return _structure(answer)

    def _known(self, thing: _Thing, call: str) -> _Thing:
        """The thing itself, after the time that this call takes. Raises NVML's error for a lost card."""
        self._pass()
        if call in thing.slow:
            self._sleep(thing.slow[call])
        if thing.lost:
            raise _error("GPU_IS_LOST")
        return thing

    def _pass(self) -> None:
        """Apply the script's changes up to now."""
        if further := self._news():
            self._plan(further, self._clock() - self._began)
        while self._script and self._began + float(self._script[0]["at"]) <= self._clock():
            step = self._script.pop(0)
            self._count = step.get("count", self._count)
            if "gpu" in step:
                self._change(self._cards[step["gpu"]], step)

    def _plan(self, steps: "list[dict[str, Any]]", after: float) -> None:
        planned = [{**copy.deepcopy(step), "at": after + float(step["at"])} for step in steps]
        self._script = sorted([*self._script, *planned], key=lambda step: float(step["at"]))

    def _change(self, card: _Thing, step: "dict[str, Any]") -> None:
        card.answers.update(step.get("answers", {}))
        card.fields.update(step.get("fields", {}))
        card.slow.update(step.get("slow", {}))
        card.lost = step.get("lost", card.lost)
        if "instances" in step:
            card.divide(step["instances"])
        kind = BINDINGS.nvmlEventTypeXidCriticalError if "xid" in step else step.get("event", 0)
        if kind & self._watched.get(id(card), 0):
            data = step.get("xid", step.get("data", 0))
            self._events.append(SimpleNamespace(device=card, eventType=kind, eventData=data))


def _card(described: "dict[str, Any]", every: "dict[str, Any]") -> _Thing:
    total = described["memory_total_mib"]
    if type(total) is not int:
        raise TypeError("memory_total_mib is not an integer")
    memory = {"total": total << 20, "reserved": 0, "used": 0, "free": total << 20}
    own: dict[str, Any] = {
        "nvmlDeviceGetName": _text(described["name"]),
        "nvmlDeviceGetUUID": _text(described["uuid"]),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetIndex": described["index"],
    }
    card = _Thing(described, {**_IDLE, **own, **every.get("answers", {})})
    card.fields = {**_WELL, **copy.deepcopy(every.get("fields", {})), **described.get("fields", {})}
    card.divide(described.get("instances", []))
    return card


def _field(card: _Thing, wanted: Any) -> Any:
    """The value of one field, in the structure of the bindings."""
    number, scope = wanted if isinstance(wanted, tuple) else (wanted, 0)
    value = BINDINGS.c_nvmlFieldValue_t()
    value.fieldId, value.scopeId = number, scope
    answer = card.fields.get(str(number))
    if isinstance(answer, dict):
        answer = answer.get(str(scope))
    if answer is None:
        value.nvmlReturn = BINDINGS.NVML_ERROR_NOT_SUPPORTED
    else:
        value.valueType = BINDINGS.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = c_ulonglong(answer).value
    return value


def _structure(answer: Any) -> Any:
    if isinstance(answer, dict):
        return SimpleNamespace(**{key: _structure(value) for key, value in answer.items()})
    return [_structure(one) for one in answer] if isinstance(answer, list) else answer


def _error(name: str) -> Exception:
    return BINDINGS.NVMLError(getattr(BINDINGS, f"NVML_ERROR_{name}"))  # type: ignore[no-any-return] # Its own class.


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
