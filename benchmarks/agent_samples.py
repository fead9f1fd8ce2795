"""What the agent's samples cost a machine with 8 GPUs: CPU of both of its processes, and bytes.

The cards are emulated, so the driver's own time is not in the figures. Everything around it is: the agent's calls, the
document that one process prints and the other one reads, this host's /proc and /sys, the metrics of a vLLM server with
300 series over loopback, the sample, its compression, and its delivery over a real connection. CPU time of the thread
that does it, median of 200.
"""

import asyncio
import gzip
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.results import Figure, median
from data_plane.agent import local_page
from data_plane.agent.host_usage import HostUsage
from data_plane.agent.inference import Inference
from data_plane.agent.sample_line import deliver
from data_plane.agent.spool import SAMPLES, Spool
from data_plane.documents import protocol
from data_plane.documents.agent_config import Config
from data_plane.documents.health import Health
from data_plane.documents.sample import SECONDS, Sample, encode_sample, sample_gpus
from data_plane.documents.sample_delivery import Delivery, encode_delivery
from tests.support.cards import Clock, monitor
from tests.support.ingest_server import IngestServer
from tests.support.samples import busy_sample

ROUNDS = 200
HOST = "127.0.0.1"
SERIES = 300


async def measure() -> list[Figure]:
    return await asyncio.to_thread(_measure)


def _measure() -> list[Figure]:
    clock = Clock()
    cards = monitor("h100-sxm-8", clock=clock)
    health = cards.look()
    watching = _milliseconds(lambda: _watched(cards.look(), clock))
    page = _page()
    server = ThreadingHTTPServer((HOST, 0), page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ingest = IngestServer(HOST)
    with tempfile.TemporaryDirectory() as folder, ingest.listening():
        config = Config("0" * 64, HOST, HOST, samples_port=ingest.port)
        host, inference = HostUsage(), Inference(local_page.get, (server.server_address[1],))
        line = protocol.encode(health).encode()
        spool = Spool(Path(folder), SAMPLES, 1920)
        sample = replace(busy_sample(), gpus=sample_gpus(health))

        def read() -> Sample:
            document = protocol.decode(line)
            assert isinstance(document, Health)
            return replace(sample, gpus=sample_gpus(document), host=host.read(), servers=inference.read())

        reading = _milliseconds(read)
        delivering = _milliseconds(lambda: deliver(config, Delivery(0, (read(),)))) - reading
        keeping = _milliseconds(lambda: _kept(spool, read())) - reading
        sent = read()
    server.shutdown()
    server.server_close()
    busy = Delivery(0, (busy_sample(),))
    whole = watching + reading + delivering
    return [
        Figure("watching 8 GPUs", watching, "ms of CPU", note="emulated: without the driver's own time"),
        Figure("reading a sample", reading, "ms of CPU"),
        Figure("delivering it", delivering, "ms of CPU"),
        Figure("keeping it on disk instead", keeping, "ms of CPU"),
        Figure("of one core", whole / (10 * SECONDS), "%", "<= 10", f"a sample every {SECONDS} s"),
        Figure("a sample as JSON", len(encode_sample(sent)), "bytes"),
        Figure("a delivery of one sample, GPUs idle", len(encode_delivery(Delivery(0, (sent,)))), "bytes"),
        Figure("a delivery of one sample, GPUs busy", len(encode_delivery(busy)), "bytes", "<= 2048"),
        Figure("a sample on disk", len(gzip.compress(encode_sample(sent))), "bytes"),
    ]


def _milliseconds(work: Callable[[], object]) -> float:
    """The thread's own CPU time, without that of the servers that it speaks to."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        work()
        taken.append(1000 * (time.thread_time() - began))
    return median(taken)


def _watched(health: Health, clock: Clock) -> None:
    line = protocol.encode(health).encode()
    protocol.decode(line)  # As the process does before it prints.
    clock.sleep(SECONDS)


def _kept(spool: Spool[Sample], sample: Sample) -> None:
    spool.add(replace(sample, sequence=spool.next_sequence))


def _page() -> type[BaseHTTPRequestHandler]:
    lines = [
        f'vllm:some_other_metric_{n}{{engine="0",model_name="meta-llama/Llama-3.1-70B"}} {n}.0'
        for n in range(SERIES)
    ]
    lines += [
        "vllm:kv_cache_usage_perc 0.5",
        "vllm:num_requests_running 7.0",
        "vllm:generation_tokens_total 1e9",
    ]
    content = "\n".join(lines).encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    return Page
