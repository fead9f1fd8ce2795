"""What the operators' commands ask the API for."""

import csv
import io
import json
from pathlib import Path

from control_plane.cli.render.fleet import CSV_COLUMNS, TOTALS_COLUMNS
from tests.unit.cli import answers
from tests.unit.cli.stand import Stand

PROJECT = answers.FLEET["items"][1]["project_id"]


def test_the_fleet_as_csv_has_exact_amounts_and_filters_are_sent(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/operator/fleet/machines": answers.FLEET})
    shown = stand.run("fleet", "list", "--csv", "--verdict", "lost", "--region", "eu", "--project", PROJECT)
    header, first, *_ = csv.DictReader(io.StringIO(shown.out)), *csv.DictReader(io.StringIO(shown.out))
    assert header.fieldnames is not None
    assert tuple(header.fieldnames) == CSV_COLUMNS
    assert (first["verdict"], first["organization"]) == (answers.FLEET["items"][0]["verdict"] or "", "")
    assert (first["cost_usd_per_hour"], first["cost_usd"]) == ("19.920000000", "29.880000000")
    asked = stand.requests[-1].url.params
    assert (asked["verdict"], asked["region"], asked["project"]) == ("lost", "eu", PROJECT)
    assert stand.run("fleet", "list", "--csv", "--json").code == 2


def test_what_a_provider_calls_a_machine_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    machines = [
        answers.FLEET["items"][0] | {"provider_ref": text, "native_status": text}
        for text in ('=HYPERLINK("https://a.example")', "+1", "-1+1", "@SUM(A1)", "\t=1", "i-0abc")
    ]
    answer = {"items": machines, "next_cursor": None}
    stand = Stand(tmp_path, {"GET /v1/operator/fleet/machines": answer})
    lines = list(csv.DictReader(io.StringIO(stand.run("fleet", "list", "--csv").out)))
    for column in ("provider_ref", "native_status"):
        assert [line[column][0] for line in lines] == ["'", "'", "'", "'", "'", "i"], column


def test_totals_as_csv_are_a_line_for_each_provider_and_model_and_no_sum(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/operator/fleet": answers.FLEET_TOTALS})
    lines = list(csv.DictReader(io.StringIO(stand.run("fleet", "totals", "--csv").out)))
    assert [(line["provider"], line["all_machines"], line["active_machines"]) for line in lines] == [
        ("lambda_cloud", "1000", "981"),
        ("nebius", "204", "199"),
    ]
    assert tuple(lines[0]) == TOTALS_COLUMNS
    assert stand.run("fleet", "totals", "--csv", "--json").code == 2


def test_orphans_that_are_gone_are_asked_for_only_when_all_are_wanted(tmp_path: Path) -> None:
    for words, asked in (("orphan list", ""), ("orphan list --all", "gone=true")):
        stand = Stand(tmp_path, {"GET /v1/operator/orphans": answers.ORPHANS})
        assert stand.run(*words.split()).code == 0
        assert stand.requests[-1].url.query.decode() == asked, words


def test_orphans_are_terminated_by_id_or_all_that_are_held_back_and_never_without_a_yes(
    tmp_path: Path,
) -> None:
    first, known = answers.ORPHANS_HELD["items"][0]["provider_ref"], answers.ORPHANS_HELD
    for words, sent in (
        (["some-id", "other-id", "--yes"], ["some-id", "other-id"]),
        (["--held", "--yes"], [first]),
        (["--held"], None),
        (["some-id", "--held", "--yes"], None),
        (["--yes"], None),
    ):
        stand = Stand(
            tmp_path,
            {
                "GET /v1/operator/orphans": known,
                "POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION]},
            },
        )
        code = stand.run("orphan", "end", "lambda_cloud", *words, "--reason", "ticket 4711").code
        posted = [json.loads(request.content) for request in stand.requests if request.method == "POST"]
        bodies = (
            []
            if sent is None
            else [{"account": "lambda_cloud", "provider_refs": sent, "choice": "end", "why": "ticket 4711"}]
        )
        assert (code == 0, posted) == (sent is not None, bodies), words


def test_each_decision_on_an_orphan_is_a_command_that_needs_a_reason(tmp_path: Path) -> None:
    made = {"POST /v1/operator/orphan-decisions": {"items": [answers.ORPHAN_DECISION]}}
    for choice in ("leave", "adopt", "revoke"):
        stand = Stand(tmp_path, made)
        assert stand.run("orphan", choice, "lambda_cloud", "i-1").code == 2, choice
        assert stand.run("orphan", choice, "lambda_cloud", "i-1", "--reason", "ticket 4711").code == 0
        (sent,) = [json.loads(request.content) for request in stand.requests if request.method == "POST"]
        assert (sent["choice"], sent["provider_refs"]) == (choice, ["i-1"])


def test_an_orphan_is_shown_alone_and_one_that_is_not_on_record_is_an_error(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/operator/orphans": {"items": []}})
    shown = stand.run("orphan", "show", "lambda_cloud", "i 1")
    assert (shown.code, "orphan_unknown" in shown.err) == (1, True)
    assert dict(stand.requests[-1].url.params) == {
        "account": "lambda_cloud",
        "provider_ref": "i 1",
        "gone": "true",
    }


def test_nothing_is_sent_when_no_orphan_is_held_back(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/operator/orphans": answers.ORPHANS})
    shown = stand.run("orphan", "end", "lambda_cloud", "--held", "--yes", "--reason", "ticket 4711")
    assert shown.code == 1
    assert "nothing_held" in shown.err


def test_work_is_not_planned_for_a_time_that_is_over(tmp_path: Path) -> None:
    out = f"POST /v1/operator/machines/{answers.MACHINE_ID}/maintenance"
    stand = Stand(tmp_path, {out: answers.MAINTENANCE})
    command = ("repair", "take-out", answers.MACHINE_ID, "--reason", "fan", "--yes", "--planned-at")
    refused = stand.run(*command, "2020-01-01T00:00:00+00:00")
    assert "is over: leave --planned-at out for work that begins now" in refused.err
    assert stand.requests == []
    refused = stand.run(*command, "2999-01-01T00:00:00+00:00")
    assert "is not in the years 2000 to 2200" in refused.err
    assert stand.requests == []
    stand.run(*command, "2199-01-01T00:00:00+00:00")
    assert len(stand.requests) == 1
