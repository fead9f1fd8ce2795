"""The metrics of machines that are not healthy, as one reading of the database found them (`figures.py`)."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from control_plane.db.repair_figures import RepairFigures
from control_plane.domain.repair import RepairStep


def of_repairs(figures: RepairFigures) -> Iterator[Metric]:
    unhealthy = GaugeMetricFamily(
        "splitplane_machines_unhealthy",
        "Verified machines that are not healthy, by verdict, and whether a fault or planned work is the cause.",
        labels=("account", "cause", "verdict"),
    )
    for count in figures.unhealthy:
        cause = "planned_work" if count.planned else "fault"
        unhealthy.add_metric((count.account, cause, count.verdict), count.machines)
    repairs = GaugeMetricFamily("splitplane_repairs", "Open repairs of machines, by step.", labels=("step",))
    oldest = GaugeMetricFamily(
        "splitplane_repairs_oldest_timestamp_seconds",
        "When the first open repair came to the step that it is at.",
        labels=("step",),
    )
    known = {count.step: count for count in figures.repairs}
    for step in RepairStep:
        repairs.add_metric((step,), known[step].repairs if step in known else 0)
        if step in known:
            oldest.add_metric((step,), known[step].oldest_at.timestamp())
    yield from (unhealthy, repairs, oldest)
