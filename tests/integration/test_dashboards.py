"""The shipped dashboards and alert rules, evaluated by a real Prometheus that scraped what our processes export."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import msgspec
import pytest

from control_plane.domain.exposition import Named, exposed, points
from control_plane.domain.health import Verdict
from control_plane.domain.reading import Reading
from data_plane.documents.sample import encode_sample
from providers import guard
from reconciler import proving, runner
from reconciler.figures import VANISHED
from tests.support.cases import case
from tests.support.prometheus import Series, exported_by_all, needs_prometheus, prometheus, until
from tests.support.samples import XID_79, busy_sample

FOLDER = Path("docs/monitoring")
DASHBOARDS = sorted(FOLDER.glob("*-dashboard.json"))
RULES = sorted(path for path in FOLDER.glob("*.yml") if not path.name.startswith("prometheus-"))
_VARIABLE = re.compile(r"\$\w+")


def _machines() -> str:
    """What `GET /v1/metrics` shows of a busy machine that reported an error."""
    sample = json.loads(encode_sample(busy_sample())) | {"xids": [vars(XID_79)]}
    named = Named("train-1", "le_1", "default", "org_1", "mc_1", "eu", "h100-sxm-80gb")
    reading = msgspec.convert(sample, Reading)
    at = datetime(2026, 11, 28, tzinfo=UTC)
    return exposed(points(reading, named, at=at, verdict=Verdict.DEGRADED))


def _pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pages to scrape, by path. Metrics that have series only once something happened have one."""
    runner.ACTIVATIONS.labels("place_leases", "", "ok").inc()
    runner.SECONDS.labels("place_leases", "").observe(0.1)
    runner.LAST_ACTIVATION.labels("place_leases", "").set_to_current_time()
    runner.LAST_SUCCESS.labels("place_leases", "").set_to_current_time()
    runner.LATE_AFTER.labels("place_leases", "").set(60)
    guard.CALLS.labels("fake", "inventory", "ok").inc()
    guard.BREAKER_OPEN.labels("fake").set(0)
    proving.PROOFS.labels("start", "passed").inc()
    VANISHED.labels("fake").inc()
    pages = {process.name: process.text for process in exported_by_all(monkeypatch)}
    return pages | {"machines": _machines()}


@contextmanager
def _served(pages: dict[str, str]) -> Iterator[str]:
    """An exporter with these pages; its host and port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = pages[self.path.strip("/")].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Prometheus:
    client: httpx.Client

    def query(self, expression: str) -> list[Series]:
        """Raises AssertionError for an expression that Prometheus refuses."""
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        assert answer["data"]["resultType"] == "vector", answer
        return msgspec.convert(answer["data"]["result"], list[Series])

    def rules(self) -> list[dict[str, Any]]:
        groups = self.client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def scraped() -> Iterator[Prometheus]:
    """A Prometheus with our rules that scraped every page three times, so that rates have values."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        pages = _pages(monkeypatch)
        with _served(pages) as target:
            configuration = {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(path.resolve()) for path in RULES],
                "scrape_configs": [
                    {"job_name": name, "metrics_path": f"/{name}", "static_configs": [{"targets": [target]}]}
                    for name in pages
                ],
            }
            with prometheus(json.dumps(configuration)) as url, httpx.Client(base_url=url) as client:
                server = Prometheus(client)

                def is_scraped() -> bool:
                    counts = [series.value[1] for series in server.query("sum_over_time(up[1m])")]
                    return len(counts) == len(pages) and all(float(count) >= 3 for count in counts)

                until(is_scraped)
                yield server


def _panels(path: Path) -> Iterator[tuple[str, str]]:
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@needs_prometheus
def test_every_panel_of_every_dashboard_shows_series_of_what_we_export(scraped: Prometheus) -> None:
    assert len(DASHBOARDS) >= 5
    for path in DASHBOARDS:
        for title, expression in _panels(path):
            with case(f"{path.name}: {title}"):
                assert scraped.query(_VARIABLE.sub(".*", expression)), expression


@needs_prometheus
def test_the_variables_of_dashboards_have_values(scraped: Prometheus) -> None:
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
            with case(f"{path.name}: {variable['name']}"):
                if found is None:
                    assert variable["query"] == "prometheus"
                else:
                    assert all(found[2] in series.metric for series in scraped.query(found[1]))
                    assert scraped.query(found[1])


@needs_prometheus
def test_prometheus_takes_every_rule_and_evaluates_it_without_an_error(scraped: Prometheus) -> None:
    until(lambda: all(rule["health"] != "unknown" for rule in scraped.rules()))
    rules = scraped.rules()
    assert {rule["name"] for rule in rules} >= {
        "SplitplaneGpuLost",
        "SplitplaneLoopLate",
        "SplitplanePoolEmpty",
        "SplitplaneRepairWaits",
        "SplitplaneIngestDown",
    }
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


@needs_prometheus
def test_an_alert_about_a_machine_fires_on_what_the_machine_reported(scraped: Prometheus) -> None:
    until(lambda: any(rule["name"] == "SplitplaneGpuXid" and rule["alerts"] for rule in scraped.rules()))
    (alert,) = next(rule["alerts"] for rule in scraped.rules() if rule["name"] == "SplitplaneGpuXid")
    assert (alert["labels"]["lease"], alert["labels"]["gpu"], alert["state"]) == ("train-1", "0", "firing")
    assert alert["annotations"]["summary"].startswith("The driver reported XID 79 for GPU 0 of train-1")


def test_each_dashboard_has_a_place_for_each_panel_and_a_unit() -> None:
    uids = set()
    for path in DASHBOARDS:
        with case(path.name):
            dashboard = json.loads(path.read_text())
            uids.add(dashboard["uid"])
            places = [
                {(panel["gridPos"]["x"] + x, panel["gridPos"]["y"]) for x in range(panel["gridPos"]["w"])}
                for panel in dashboard["panels"]
            ]
            assert sum(map(len, places)) == len(set().union(*places)), "two panels overlap"
            assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard["panels"])
            assert all(target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"])
    assert len(uids) == len(DASHBOARDS)
