"""The alert rules, judged by promtool itself: each one fires when it should, and is silent when all is well."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from reconciler.cluster_metrics import FAILED as FAILED_JOIN
from reconciler.cluster_metrics import HOSTILE, OPENED
from tests.support.cases import case
from tests.support.prometheus import Exported, exported_by_all, needs_promtool, promtool

RULES = Path("docs/monitoring/alerts.yml")
RUNBOOK = Path("docs/operating.md")

FRESH, STUCK = "0+60x300", "0x300"
"""A time that is always now, and one that stays at the beginning of the test."""
LOOP = '{loop="place_leases", account=""}'
ACTIVATION = f"splitplane_loop_last_activation_timestamp_seconds{LOOP}"
SUCCESS = f"splitplane_loop_last_success_timestamp_seconds{LOOP}"
LATE_AFTER = f"splitplane_loop_late_after_seconds{LOOP}"
OF_A = '{account="a"}'
OFFERS = f"splitplane_account_offers_timestamp_seconds{OF_A}"
REFRESHES = 'splitplane_loop_late_after_seconds{loop="refresh_offers", account="a"}'
IN_C = 'cluster="c"'
UNREADY = f"splitplane_nodes_unready{{{IN_C}}}"
ANSWERED = f"splitplane_cluster_answered_timestamp_seconds{{{IN_C}}}"
SERVING = f'splitplane_nodes{{{IN_C}, state="ready"}}'
UNFINISHED = 'splitplane_organizations_unfinished_since_timestamp_seconds{state="closing"}'
OK, FAILED = (f'splitplane_api_requests_total{{status="{status}"}}' for status in (200, 500))
BUCKET = "splitplane_api_request_seconds_bucket"
POOL = '{instance="i", pool="reads"}'


POOL_READY = 'splitplane_pool_machines{pool="p", state="verified"}'
POOL_IDLE, POOL_BUDGET = (
    f'splitplane_pool_{name}{{pool="p"}}' for name in ("idle_today_usd", "budget_usd_per_day")
)
LOST_OF_A, QUARANTINED_OF_A, DEGRADED_OF_A = (
    f'splitplane_machines_unhealthy{{account="a", cause="fault", verdict="{verdict}"}}'
    for verdict in ("lost", "quarantined", "degraded")
)
WORKED_ON_OF_A = (
    'splitplane_machines_unhealthy{account="a", cause="planned_work", verdict="maintenance_required"}'
)
VERIFIED_OF_A = 'splitplane_machines{account="a", state="verified"}'
TURNED_AWAY, ACCEPTED = (
    f'splitplane_ingest_deliveries_total{{verdict="{verdict}"}}' for verdict in ("overloaded", "accepted")
)


@dataclass(frozen=True)
class Judged:
    """Series while an alert fires and while it does not, the labels it fires with, and when they are looked at."""

    fires: dict[str, str]
    silent: dict[str, str]
    labels: dict[str, str]
    minutes: int = 30


def _of_account(metric: str, loud: str, quiet: str, minutes: int = 30) -> Judged:
    return Judged({metric + OF_A: loud}, {metric + OF_A: quiet}, {"account": "a"}, minutes)


def _of_cluster(metric: str, loud: str, quiet: str, minutes: int = 30) -> Judged:
    return Judged({f"{metric}{{{IN_C}}}": loud}, {f"{metric}{{{IN_C}}}": quiet}, {"cluster": "c"}, minutes)


def _durations(route: str) -> dict[str, str]:
    """Nine of ten requests of the route take less than a second, and the tenth less than ten."""
    bounds = {"1.0": "0+90x300", "10.0": "0+100x300", "+Inf": "0+100x300"}
    return {f'{BUCKET}{{route="{route}", le="{bound}"}}': values for bound, values in bounds.items()}


def _answered(share: float) -> dict[str, str]:
    """That share of deliveries is answered within 5 s."""
    counts = {"5.0": round(100 * share), "10.0": 100, "+Inf": 100}
    return {
        f'splitplane_ingest_seconds_bucket{{le="{bound}"}}': f"0+{count}x300"
        for bound, count in counts.items()
    }


JUDGED: dict[str, Judged] = {
    "SplitplaneReconcilerDown": Judged({}, {ACTIVATION: FRESH}, {}),
    "SplitplaneApiDown": Judged({}, {"splitplane_api_streams": "0x300"}, {}),
    "SplitplaneLoopLate": Judged(
        {ACTIVATION: STUCK, LATE_AFTER: "600x300"},
        {ACTIVATION: FRESH, LATE_AFTER: "600x300"},
        {"loop": "place_leases"},
    ),
    "SplitplaneLoopFailing": Judged(
        {SUCCESS: STUCK, LATE_AFTER: "60x300"},
        {SUCCESS: FRESH, LATE_AFTER: "60x300"},
        {"loop": "place_leases"},
    ),
    "SplitplaneFiguresOld": Judged(
        {"splitplane_figures_read_timestamp_seconds": STUCK},
        {
            'splitplane_figures_read_timestamp_seconds{instance="gone"}': STUCK,
            'splitplane_figures_read_timestamp_seconds{instance="here"}': FRESH,
        },
        {},
    ),
    "SplitplaneAccountFrozen": _of_account("splitplane_account_frozen", "1x300", "0x300"),
    "SplitplaneAccountFailing": _of_account("splitplane_account_failing", "1x300", "0x300"),
    "SplitplaneOffersOld": Judged(
        {OFFERS: STUCK, REFRESHES: "120x300"}, {OFFERS: FRESH, REFRESHES: "120x300"}, {"account": "a"}
    ),
    "SplitplaneProviderBreakerOpen": _of_account("splitplane_provider_breaker_open", "1x300", "0x300"),
    "SplitplaneOrphanOld": _of_account("splitplane_orphans_oldest_timestamp_seconds", STUCK, FRESH),
    "SplitplaneOpenLiabilities": Judged(
        {'splitplane_open_liabilities_usd{kind="orphan"}': "0+1x300"},
        {'splitplane_open_liabilities_usd{kind="orphan"}': "9x300"},
        {"kind": "orphan"},
    ),
    "SplitplaneMachinesVanished": _of_account(
        "splitplane_machines_vanished_total", "0x20 3x280", "0x20 1x280"
    ),
    "SplitplaneLedgerDifference": Judged(
        {"splitplane_ledger_difference_usd": "-0.01x300"}, {"splitplane_ledger_difference_usd": "0x300"}, {}
    ),
    "SplitplaneLedgerNotAudited": Judged(
        {"splitplane_ledger_audited_timestamp_seconds": STUCK},
        {"splitplane_ledger_audited_timestamp_seconds": FRESH},
        {},
        minutes=70,
    ),
    "SplitplaneReconciliationDifference": Judged(
        {'splitplane_reconciliation_difference_usd{month="last"}': "0.000000001x300"},
        {'splitplane_reconciliation_difference_usd{month="last"}': "0x300"},
        {"month": "last"},
    ),
    "SplitplaneReconciliationOld": Judged(
        {"splitplane_reconciliation_timestamp_seconds": "0x3100"},
        {"splitplane_reconciliation_timestamp_seconds": "0x1440 86400x1660"},
        {},
        minutes=2 * 24 * 60 + 30,
    ),
    "SplitplaneOrganizationUnfinished": Judged(
        {UNFINISHED: STUCK}, {UNFINISHED: FRESH}, {"state": "closing"}, minutes=90
    ),
    "SplitplaneSlaCreditUndecided": Judged(
        {"splitplane_sla_credits_undecided_oldest_timestamp_seconds": "0x4600"},
        {"splitplane_sla_credits_undecided_oldest_timestamp_seconds": "0+60x4600"},
        {},
        minutes=3 * 24 * 60 + 30,
    ),
    "SplitplaneUnratedMoney": Judged(
        {"splitplane_unrated_oldest_timestamp_seconds": STUCK},
        {"splitplane_unrated_oldest_timestamp_seconds": FRESH},
        {},
        minutes=70,
    ),
    "SplitplaneMachinesWithoutUsage": Judged(
        {"splitplane_leases_unmetered": "1x300"}, {"splitplane_leases_unmetered": "0x300"}, {}
    ),
    "SplitplaneClusterFailing": _of_cluster("splitplane_cluster_failing", "1x300", "0x300"),
    "SplitplaneClusterUnready": Judged(
        {UNREADY: "2x300", f'splitplane_nodes{{{IN_C}, state="ready"}}': "2x300"},
        {UNREADY: "1x300", f'splitplane_nodes{{{IN_C}, state="ready"}}': "2x300"},
        {"cluster": "c"},
    ),
    "SplitplaneNodesUnready": _of_cluster("splitplane_nodes_unready", "1x300", "1x50 0x250", minutes=60),
    "SplitplaneNodesWithoutGpus": _of_cluster("splitplane_nodes_without_gpus", "1x300", "1x10 0x290"),
    "SplitplaneClusterNotAnswering": Judged(
        {ANSWERED: STUCK, SERVING: "1x300"}, {ANSWERED: STUCK, SERVING: "0x300"}, {"cluster": "c"}
    ),
    "SplitplaneNodeJoinsFailing": Judged(
        {
            f'splitplane_node_joins_total{{{IN_C}, outcome="{FAILED_JOIN}"}}': "0x20 3x280",
            f'splitplane_node_joins_total{{{IN_C}, outcome="{HOSTILE}"}}': "0x20 2x280",
        },
        {f'splitplane_node_joins_total{{{IN_C}, outcome="{OPENED}"}}': "0+1x300"},
        {"cluster": "c"},
    ),
    "SplitplaneTunnelsOld": _of_cluster(
        "splitplane_tunnels_read_oldest_timestamp_seconds", STUCK, FRESH
    ),
    "SplitplaneKubeconfigsWaiting": _of_cluster(
        "splitplane_kubeconfigs_wanted_oldest_timestamp_seconds", STUCK, FRESH
    ),
    "SplitplanePoolEmpty": Judged(
        {POOL_READY: "0x300", 'splitplane_pool_target{pool="p"}': "2x300"},
        {POOL_READY: "0x300", 'splitplane_pool_target{pool="p"}': "0x300"},
        {"pool": "p"},
        minutes=60,
    ),
    "SplitplanePoolOverBudget": Judged(
        {POOL_IDLE: "12x300", POOL_BUDGET: "10x300"},
        {POOL_IDLE: "10.5x300", POOL_BUDGET: "10x300"},
        {"pool": "p"},
        minutes=90,
    ),
    "SplitplaneManyMachinesUnhealthy": Judged(
        {LOST_OF_A: "1x300", QUARANTINED_OF_A: "2x300", VERIFIED_OF_A: "10x300"},
        {LOST_OF_A: "1x300", VERIFIED_OF_A: "3x300", DEGRADED_OF_A: "3x300", WORKED_ON_OF_A: "3x300"},
        {"account": "a"},
    ),
    "SplitplaneRepairWaits": Judged(
        {'splitplane_repairs_oldest_timestamp_seconds{step="ticket"}': "0x1600"},
        {'splitplane_repairs_oldest_timestamp_seconds{step="reset"}': "0x1600"},
        {},
        minutes=24 * 60 + 30,
    ),
    "SplitplaneIngestDown": Judged(
        {"splitplane_ingest_machines": "5x10 stale"}, {"splitplane_ingest_machines": "0x300"}, {}
    ),
    "SplitplaneIngestOverloaded": Judged(
        {TURNED_AWAY: "0+1x300"}, {TURNED_AWAY: "7x300", ACCEPTED: "0+100x300"}, {}
    ),
    "SplitplaneIngestSlow": Judged(_answered(0.9), _answered(1.0), {}),
    "SplitplaneKeysNotRotated": Judged(
        {'splitplane_data_keys_waiting{what="rewrap"}': "1x300"},
        {'splitplane_data_keys_waiting{what="rewrap"}': "0x300"},
        {"what": "rewrap"},
        minutes=70,
    ),
    "SplitplaneApiErrors": Judged({OK: "0+95x300", FAILED: "0+5x300"}, {OK: "0+100x300", FAILED: "0x300"}, {}),
    "SplitplaneApiSlow": Judged(_durations("/v1/leases"), _durations("/v1/leases/{lease_id}/events"), {}),
    "SplitplaneDatabasePoolExhausted": Judged(
        {f"splitplane_database_connections_in_use{POOL}": "10x300", f"splitplane_database_connections_max{POOL}": "10x300"},
        {f"splitplane_database_connections_in_use{POOL}": "9x300", f"splitplane_database_connections_max{POOL}": "10x300"},
        {"instance": "i", "pool": "reads"},
    ),
    "SplitplaneClockDifference": Judged(
        {'splitplane_clock_difference_seconds{instance="i"}': "-3x300"},
        {'splitplane_clock_difference_seconds{instance="i"}': "1x300"},
        {"instance": "i"},
    ),
}  # fmt: skip


def _rules() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _filled(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels.get(found[1], ""), text)


def _test_of(rule: dict[str, object], judged: Judged, series: dict[str, str], *, fires: bool) -> object:
    """One test in promtool's format."""
    annotations, severity = rule["annotations"], rule["labels"]
    assert isinstance(annotations, dict)
    assert isinstance(severity, dict)
    fired = {
        "exp_labels": severity | judged.labels,
        "exp_annotations": {name: _filled(text, judged.labels) for name, text in annotations.items()},
    }
    return {
        "interval": "1m",
        "name": f"{rule['alert']} {'fires' if fires else 'is silent'}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{judged.minutes}m",
                "alertname": rule["alert"],
                "exp_alerts": [fired] if fires else [],
            }
        ],
    }


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert {rule["alert"] for rule in _rules()} == JUDGED.keys()
    tests = []
    for rule in _rules():
        judged = JUDGED[str(rule["alert"])]
        tests += [
            _test_of(rule, judged, judged.fires, fires=True),
            _test_of(rule, judged, judged.silent, fires=False),
        ]
    path = tmp_path / "tests.yml"  # JSON is YAML.
    path.write_text(json.dumps({"rule_files": [str(RULES.resolve())], "tests": tests}))
    promtool("test", "rules", str(path))


