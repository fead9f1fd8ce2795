"""Traces leave real processes over OTLP, and a collector that is away, slow or refusing hurts nobody."""

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from control_plane.db.engine import Role as DatabaseRole
from control_plane.domain.money import Nano
from control_plane.services import administration, process
from demo import prices
from demo.city import LOCAL_TOKEN
from demo.ports import free_port
from demo.processes import Child, base_environment, start, wait_for
from tests.support.cases import case
from tests.support.collector import Collector, collecting
from tests.support.database import login_url
from tracing import starting
from tracing.exporting import CLOSE_SECONDS_MAX, RecordingTracer

SECONDS_MAX = 60
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def loggers_that_work() -> None:
    """import-linter, which other tests run in this process, disables every logger that there is."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("opentelemetry") and isinstance(logger, logging.Logger):
            logger.disabled = False


@dataclass
class Cloud:
    """The API, the reconciler and an emulated provider, each a process of its own."""

    http: httpx.Client
    secret: str
    api: Child
    reconciler: Child

    def lease_until(self, state: str, headers: dict[str, str]) -> None:
        body = {"sku": prices.SKU, "ssh_key_ids": []}
        made = self.http.post("/v1/leases", json=body, headers=headers)
        assert made.status_code == 202, made.text
        wait_for(
            f"the lease to be {state}",
            SECONDS_MAX,
            lambda: self.http.get(f"/v1/leases/{made.json()['id']}").json()["state"] == state,
            self.reconciler,
        )


@asynccontextmanager
async def _cloud(database_url: str, folder: Path, variables: dict[str, str]) -> AsyncIterator[Cloud]:
    async with process.administrator(database_url) as owner:
        await administration.load_price_book(owner, prices.price_book())
        made = await administration.bootstrap(owner, "acme", top_up=Nano(10**12), gpu_quota=64)
    assert isinstance(made, administration.FirstOrganization)
    environment = base_environment()
    children = []

    def child(name: str, arguments: list[str], more: dict[str, str]) -> Child:
        children.append(start(name, arguments, environment | more, folder / f"{name}.log"))
        return children[-1]

    try:
        emulator = child("emulator", ["providers.emulators", "local=0", "--simulated"], {})
        ready = wait_for(
            "the emulator",
            SECONDS_MAX,
            lambda: re.search(r"ready: local at (\S+)", emulator.log.read_text()),
            emulator,
        )
        assert isinstance(ready, re.Match)
        listen = f"127.0.0.1:{free_port()}"
        reconciler = child(
            "reconciler",
            ["reconciler", "run"],
            variables
            | {
                "SPLITPLANE_DATABASE_URL": login_url(database_url, DatabaseRole.RECONCILER),
                "SPLITPLANE_PROVIDER_ACCOUNTS": "local",
                "PROVIDER_LOCAL_URL": ready[1],
                "PROVIDER_LOCAL_TOKEN": LOCAL_TOKEN,
                "SPLITPLANE_ACCEPT_EMULATED_GPUS": "yes",
                "SPLITPLANE_SIMULATED_MACHINES": "yes",
                "SPLITPLANE_RECONCILER_METRICS_LISTEN": "127.0.0.1:0",
            },
        )
        api = child(
            "api",
            ["control_plane", "serve"],
            variables
            | {
                "SPLITPLANE_DATABASE_URL": login_url(database_url, DatabaseRole.API),
                "SPLITPLANE_LISTEN": listen,
                "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
            },
        )
        headers = {"Authorization": f"Bearer {made.issued.secret}"}
        with httpx.Client(base_url=f"http://{listen}", headers=headers, timeout=20) as client:
            wait_for("the API", SECONDS_MAX, lambda: _is_ready(client), api)
            yield Cloud(client, made.issued.secret, api, reconciler)
    finally:
        for each in reversed(children):
            each.end(40)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False


@pytest.mark.database
async def test_one_trace_leads_through_the_processes_from_the_request_to_the_providers_call(
    database_url: str, tmp_path: Path
) -> None:
    with collecting() as collector:
        async with _cloud(database_url, tmp_path, collector.variables()) as cloud:
            await asyncio.to_thread(cloud.lease_until, "ready", {"traceparent": CLIENT})
            cloud.api.end(30)
            cloud.reconciler.end(40)
        (launch,) = collector.named("provider launch")
        assert collector.path(launch) == [
            "splitplane-api: POST /v1/leases",
            "splitplane-api: transaction",
            "splitplane-reconciler: launch_machines",
            "splitplane-reconciler: provider launch",
        ]
        assert launch.trace_id != CLIENT.split("-")[1]
        assert launch.attributes["splitplane.outcome"] == "ok"
        assert {given["authorization"] for given in collector.headers} == {"planted-for-the-collector"}
        for planted in (cloud.secret, LOCAL_TOKEN, "planted"):
            assert planted.encode() not in collector.raw
    logs = [(tmp_path / f"{name}.log").read_text() for name in ("api", "reconciler")]
    assert all('"traces": true' in log or '"traces":true' in log for log in logs)
    assert not any("planted" in log or "Traceback" in log for log in logs)


def _has_the_line(log: Path) -> bool:
    return "traces_not_exported" in log.read_text()


@pytest.mark.database
async def test_without_a_collector_leases_are_served_and_the_log_has_one_line_about_it(
    database_url: str, tmp_path: Path
) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    async with _cloud(database_url, tmp_path, variables) as cloud:
        await asyncio.to_thread(cloud.lease_until, "ready", {})
        for child in (cloud.api, cloud.reconciler):
            wait_for("the line", SECONDS_MAX, partial(_has_the_line, child.log))
            child.end(40)
            assert child.process.returncode == 0
    for name in ("api", "reconciler"):
        log = (tmp_path / f"{name}.log").read_text()
        assert log.count("traces_not_exported") <= 2, log
        assert "Traceback" not in log
        assert all(line.startswith("{") for line in log.splitlines()), log


def _tracer(monkeypatch: pytest.MonkeyPatch, collector: Collector, said: list[str]) -> RecordingTracer:
    for name, value in collector.variables().items():
        monkeypatch.setenv(name, value)
    tracer = starting.tracer(collector.variables(), "test", said.append)
    assert isinstance(tracer, RecordingTracer)
    return tracer


def test_a_collector_that_never_answers_holds_nobody_up_and_the_queue_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tracing.exporting.CLOSE_SECONDS_MAX", 0.1)
    said: list[str] = []
    with collecting() as collector:
        collector.answers.clear()
        tracer = _tracer(monkeypatch, collector, said)
        with tracer.span("first"):
            pass
        assert collector.asked.wait(SECONDS_MAX)
        for _ in range(5_000):
            with tracer.span("more"):
                pass
        (processor,) = tracer._provider._active_span_processor._span_processors
        assert len(processor._batch_processor._queue) == 2_048  # type: ignore[attr-defined] # private: nothing public tells
        tracer.close()
        assert "traces" in {thread.name for thread in threading.enumerate()}, "it waited for the collector"
    assert len(said) == 1
    assert said[0].startswith("Queue full, dropping")


def test_a_collector_that_refuses_is_told_of_in_a_sentence_without_the_text_of_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for status in (401, 500):
        with case(str(status)), collecting() as collector:
            said: list[str] = []
            collector.status = status
            tracer = _tracer(monkeypatch, collector, said)
            with tracer.span("any"):
                pass
            assert collector.asked.wait(SECONDS_MAX)
            tracer.close()
            assert len(said) == 1
            assert said[0].startswith(f"Failed to export spans batch code: {status}")


def test_of_a_collector_that_answers_nonsense_only_the_status_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for head, told in (
        (b"HTTP/1.1 401 planted-for-the-collector \x1b[31m\r\n\r\n", "code: 401, reason: Unauthorized"),
        (b"HTTP/1.1 999 planted\r\n\r\n", "code: 999, reason: unknown status"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\nplanted", None),
        (b"planted-for-the-collector \x1b[31m", "Transient error ConnectionError"),
        (b"", "Transient error ConnectionError"),
    ):
        with case(head), collecting() as collector:
            said: list[str] = []
            collector.head = head
            tracer = _tracer(monkeypatch, collector, said)
            with tracer.span("any"):
                pass
            assert collector.asked.wait(SECONDS_MAX)
            tracer.close()
            assert len(said) == (told is not None)
            assert told is None or told in said[0]
            assert not any("planted" in text or "\x1b" in text for text in said)


def test_a_redirect_of_the_collector_is_a_failure_and_the_other_address_is_never_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for status in (301, 302, 307, 308):
        with case(status), collecting() as other, collecting() as collector:
            said: list[str] = []
            collector.head = f"HTTP/1.1 {status} Moved\r\nLocation: http://127.0.0.1:{other.port}/v1/traces\r\n\r\n".encode()
            tracer = _tracer(monkeypatch, collector, said)
            with tracer.span("any"):
                pass
            assert collector.asked.wait(SECONDS_MAX)
            tracer.close()
            assert said == ["Failed to export spans batch code: None, reason: CollectorRedirects"]
            assert not other.asked.is_set()


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        collector.head, collector.endless = b"HTTP/1.1 200 OK\r\n\r\n", True
        tracer = _tracer(monkeypatch, collector, [])
        for name in ("first", "second"):
            with tracer.span(name):
                pass
            assert tracer._provider.force_flush(SECONDS_MAX * 1_000)
        tracer.close()
        assert [span.name for span in collector.spans] == ["first", "second"]
        assert collector.sent < 64 * 2**20, "what fits into the buffers of two sockets"


def test_a_header_that_is_malformed_is_told_of_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with collecting() as collector:
        variables = collector.variables() | {"OTEL_EXPORTER_OTLP_HEADERS": "planted-without-a-name"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        starting.tracer(variables, "test", said.append).close()
    assert len(said) == 1
    assert "eader" in said[0]
    assert "planted" not in said[0]


def test_spans_that_come_after_the_end_are_no_trouble_and_hide_none(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with collecting() as collector:
        for name, value in collector.variables().items():
            monkeypatch.setenv(name, value)
        tracer = starting.tracer(collector.variables(), "test", said.append)
        of_the_sdk = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        of_the_sdk.warning("Exporter already shutdown, ignoring call")
        of_the_sdk.warning("the collector is full")
        tracer.close()
    assert said == ["the collector is full"]


def test_a_log_that_cannot_be_written_fails_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    with collecting() as collector:
        collector.status = 401
        variables = collector.variables() | {
            "OTEL_BSP_MAX_QUEUE_SIZE": "1",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        tracer = starting.tracer(variables, "test", gone)
        for _ in range(100):
            with tracer.span("any"):
                pass
        tracer.close()


def test_closing_exports_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        tracer = _tracer(monkeypatch, collector, [])
        with tracer.span("last"):
            pass
        tracer.close()
        assert [span.name for span in collector.spans] == ["last"]
    assert CLOSE_SECONDS_MAX <= 5, "both processes have deadlines for their end"


def test_while_traces_are_off_nothing_of_opentelemetry_is_imported() -> None:
    off = "\nfrom tracing import starting; assert not starting.tracer({}, 'x', print).on"
    programs = {
        "API": "import control_plane.api.server, control_plane.__main__" + off,
        "reconciler": "import reconciler.__main__, reconciler.compose\n"
        "from reconciler import registry; registry.discovered()" + off,
        "command line": "import control_plane.cli.main",
        "agent": "import data_plane.agent.__main__",
    }
    for name, program in programs.items():
        with case(name):
            code = f"{program}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
            ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            loaded = json.loads(ran.stdout)
            assert not [module for module in loaded if module.startswith("opentelemetry")]
            assert ("tracing" in loaded) == (off in program), "the command line and the agent have no traces"
