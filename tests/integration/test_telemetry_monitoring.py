"""The shipped alert rules and the dashboard for machines work on what we export, judged by promtool."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml

from control_plane.domain.exposition import FAMILIES, Named, exposed, points
from control_plane.domain.health import Verdict
from control_plane.domain.reading import GpuReading, HostReading, Reading, XidReading
from data_plane.documents.sample import encode_sample
from tests.support.prometheus import needs_promtool, promtool
from tests.support.samples import busy_sample

RULES = Path("docs/monitoring/telemetry-alerts.yml")
DASHBOARD = Path("docs/monitoring/telemetry-dashboard.json")
NAMED = Named("train-1", "le_1", "default", "org_1", "mc_1", "eu", "h100-sxm-80gb")
GPU = GpuReading(
    0, uuid="GPU-1", bus_id="0000:01:00.0", temperature_c=60, ecc_uncorrected_volatile=0, rows_failed=False
)
_KNOWN = {family.name for family in FAMILIES}
_NAME = re.compile(r"\b(?:DCGM_FI_\w+|vllm:\w+|splitplane_\w+)")


def _series(reading: Reading, verdict: Verdict = Verdict.HEALTHY, *, at: int = 0) -> dict[str, float]:
    """What the reading is as series, as promtool writes them."""
    moment = datetime.fromtimestamp(at, UTC)
    text = exposed(points(reading, NAMED, at=moment, verdict=verdict))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def _steady(series: dict[str, float]) -> list[dict[str, str]]:
    return [{"series": name, "values": f"{value:g}x30"} for name, value in series.items()]


WELL = Reading(gpus=(GPU,), host=HostReading(cpu_bp=10))
FIRES = {
    "SplitplaneGpuLost": (_series(replace(WELL, gpus=(replace(GPU, lost=True),))), 5),
    "SplitplaneGpuXid": (_series(replace(WELL, xids=(XidReading("xid", 79, GPU.bus_id),))), 5),
    "SplitplaneGpuMemoryErrors": (_series(replace(WELL, gpus=(replace(GPU, rows_failed=True),))), 5),
    "SplitplaneGpuHot": (_series(replace(WELL, gpus=(replace(GPU, temperature_c=95),))), 10),
    "SplitplaneMachineNotHealthy": (_series(WELL, Verdict.QUARANTINED), 5),
    "SplitplaneNoSamples": (_series(WELL), 10),
}
"""What each rule fires on, and after how many minutes. Time begins with the sample, so it is old then."""


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == FIRES.keys()
    tests = []
    for rule in rules:
        series, minutes = FIRES[rule["alert"]]
        quiet = _steady(_series(WELL, at=60 * minutes))
        for what, inputs, count in (("fires", _steady(series), 1), ("is silent", quiet, 0)):
            alert = {
                "expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            tests.append(
                {
                    "interval": "1m",
                    "name": f"{rule['alert']} {what}",
                    "input_series": inputs,
                    "promql_expr_test": [alert],
                }
            )
    path = tmp_path / "tests.yml"  # JSON is YAML.
    path.write_text(json.dumps({"rule_files": [str(RULES.resolve())], "tests": tests}))
    promtool("test", "rules", str(path))


@needs_promtool
def test_the_rules_are_valid_and_lint_free() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


DEFAULT_COUNTERS = [
    "SM_CLOCK",
    "MEM_CLOCK",
    "MEMORY_TEMP",
    "GPU_TEMP",
    "POWER_USAGE",
    "TOTAL_ENERGY_CONSUMPTION",
    "PCIE_REPLAY_COUNTER",
    "GPU_UTIL",
    "MEM_COPY_UTIL",
    "ENC_UTIL",
    "DEC_UTIL",
    "XID_ERRORS",
    "FB_FREE",
    "FB_USED",
    "FB_RESERVED",
    "NVLINK_BANDWIDTH_TOTAL",
    "VGPU_LICENSE_STATUS",
    "UNCORRECTABLE_REMAPPED_ROWS",
    "CORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_FAILURE",
]
PROFILING_COUNTERS = [
    "GR_ENGINE_ACTIVE",
    "PIPE_TENSOR_ACTIVE",
    "DRAM_ACTIVE",
    "PCIE_TX_BYTES",
    "PCIE_RX_BYTES",
]
"""Of etc/default-counters.csv of dcgm-exporter."""


def test_the_default_counters_of_dcgm_exporter_are_there_and_the_page_says_which_are_not() -> None:
    default = {f"DCGM_FI_DEV_{name}" for name in DEFAULT_COUNTERS}
    default |= {f"DCGM_FI_PROF_{name}" for name in PROFILING_COUNTERS}
    missing = default - _KNOWN
    assert missing == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS"}
    page = Path("docs/telemetry.md").read_text()
    assert all(name in page for name in missing | {"DCGM_FI_DRIVER_VERSION"})


def test_every_value_of_a_busy_machine_is_shown() -> None:
    """So no metric is named that no machine can have."""
    reading = msgspec.convert(json.loads(encode_sample(busy_sample())), Reading)
    shown = {name.partition("{")[0] for name in _series(reading)}
    assert shown == _KNOWN


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    for path in (RULES, DASHBOARD):
        found = set(_NAME.findall(path.read_text()))
        assert found - {"splitplane_telemetry"} <= _KNOWN, path
        assert found
    dashboard = json.loads(DASHBOARD.read_text())
    assert all(panel["targets"][0]["expr"] for panel in dashboard["panels"])
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "datasource",
        "project",
        "lease",
    }
