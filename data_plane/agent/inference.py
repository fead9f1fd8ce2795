"""Reads the metrics of inference servers on the machine, and in its pods if it is a node of a cluster: vLLM, SGLang,
TensorRT-LLM and Triton, by their own names.

Servers count for as long as they run and say little about now, so what happened since the previous reading is computed
here. The names are those that the servers export; where one has changed, the newest is first.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from data_plane.agent import prometheus_text
from data_plane.agent.prometheus_text import Samples
from data_plane.documents.records import fitting
from data_plane.documents.sample import SERVERS_MAX, Engine, Server

PORTS = (8000, 8002, 30000)
"""Where the servers listen unless told otherwise: vLLM and TensorRT-LLM, Triton's metrics, SGLang."""
PORTS_MAX = 32
HOST = "127.0.0.1"
READ_SECONDS = 5
"""After so long no further server is asked for this reading. A pod that drops packets costs 2 s, once in
`QUIET_SECONDS`."""
VARIABLE = "SPLITPLANE_INFERENCE_PORTS"
"""Of the service's environment: further ports, with commas between them."""
PATHS = ("/metrics", "/prometheus/metrics")
"""TensorRT-LLM has JSON at the first."""
QUIET_SECONDS = 300
"""Before a port is asked again that answered, and was no inference server: it would fill somebody's logs."""

T = TypeVar("T")
_Names = Sequence[str]

Fetch = Callable[[str, int, str], "str | None"]
"""The text at an address, port and path; None if it has none. Raises OSError if nobody answers."""
_Place = tuple[str, int]
"""An address and a port."""


def ports(text: str) -> "tuple[int, ...]":
    """The ports to ask: those of PORTS and those in `text`. What is no port there is left out."""
    further = [int(word) for word in re.findall("[0-9]{1,5}", text) if 0 < int(word) < 1 << 16]
    return tuple(dict.fromkeys([*further, *PORTS]))[:PORTS_MAX]


@dataclass(frozen=True)
class _Metrics:
    """What an engine calls its metrics. The first name that is there counts."""

    kv_cache: _Names = ()
    running: _Names = ()
    waiting: _Names = ()
    preemptions: _Names = ()
    prompt_tokens: _Names = ()
    generation_tokens: _Names = ()
    ttft: _Names = ()
    """Histograms."""
    itl: _Names = ()
    ttft_unit_us: int = 1_000_000

    def names(self) -> "set[str]":
        counters = {*self.preemptions, *self.prompt_tokens, *self.generation_tokens}
        histograms = {*self.ttft, *self.itl}
        return (
            {*self.kv_cache, *self.running, *self.waiting}
            | counters
            | {f"{name}_total" for name in counters}
            | {f"{name}_{end}" for name in histograms for end in ("sum", "count")}
        )


_ENGINES: "Mapping[Engine, _Metrics]" = {
    "vllm": _Metrics(
        kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        preemptions=("vllm:num_preemptions",),
        prompt_tokens=("vllm:prompt_tokens",),
        generation_tokens=("vllm:generation_tokens",),
        ttft=("vllm:time_to_first_token_seconds",),
        itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    ),
    "sglang": _Metrics(
        kv_cache=("sglang:token_usage",),
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        preemptions=("sglang:num_retractions",),
        prompt_tokens=("sglang:prompt_tokens",),
        generation_tokens=("sglang:generation_tokens",),
        ttft=("sglang:time_to_first_token_seconds",),
        itl=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    ),
    "tensorrt_llm": _Metrics(
        kv_cache=("trtllm_kv_cache_utilization",),
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        prompt_tokens=("trtllm_prompt_tokens",),
        generation_tokens=("trtllm_generation_tokens",),
        ttft=("trtllm_time_to_first_token_seconds",),
        itl=("trtllm_time_per_output_token_seconds",),
    ),
    # Triton counts inferences and no tokens; its histogram of first responses is of models that answer in parts.
    "triton": _Metrics(
        waiting=("nv_inference_pending_request_count",),
        ttft=("nv_inference_first_response_histogram_ms",),
        ttft_unit_us=1000,
    ),
}
_WANTED = frozenset(name for metrics in _ENGINES.values() for name in metrics.names())


@dataclass(frozen=True)
class _Reading:
    """Of one server."""

    engine: Engine
    samples: Samples
    at: float

    def value(self, names: _Names, *, counter: bool = False) -> "float | None":
        """The sum over all series of the first metric that is there."""
        found = _first(self.samples, names, counter=counter)
        return None if found is None else sum(found)

    def highest(self, names: _Names) -> "float | None":
        found = _first(self.samples, names)
        return None if found is None else max(found)


