"""What is read of inference servers: by the names of each engine, and whatever a program on the machine answers."""

import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.agent import prometheus_text
from data_plane.agent.inference import (
    HOST,
    PORTS,
    PORTS_MAX,
    QUIET_SECONDS,
    READ_SECONDS,
    Inference,
    ports,
)
from data_plane.agent.pods import PODS_MAX, addresses
from data_plane.documents import records
from data_plane.documents.sample import SERVERS_MAX, Server

VLLM = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta/Llama"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a \\"quoted\\" } name"} 0.975
vllm:num_requests_running{engine="0",model_name="meta/Llama"} 30.0
vllm:num_requests_running{engine="1",model_name="meta/Llama"} 12.0
vllm:num_requests_waiting{engine="0",model_name="meta/Llama"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:num_preemptions_total{engine="0"} 7.0
vllm:prompt_tokens_total{engine="0"} PROMPT
vllm:generation_tokens_total{engine="0"} GENERATED
vllm:generation_tokens_created{engine="0"} 1.7e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:time_to_first_token_seconds_count{engine="0"} REQUESTS
vllm:time_to_first_token_seconds_sum{engine="0"} TTFT
vllm:inter_token_latency_seconds_count{engine="0"} GENERATED
vllm:inter_token_latency_seconds_sum{engine="0"} ITL
"""
SGLANG = """sglang:token_usage{model_name="m"} 0.5
sglang:num_used_tokens{model_name="m"} 123.0
sglang:num_running_reqs{model_name="m"} 4.0
sglang:num_queue_reqs{model_name="m"} 9.0
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 2000.0
"""
TENSORRT_LLM = """trtllm_kv_cache_utilization 0.125
trtllm_num_requests_running 2
trtllm_num_requests_waiting 1
trtllm_generation_tokens_total 50
"""
TRITON = """nv_inference_pending_request_count{model="a",version="1"} 5
nv_inference_pending_request_count{model="b",version="1"} 6
nv_inference_count{model="a",version="1"} 100
"""


def vllm(prompt: int, generated: int, requests: int, ttft: float, itl: float) -> str:
    text = VLLM.replace("PROMPT", str(prompt)).replace("GENERATED", str(generated))
    return text.replace("REQUESTS", str(requests)).replace("TTFT", str(ttft)).replace("ITL", str(itl))


@dataclass
class Machine:
    pages: dict[tuple[int, str], str | None] = field(default_factory=dict[tuple[int, str], str | None])
    asked: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    of_pods: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Pages of programs in pods."""
    asked_of_pods: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    silent: set[str] = field(default_factory=set[str])
    """Pods that drop what they get."""
    now: float = 0.0

    def fetch(self, host: str, port: int, path: str) -> str | None:
        if host != HOST:
            return self._fetch_of_pod(host, port, path)
        self.asked.append((port, path))
        if not any(port == there for there, _ in self.pages):
            raise ConnectionRefusedError
        return self.pages.get((port, path))

    def _fetch_of_pod(self, host: str, port: int, path: str) -> str | None:
        self.asked_of_pods.append((host, port))
        if host in self.silent:
            self.now += 2
            raise TimeoutError
        if (host, port) not in self.of_pods:
            raise ConnectionRefusedError
        return self.of_pods[host, port] if path == "/metrics" else None

    def reader(self, *pods: str) -> Inference:
        return Inference(self.fetch, pods=lambda: pods, monotonic=lambda: self.now)


def test_a_vllm_server_is_read_by_its_own_names() -> None:
    machine = Machine()
    reader = machine.reader()
    machine.pages[8000, "/metrics"] = vllm(1000, 5000, 10, 2.0, 100.0)
    (first,) = reader.read()
    assert first == Server(
        port=8000,
        engine="vllm",
        kv_cache_bp=9750,
        running=42,
        waiting=3,
        preemptions=7,
        prompt_tokens=1000,
        generation_tokens=5000,
    ), "the first reading knows no rates"
    machine.now += 15
    machine.pages[8000, "/metrics"] = vllm(4000, 20_000, 14, 3.0, 400.0)
    (second,) = reader.read()
    assert (second.prompt_tokens_per_second, second.generation_tokens_per_second) == (200, 1000)
    assert (second.ttft_us, second.itl_us) == (250_000, 20_000)
    machine.now += 15
    (idle,) = reader.read()
    assert (idle.generation_tokens_per_second, idle.ttft_us, idle.itl_us) == (0, None, None)


def test_a_server_that_was_started_anew_has_no_rate_below_zero() -> None:
    machine = Machine({(8000, "/metrics"): vllm(1000, 5000, 10, 2.0, 100.0)})
    reader = machine.reader()
    reader.read()
    machine.now += 15
    machine.pages[8000, "/metrics"] = vllm(10, 50, 1, 0.5, 1.0)
    (again,) = reader.read()
    assert again.generation_tokens == 50
    assert (again.generation_tokens_per_second, again.ttft_us, again.itl_us) == (None, None, None)


def test_an_older_vllm_has_older_names() -> None:
    text = "vllm:gpu_cache_usage_perc 0.1\nvllm:time_per_output_token_seconds_sum {}\n"
    text += "vllm:time_per_output_token_seconds_count {}\n"
    machine = Machine({(8000, "/metrics"): text.format(1, 10)})
    reader = machine.reader()
    reader.read()
    machine.now += 15
    machine.pages[8000, "/metrics"] = text.format(2, 20)
    (server,) = reader.read()
    assert (server.kv_cache_bp, server.itl_us) == (1000, 100_000)


def test_its_cousins_are_read_by_theirs() -> None:
    machine = Machine(
        {
            (8000, "/metrics"): '{"this": "is JSON"}',
            (8000, "/prometheus/metrics"): TENSORRT_LLM,
            (8002, "/metrics"): TRITON,
            (30000, "/metrics"): SGLANG,
        }
    )
    assert machine.reader().read() == (
        Server(8000, "tensorrt_llm", 1250, 2, 1, None, None, 50),
        Server(8002, "triton", waiting=11),
        Server(30000, "sglang", 5000, 4, 9, None, 1000, 2000),
    )


def test_a_port_with_something_else_is_left_alone_for_minutes() -> None:
    machine = Machine({(8000, "/metrics"): None, (8002, "/metrics"): "<html>"})
    reader = machine.reader()
    for _ in range(int(QUIET_SECONDS / 15)):
        assert reader.read() == ()
        machine.now += 15
    assert machine.asked.count((8000, "/metrics")) == 1
    assert machine.asked.count((8002, "/metrics")) == 1
    assert machine.asked.count((30000, "/metrics")) == 20, "asking where nobody listens costs nothing"
    machine.pages[8000, "/metrics"] = SGLANG
    assert len(reader.read()) == 1


def test_further_ports_are_asked_before_the_usual_ones() -> None:
    assert ports("") == PORTS
    assert ports("9000, 8000;nonsense 0 99999") == (9000, 8000, 8002, 30000)
    assert len(ports(",".join(map(str, range(1, 1000))))) == PORTS_MAX


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("a 1", [1.0]),
        ("a\t1 1700000000000", [1.0]),
        ('a{b="c"} 1e3', [1000.0]),
        ('a{b="}{ 7 \\" 8",c="d",} 2', [2.0]),
        ("a{} +Inf", []),
        ("a NaN", []),
        ("a -1", [-1.0]),
        ("a 1..2", []),
        ("a", []),
        ("a{", []),
        ('a{b="c} 1', []),
        ("ab 1", []),
        ("a 0x10", []),
        ('a 1 # {trace_id="1"} 5', [1.0]),
    ],
)  # fmt: skip
def test_lines_of_the_text_format(line: str, values: list[float]) -> None:
    assert prometheus_text.read(f"# HELP a x\n{line}\nb 1\n", frozenset({"a"})).get("a", []) == values


