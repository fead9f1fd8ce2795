"""The service objectives, computed by promtool: what counts as failed, and when the alerts fire."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cases import case
from tests.support.prometheus import exported_by_all, needs_promtool, promtool

RULES = Path("docs/monitoring/objectives.yml")
PAGE = Path("docs/objectives.md")
MINUTES = 400
"""Longer than six hours, so that each window but the last is full."""

SUCCESS = 'splitplane_loop_last_success_timestamp_seconds{loop="place_leases", account=""}'
LATE_AFTER = 'splitplane_loop_late_after_seconds{loop="place_leases", account=""}'
IN_TIME, ALL = 'splitplane_lease_ready_seconds_bucket{le="600.0"}', "splitplane_lease_ready_seconds_count"


@dataclass(frozen=True)
class Measured:
    """Series of an objective that is kept, and series in which this share of what it counts fails."""

    kept: dict[str, str]
    broken: dict[str, str]
    failed: float


def _requests(good: int, bad: int) -> dict[str, str]:
    return {
        'splitplane_api_requests_total{status="200"}': f"0+{good}x{MINUTES}",
        'splitplane_api_requests_total{status="404"}': f"0+50x{MINUTES}",
        'splitplane_api_requests_total{status="500"}': f"0+{bad}x{MINUTES}",
    }


def _leases(starting: int, unattended: int) -> dict[str, str]:
    return {
        'splitplane_leases{state="placing"}': f"10x{MINUTES}",
        'splitplane_leases{state="starting"}': f"{starting}x{MINUTES}",
        'splitplane_leases{state="ready"}': f"100x{MINUTES}",
        "splitplane_leases_unattended": f"{unattended}x{MINUTES}",
    }


MEASURED = {
    "api_available": Measured(_requests(50, 0), _requests(40, 10), 0.1),
    "ready_in_time": Measured(
        {IN_TIME: f"0+10x{MINUTES}", ALL: f"0+10x{MINUTES}"},
        {IN_TIME: f"0+2x{MINUTES}", ALL: f"0+10x{MINUTES}"},
        0.8,
    ),
    "loops_on_time": Measured(
        {SUCCESS: f"0+60x{MINUTES}", LATE_AFTER: f"60x{MINUTES}"},
        {SUCCESS: f"-61+60x{MINUTES}", LATE_AFTER: f"60x{MINUTES}"},
        1,
    ),
    "waiting_explained": Measured(_leases(10, 0), _leases(10, 5), 0.25),
}


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _targets() -> dict[str, float]:
    return {
        str(rule["labels"]["objective"]): float(re.findall(r"[0-9.]+", str(rule["expr"]))[0])
        for rule in _rules()
        if rule.get("record") == "splitplane:objective_target"
    }


def _alerts(objective: str) -> dict[str, dict[str, object]]:
    return {
        str(rule["alert"]): {
            "exp_labels": rule["labels"] | {"objective": objective},
            "exp_annotations": {
                name: text.replace("{{ $labels.objective }}", objective)
                for name, text in rule["annotations"].items()
            },
        }
        for rule in _rules()
        if "alert" in rule
    }


def _test_of(objective: str, series: dict[str, str], failed: float, *, fires: bool) -> object:
    left = 1 - failed / (1 - _targets()[objective])
    at = f"{MINUTES}m"
    samples = {
        f'splitplane:objective_errors:ratio_6h{{objective="{objective}"}}': failed,
        f'splitplane:objective_budget_left:ratio_28d{{objective="{objective}"}}': left,
    }
    return {
        "interval": "1m",
        "name": f"{objective} is {'broken' if fires else 'kept'}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({name}, 0.01)",
                "eval_time": at,
                "exp_samples": [{"labels": f'{{objective="{objective}"}}', "value": round(value, 2)}],
            }
            for name, value in samples.items()
        ],
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": [fired] if fires else []}
            for alert, fired in _alerts(objective).items()
        ],
    }


@needs_promtool
def test_each_objective_counts_what_fails_and_its_alerts_fire_only_then(tmp_path: Path) -> None:
    assert MEASURED.keys() == _targets().keys()
    tests = []
    for objective, measured in MEASURED.items():
        tests += [
            _test_of(objective, measured.kept, 0, fires=False),
            _test_of(objective, measured.broken, measured.failed, fires=True),
        ]
    path = tmp_path / "tests.yml"  # JSON is YAML.
    path.write_text(json.dumps({"rule_files": [str(RULES.resolve())], "tests": tests}))
    promtool("test", "rules", str(path))


@needs_promtool
def test_the_rules_are_valid_and_lint_free() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


def test_every_metric_that_an_objective_reads_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for process in exported_by_all(monkeypatch) for name in process.names()}
    recorded = {str(rule["record"]) for rule in _rules() if "record" in rule}
    for rule in _rules():
        with case(rule.get("record") or rule["alert"]):
            assert set(re.findall(r"splitplane_\w+", str(rule["expr"]))) <= names
            assert set(re.findall(r"splitplane:[\w:]+", str(rule["expr"]))) <= recorded


def test_the_page_states_the_targets_of_the_rules() -> None:
    stated = {
        name: float(percent) / 100
        for name, percent in re.findall(r"^\| `(\w+)` \| ([0-9.]+) % \|", PAGE.read_text(), re.MULTILINE)
    }
    assert stated == pytest.approx(_targets())