@dataclass
class Inference:
    """Each call of `read` tells about the time since the previous call."""

    fetch: Fetch
    at: "Sequence[int]" = PORTS
    """Ports."""
    pods: "Callable[[], Sequence[str]]" = tuple
    """The addresses of the pods on this machine."""
    monotonic: "Callable[[], float]" = time.monotonic
    _before: "dict[_Place, _Reading]" = field(default_factory=dict)
    _quiet_until: "dict[_Place, float]" = field(default_factory=dict)

    def read(self) -> "tuple[Server, ...]":
        places = [(host, port) for host in (HOST, *self.pods()) for port in self.at]
        self._before = _only(self._before, places)
        self._quiet_until = _only(self._quiet_until, places)
        found: dict[_Place, Server] = {}
        deadline = self.monotonic() + READ_SECONDS
        for place in sorted(places, key=self._turn):
            if len(found) == SERVERS_MAX or self.monotonic() >= deadline:
                break
            reading = self._read(place)
            before = self._before.pop(place, None)
            if reading is not None:
                self._before[place] = reading
                found[place] = _server(place, before, reading)
        return tuple(found[place] for place in places if place in found)

    def _turn(self, place: _Place) -> "tuple[bool, float]":
        """Those that were found before come first, so that others that are slow take nothing from them; of the others,
        those that were left alone for the longest, so that however many are slow, each has its turn.
        """
        return place not in self._before, self._quiet_until.get(place, 0.0)

    def _read(self, place: _Place) -> "_Reading | None":
        now = self.monotonic()
        if now < self._quiet_until.get(place, now):
            return None
        for path in PATHS:
            try:
                text = self.fetch(*place, path)
            except TimeoutError:
                if place[0] != HOST and place not in self._before:
                    self._quiet_until[place] = now + QUIET_SECONDS
                return None
            except OSError:
                return None  # Nobody listens.
            samples = prometheus_text.read(text or "", _WANTED)
            for engine, metrics in _ENGINES.items():
                if not samples.keys().isdisjoint(metrics.names()):
                    return _Reading(engine, samples, now)
        self._quiet_until[place] = now + QUIET_SECONDS
        return None


def _only(known: "Mapping[_Place, T]", places: "Sequence[_Place]") -> "dict[_Place, T]":
    """What is known of these places, in their order. A pod that is gone leaves nothing behind."""
    return {place: known[place] for place in dict.fromkeys(places) if place in known}


def _server(place: _Place, before: "_Reading | None", now: _Reading) -> Server:
    names = _ENGINES[now.engine]
    if before is None or before.engine != now.engine or before.at >= now.at:
        before = None
    cache = now.highest(names.kv_cache)
    return fitting(
        Server,
        port=place[1],
        engine=now.engine,
        kv_cache_bp=_whole(None if cache is None else 10_000 * cache),
        running=_whole(now.value(names.running)),
        waiting=_whole(now.value(names.waiting)),
        preemptions=_whole(now.value(names.preemptions, counter=True)),
        prompt_tokens=_whole(now.value(names.prompt_tokens, counter=True)),
        generation_tokens=_whole(now.value(names.generation_tokens, counter=True)),
        prompt_tokens_per_second=_rate(before, now, names.prompt_tokens),
        generation_tokens_per_second=_rate(before, now, names.generation_tokens),
        ttft_us=_mean(before, now, names.ttft, names.ttft_unit_us),
        itl_us=_mean(before, now, names.itl, 1_000_000),
        pod_ip=None if place[0] == HOST else place[0],
    )


def _first(samples: Samples, names: _Names, *, counter: bool = False) -> "Sequence[float] | None":
    for name in names:
        found = samples.get(f"{name}_total") if counter else None
        if found is None:
            found = samples.get(name)
        if found is not None:
            return found
    return None


def _rate(before: "_Reading | None", now: _Reading, names: _Names) -> "int | None":
    if before is None:
        return None
    earlier, later = before.value(names, counter=True), now.value(names, counter=True)
    if earlier is None or later is None or later < earlier:  # Lower: the server was started anew.
        return None
    return _whole((later - earlier) / (now.at - before.at))


def _mean(before: "_Reading | None", now: _Reading, names: _Names, unit_us: int) -> "int | None":
    """Of what a histogram got since the previous reading, in microseconds."""
    if before is None:
        return None
    for name in names:
        ends = [(each.value([f"{name}_sum"]), each.value([f"{name}_count"])) for each in (before, now)]
        (sum_before, count_before), (sum_now, count_now) = ends
        if sum_before is None or count_before is None or sum_now is None or count_now is None:
            continue
        if count_now <= count_before or sum_now < sum_before:
            return None
        return _whole(unit_us * (sum_now - sum_before) / (count_now - count_before))
    return None


def _whole(value: "float | None") -> "int | None":
    """Rounded; None for what no counter of a server can be."""
    return round(value) if value is not None and 0 <= value < 1 << 63 else None