_LINES = st.lists(
    st.builds(
        lambda name, labels, value: f"{name}{labels} {value}",
        st.sampled_from(
            [
                "vllm:kv_cache_usage_perc",
                "vllm:generation_tokens_total",
                "vllm:time_to_first_token_seconds_sum",
                "vllm:time_to_first_token_seconds_count",
                "sglang:token_usage",
            ]
        ),
        st.sampled_from(["", "{}", '{a="b"}', '{a="', "{{{"]) | st.text(max_size=10),
        st.floats().map(str) | st.integers().map(str) | st.text(max_size=10),
    )
    | st.text(max_size=40)
).map("\n".join)


def test_servers_in_pods_are_read_beside_those_of_the_machine_and_each_by_itself() -> None:
    machine, pods = Machine({(8000, "/metrics"): SGLANG}), ["10.42.3.7", "10.42.3.9"]
    reader = machine.reader(*pods)
    for pod, generated in zip(pods, (100, 900), strict=True):
        machine.of_pods[pod, 8000] = vllm(10, generated, 1, 0.5, 1.0)
    assert [(each.pod_ip, each.port, each.engine) for each in reader.read()] == [
        (None, 8000, "sglang"),
        (pods[0], 8000, "vllm"),
        (pods[1], 8000, "vllm"),
    ]
    machine.now += 10
    machine.of_pods[pods[0], 8000] = vllm(10, 150, 1, 0.5, 1.0)
    machine.of_pods[pods[1], 8000] = vllm(10, 1900, 1, 0.5, 1.0)
    assert [each.generation_tokens_per_second for each in reader.read()] == [0, 5, 100]


def _found_behind(machine: Machine, address: str) -> Inference:
    """Read until the server of a pod is found that comes after all pods which drop what they get."""
    reader = machine.reader(*sorted(machine.silent), address)
    machine.of_pods[address, 8000] = SGLANG
    reads = 0
    while not reader.read():
        reads += 1
        machine.now += 15
        assert reads < len(machine.silent) * len(PORTS), (
            "each silent one is left alone, so others get their turn"
        )
    return reader


