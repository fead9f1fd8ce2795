"""The report of broken promises as CSV."""

import csv
from pathlib import Path

from tests.unit.cli import sla_answers
from tests.unit.cli.stand import Stand


def test_the_report_as_csv_has_a_line_for_each_breach_with_exact_amounts(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/sla-report": sla_answers.REPORT})
    lines = list(csv.DictReader(stand.run("sla", "report", "2026-11", "--csv").out.splitlines()))
    assert [line["promise"] for line in lines] == ["availability", "replacement"]
    assert [line["credit_usd"] for line in lines] == ["100.000000000", ""], "the second is not known yet"
    assert [line["why"] for line in lines] == [breach["why"] for breach in sla_answers.BREACHES]
