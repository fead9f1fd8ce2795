"""What takes the API long shows at a terminal that it goes on."""

from pathlib import Path

import pytest

from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand


@pytest.mark.parametrize(
    ("command", "path", "answer", "said"),
    [
        ("margin 2026-10", "margin", answers.MARGIN, "Adding up the machines of 2026-10"),
        ("usage --month 2026-10", "usage", answers.USAGE_OF_ALL, "Adding up what customers used"),
        ("match 2026-10", "match", answers.MATCHED, "Matching the machines of 2026-10"),
    ],
)
def test_a_report_over_all_customers_or_machines_says_what_it_does_and_for_how_long_already(
    tmp_path: Path, command: str, path: str, answer: Answer, said: str
) -> None:
    stand = Stand(tmp_path, {f"GET /v1/finance/{path}": answer}, at_a_terminal=True)
    shown = stand.run("finance", *command.split())
    assert said in shown.err
    assert "0:00:00" in shown.err
    stand.at_a_terminal = False
    assert stand.run("finance", *command.split()).err == "", "a pipe gets nothing but the answer"
    stand.at_a_terminal = True
    assert stand.run("finance", *command.split(), "--quiet").err == ""