@needs_promtool
def test_the_rules_are_valid_and_lint_free() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[Exported]:
    return exported_by_all(monkeypatch)


@needs_promtool
def test_promtool_finds_nothing_wrong_with_any_metric(exported: list[Exported]) -> None:
    for process in exported:
        with case(process.name):
            promtool("check", "metrics", text=process.text)


def test_every_metric_of_ours_has_our_prefix(exported: list[Exported]) -> None:
    ours = {
        metric.name
        for process in exported
        for metric in process.metrics
        if not metric.name.startswith(("python_", "process_"))
    }
    assert not [name for name in ours if not name.startswith("splitplane_")]


def test_every_metric_that_a_rule_reads_is_exported(exported: list[Exported]) -> None:
    names = {name for process in exported for name in process.names()}
    for rule in _rules():
        with case(rule["alert"]):
            read = set(re.findall(r"splitplane_\w+", str(rule["expr"])))
            assert read
            assert read <= names


def test_each_alert_says_how_bad_it_is_and_where_its_runbook_is() -> None:
    headings = re.findall(r"^#+ (.*)$", RUNBOOK.read_text(), re.MULTILINE)
    anchors = {f"{RUNBOOK}#{heading.lower().replace(' ', '-')}" for heading in headings}
    for rule in _rules():
        with case(rule["alert"]):
            annotations, labels = rule["annotations"], rule["labels"]
            assert isinstance(annotations, dict)
            assert isinstance(labels, dict)
            assert annotations["runbook"] in anchors
            assert annotations["summary"].endswith(".")
            assert labels["severity"] in ("critical", "warning")


def test_every_metric_of_ours_is_explained_where_operators_look(exported: list[Exported]) -> None:
    page = RUNBOOK.read_text()
    names = {
        metric.name
        for process in exported
        for metric in process.metrics
        if metric.name.startswith("splitplane_")
    }
    assert not {name for name in names if not re.search(rf"`{name}(_total)?[`{{]", page)}