def test_pods_that_drop_what_they_get_delay_a_reading_by_seconds_and_no_server_that_was_found() -> None:
    machine = Machine(silent={f"10.42.3.{number}" for number in range(10, 20)})
    reader = _found_behind(machine, "10.42.3.200")
    machine.now += QUIET_SECONDS  # All are asked again, and that takes longer than a reading may.
    before = machine.now
    assert [each.pod_ip for each in reader.read()] == ["10.42.3.200"]
    assert machine.now - before <= READ_SECONDS + 2
    machine.silent.add("10.42.3.200")  # Too busy to answer once.
    assert reader.read() == ()
    machine.silent.remove("10.42.3.200")
    before = machine.now
    while not reader.read():
        machine.now += 15
    assert machine.now - before < QUIET_SECONDS, "one that was a server is not left alone"


def test_however_many_pods_drop_what_they_get_every_place_has_its_turn() -> None:
    """More than are asked until the first ones are asked again."""
    _found_behind(Machine(silent={f"10.42.3.{number}" for number in range(10, 70)}), "10.42.3.200")


def test_nothing_is_kept_of_pods_that_are_gone_and_a_sample_has_room_for_few_servers() -> None:
    machine, pods = Machine(), [f"10.42.3.{number}" for number in range(1, SERVERS_MAX + 3)]
    reader = Inference(machine.fetch, pods=lambda: pods, monotonic=lambda: machine.now)
    for pod in pods:
        machine.of_pods[pod, 8000] = vllm(10, 100, 1, 0.5, 1.0)
    assert len(reader.read()) == SERVERS_MAX
    gone = pods.pop(0)
    assert len(reader.read()) == SERVERS_MAX
    pods.insert(0, gone)  # Another pod, with the same address.
    machine.now += 10
    del pods[SERVERS_MAX:]
    (again,) = [each for each in reader.read() if each.pod_ip == gone]
    assert again.generation_tokens_per_second is None


def test_a_pod_that_gets_the_address_of_one_that_was_left_alone_is_read_at_once() -> None:
    pod, pods = "10.42.3.7", ["10.42.3.7"]
    machine = Machine(silent={pod})
    reader = Inference(machine.fetch, pods=lambda: pods, monotonic=lambda: machine.now)
    for _ in PORTS:
        assert reader.read() == ()
    pods.clear()
    assert reader.read() == ()
    machine.silent.clear()
    machine.of_pods[pod, 8000] = SGLANG
    pods.append(pod)
    assert [server.pod_ip for server in reader.read()] == [pod]


def test_the_addresses_of_pods_are_those_that_the_network_plugin_has_given_out(tmp_path: Path) -> None:
    assert addresses(tmp_path / "no node") == ()
    for name in ("10.42.3.10", "10.42.3.9", "lock", "last_reserved_ip.0", "fd00::1"):
        (tmp_path / name).touch()
    assert addresses(tmp_path) == ("10.42.3.9", "10.42.3.10")
    for number in range(PODS_MAX + 5):
        (tmp_path / f"10.42.4.{number}").touch()
    assert addresses(tmp_path) == ("10.42.3.9", "10.42.3.10", *(f"10.42.4.{number}" for number in range(108)))
    assert len(addresses(tmp_path)) == PODS_MAX


@given(st.lists(_LINES, min_size=1, max_size=4))
def test_whatever_a_program_answers_the_sample_is_within_its_bounds(pages: list[str]) -> None:
    machine = Machine()
    reader = machine.reader()
    for page in pages:
        machine.pages[8000, "/metrics"] = page
        machine.now += QUIET_SECONDS
        for server in reader.read():
            assert records.read(Server, vars(server), "server") == server


_NAME = "vllm:kv_cache_usage_perc"


@pytest.mark.parametrize(
    "page",
    [
        _NAME + "{" + 'a="b",' * 300_000,
        _NAME + " " * (2 << 20) + "x",
        f"{_NAME}{' ' * 4000}x\n" * 500,
        f"{_NAME}{{{' ' * 4000}x\n" * 500,
        _NAME + '{a="' + "x" * (2 << 20) + '"} 1',
        _NAME + "{" + '""' * (1 << 20),
        _NAME + '{"' + "\\\\" * (1 << 20),
        "\n" * (2 << 20),
        f"{_NAME} 1\n" * 70_000,
    ],
    ids=["labels", "spaces", "lines of spaces", "braces", "quoted", "quotes", "escapes", "lines", "series"],
)
def test_a_page_that_is_made_to_take_long_or_to_fill_memory_does_not(page: str) -> None:
    """Of the largest size that is read, in 256 MiB. A pattern with two ways through a line takes hours."""
    tracemalloc.start()
    try:
        found = prometheus_text.read(page, frozenset({_NAME}))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 << 20
    assert len(found.get(_NAME, ())) <= prometheus_text.LINES_MAX
