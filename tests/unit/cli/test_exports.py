"""Exports at the command line: files that are whole, stored with the manifest last, checked and compared."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from moto import mock_aws

from control_plane.cli import export_files
from control_plane.cli.destinations import Bucket, Folder
from control_plane.cli.terminal import Terminal
from control_plane.domain.money import Nano
from control_plane.exports.csv_file import CsvEncoder
from control_plane.exports.manifest import Described, ExportedFile, digest, manifest
from control_plane.exports.totals import Totals
from tests.support.charges import SELLER, ChargeFacts, lease_charges, usage_row
from tests.unit.cli.stand import Stand

RUN = f"exp_{'1' * 32}"
NAMES = ("focus-1.2.csv", "focus-1.2.parquet", "manifest.json")
CHARGES = lease_charges([3_600, 7_200, 10_800])
VIEW: dict[str, Any] = {
    "id": RUN,
    "period": "2026-10",
    "coverage": "organization",
    "status": "provisional",
    "cut_at": "2026-10-20T11:59:00Z",
    "created_at": "2026-10-20T12:00:00Z",
    "created_by": f"sa_{'2' * 32}",
    "previous_id": None,
    "files": [],
}


def files(charges: list[ChargeFacts] = CHARGES) -> Mapping[str, bytes]:
    """The files of an export. Nothing here reads Parquet, so any bytes stand for it."""
    encoder, totals = CsvEncoder(), Totals()
    rows = [usage_row(charge, seller=SELLER) for charge in charges]
    totals.add(rows)
    content = {NAMES[0]: encoder.begin() + encoder.encode(rows), NAMES[1]: b"PAR1"}
    described = Described(
        run=RUN,
        covers="all",
        period="2026-10",
        since=datetime(2026, 10, 1, tzinfo=UTC),
        until=datetime(2026, 11, 1, tzinfo=UTC),
        final=False,
        cut_at=datetime(2026, 10, 20, tzinfo=UTC),
        created_at=datetime(2026, 10, 20, tzinfo=UTC),
        price_books=[3],
        previous=None,
    )
    exported = [ExportedFile(name, len(held), digest(held), totals) for name, held in content.items()]
    return content | {NAMES[2]: manifest(described, exported)}


def served(path: str = "/v1/exports", **other: bytes) -> dict[str, Any]:
    content = files()
    return {f"POST {path}": httpx.Response(201, json=VIEW)} | {
        f"GET {path}/{RUN}/files/{name}": httpx.Response(
            200, content=other.get(name.split(".")[-1], content[name])
        )
        for name in NAMES
    }


def folder(path: Path, charges: list[ChargeFacts] = CHARGES) -> Path:
    path.mkdir()
    for name, content in files(charges).items():
        (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("command", "path"),
    [(("export", "create"), "/v1/exports"), (("finance", "export", "create"), "/v1/finance/exports")],
)
def test_an_export_is_written_below_its_month_and_its_id(
    tmp_path: Path, command: tuple[str, ...], path: str
) -> None:
    shown = Stand(tmp_path, served(path)).run(*command, "2026-10", "--to", str(tmp_path / "to"))
    target = tmp_path / "to" / "2026-10" / RUN
    assert (shown.code, shown.err) == (0, f"Wrote {target}.\n")
    assert "The export is whole: 3 rows." in shown.out
    assert "59.76" in shown.out
    assert {file.name: file.read_bytes() for file in target.iterdir()} == files()
    shown = Stand(tmp_path, {}).run("export", "verify", str(target))
    assert (shown.code, hashlib.sha256(files()[NAMES[2]]).hexdigest() in shown.out.replace("\n", "")) == (
        0,
        True,
    )


def test_an_export_for_scripts_says_where_it_is_and_what_its_manifest_says(tmp_path: Path) -> None:
    shown = Stand(tmp_path, served()).run(
        "export", "create", "2026-10", "--to", str(tmp_path / "to"), "--json"
    )
    said = json.loads(shown.out)
    assert (said["id"], said["to"]) == (RUN, str(tmp_path / "to" / "2026-10" / RUN))
    assert said["manifest"] == json.loads(files()[NAMES[2]])


def test_a_file_that_was_changed_on_its_way_is_not_written(tmp_path: Path) -> None:
    stand = Stand(tmp_path, served(csv=files()[NAMES[0]].replace(b"train-1", b"train-2")))
    shown = stand.run("export", "create", "2026-10", "--to", str(tmp_path / "to"))
    assert (shown.code, "export_broken" in shown.err, (tmp_path / "to").exists()) == (1, True, False)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="billing")
        yield client


def test_an_export_goes_to_s3(tmp_path: Path, bucket: Any) -> None:
    shown = Stand(tmp_path, served()).run("export", "create", "2026-10", "--to", "s3://billing/gpus/")
    assert (shown.code, shown.err) == (0, f"Wrote s3://billing/gpus/2026-10/{RUN}.\n")
    for name, content in files().items():
        held = bucket.get_object(Bucket="billing", Key=f"gpus/2026-10/{RUN}/{name}")
        assert held["Body"].read() == content


def test_the_manifest_is_stored_after_all_other_files(tmp_path: Path) -> None:
    stored: list[str] = []

    class Recording:
        def upload_file(self, path: str, bucket: str, key: str) -> None:
            assert Path(path).exists()
            stored.append(f"{bucket}/{key}")

    held = folder(tmp_path / "export")
    Bucket("billing", "", Recording()).put("2026-10", [held / name for name in NAMES])
    assert stored == [f"billing/2026-10/{name}" for name in NAMES]


def test_each_file_in_a_folder_is_on_the_disk_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, done = os.fsync, list[str]()

    def sync(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    held = folder(tmp_path / "export")
    Folder(tmp_path / "to").put("2026-10", [held / name for name in NAMES])
    assert done == [name for file in NAMES for name in (f".{file}.partial", "2026-10")]


def test_a_bucket_that_is_not_there_is_named(tmp_path: Path, bucket: Any) -> None:
    shown = Stand(tmp_path, served()).run("export", "create", "2026-10", "--to", "s3://missing")
    assert (shown.code, "error: bucket" in shown.err, "s3://missing" in shown.err) == (1, True, True)


@pytest.mark.parametrize(
    "arguments",
    [("2026-13", "--to", "x"), ("october", "--to", "x"), ("2026-10", "--to", "gs://x"), ("2026-10",)],
)
def test_a_wrong_month_or_destination_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert Stand(tmp_path, {}).run("export", "create", *arguments).code == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (NAMES[0], b"train-1", b"train-2", "not the file that the manifest describes"),
        (NAMES[1], b"PAR1", b"PAR2", "not the file that the manifest describes"),
        (NAMES[2], b'"rows": 3', b'"rows": 4', "has 3 rows, and the manifest says 4"),
        (NAMES[2], b'"BilledCost": "59', b'"BilledCost": "58', "BilledCost adds up to 59.76"),
        (NAMES[2], b'"rows"', b'"lines"', "cannot be read"),
    ],
)
def test_what_was_changed_in_an_export_is_found(
    tmp_path: Path, name: str, old: bytes, new: bytes, said: str
) -> None:
    file = folder(tmp_path / "export") / name
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new, 1))
    shown = Stand(tmp_path, {}).run("export", "verify", str(tmp_path / "export"))
    assert (shown.code, said in " ".join(shown.err.split())) == (1, True), shown.err


def test_a_charge_that_is_there_twice_is_found_although_the_manifest_counts_it_so(tmp_path: Path) -> None:
    folder(tmp_path / "export", [CHARGES[0], CHARGES[0]])
    shown = Stand(tmp_path, {}).run("export", "verify", str(tmp_path / "export"))
    assert (shown.code, "there twice" in shown.err) == (1, True)


def test_a_folder_without_an_export_is_named(tmp_path: Path) -> None:
    shown = Stand(tmp_path, {}).run("export", "verify", str(tmp_path / "none"))
    assert (shown.code, "manifest.json" in shown.err) == (1, True)


def test_equal_exports_have_no_difference(tmp_path: Path) -> None:
    before, after = folder(tmp_path / "before"), folder(tmp_path / "after")
    shown = Stand(tmp_path, {}).run("export", "diff", str(before), str(after))
    assert (shown.code, shown.out) == (0, "Both exports have the same rows.\n")


def test_rows_that_were_added_removed_and_changed_are_shown_with_what_they_bill(tmp_path: Path) -> None:
    changed = replace(CHARGES[1], amount_nano=Nano(20_000_000_000))
    before = folder(tmp_path / "before", CHARGES[:2])
    after = folder(tmp_path / "after", [changed, CHARGES[2]])
    shown = Stand(tmp_path, {}).run("export", "diff", str(before), str(after))
    assert shown.code == 1
    words = " ".join(shown.out.split())
    for said in ("removed -19.92", "BilledCost", "added +19.92", "3 rows differ. Billed: +0.08"):
        assert said in words, shown.out
    found = json.loads(Stand(tmp_path, {}).run("export", "diff", str(before), str(after), "--json").out)
    assert [(change["before"] is None, change["after"] is None) for change in found] == [
        (False, True),
        (False, False),
        (True, False),
    ]


def test_a_comparison_keeps_the_first_rows_alone_and_counts_all_of_them(tmp_path: Path) -> None:
    changed = [replace(charge, amount_nano=Nano(charge.amount_nano + 5)) for charge in CHARGES]
    before, after = folder(tmp_path / "before"), folder(tmp_path / "after", changed)
    found = export_files.Changes(kept=2)
    for change in export_files.changes(before, after):
        found.add(change)
    assert (len(found.first), found.count, found.billed) == (2, 3, Decimal("0.000000015"))


@pytest.mark.parametrize("broken", [b"\nhalf a row", b"\n\xff", b"\n" + b"x" * 200_000])
def test_a_file_that_is_broken_below_its_first_rows_is_said_before_any_row_is_written(
    tmp_path: Path, broken: bytes
) -> None:
    before, after = folder(tmp_path / "before"), folder(tmp_path / "after", CHARGES[1:])
    with (after / NAMES[0]).open("ab") as file:
        file.write(broken)
    shown = Stand(tmp_path, {}).run("export", "diff", str(before), str(after), "--json")
    assert (shown.code, shown.out, json.loads(shown.err)["code"]) == (1, "", "export_broken")
    described = json.loads((after / NAMES[2]).read_bytes())
    content = (after / NAMES[0]).read_bytes()
    described["files"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (after / NAMES[2]).write_text(json.dumps(described))
    for command in (("diff", str(before), str(after)), ("verify", str(after))):
        shown = Stand(tmp_path, {}).run("export", *command)
        assert (shown.code, "export_broken" in shown.err) == (1, True), "as its manifest says, and no export"


def test_a_list_is_written_as_json_while_it_is_made(tmp_path: Path) -> None:
    for items in ([], [{"a": [1, "\x1b"], "b": None}], [{"a": 1}, {}, {"b": {"c": "two\nlines"}}]):
        out = io.StringIO()
        Terminal(environ={}, stdout=out, stderr=io.StringIO()).json_list(items)
        assert json.loads(out.getvalue()) == items
        assert out.getvalue().isascii()
    out = io.StringIO()

    def made() -> Iterator[dict[str, int]]:
        yield {"row": 1}
        assert '"row": 1' in out.getvalue(), "the first one is written before the second one is asked for"
        yield {"row": 2}

    Terminal(environ={}, stdout=out, stderr=io.StringIO()).json_list(made())
    assert json.loads(out.getvalue()) == [{"row": 1}, {"row": 2}]


@pytest.mark.parametrize("command", ["verify export", "diff export other"])
def test_long_runs_over_files_say_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    told: list[str] = []

    @contextmanager
    def moving(_: Terminal, *, beside_output: bool = False) -> Iterator[Callable[[str], None]]:
        yield told.append

    monkeypatch.setattr(Terminal, "moving", moving)
    monkeypatch.setattr(export_files, "_TOLD_EVERY", 2)
    folder(tmp_path / "export"), folder(tmp_path / "other")
    verb, *folders = command.split()
    shown = Stand(tmp_path, {}).run("export", verb, *(str(tmp_path / name) for name in folders))
    assert shown.code == 0, shown.err
    if verb == "verify":
        assert told[0].startswith("focus-1.2.csv: 0.0 of 0.0 MB")
        assert told[-1] == "2 of 3 rows"
    else:
        assert told[-1] == "2 rows compared"


def test_no_line_moves_where_rows_are_written_to_the_same_terminal(tmp_path: Path) -> None:
    before, after = folder(tmp_path / "before"), folder(tmp_path / "after", CHARGES[:1])
    stand = Stand(tmp_path, {}, at_a_terminal=True)
    shown = stand.run("export", "diff", str(before), str(after), "--json")
    assert len(json.loads(shown.out)) == 2
    assert "\x1b[?25l" not in shown.err, "the cursor is hidden while a line moves"
    assert "\x1b[?25l" in stand.run("export", "diff", str(before), str(after)).err


def test_exports_are_listed(tmp_path: Path) -> None:
    page = {"items": [VIEW], "next_cursor": None}
    shown = Stand(tmp_path, {"GET /v1/exports": page}).run("export", "list")
    assert [word in shown.out for word in (RUN, "2026-10", "provisional")] == [True] * 3
