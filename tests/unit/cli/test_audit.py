"""The audit log at the command line: lists, exports, and the check of an export."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx

from tests.unit.cli import answers
from tests.unit.cli.stand import Stand

CHAIN = f"org_{'0' * 31}7"
PATH = "GET /v1/audit-events/export"


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _export(length: int = 3) -> list[bytes]:
    lines = [_canonical({"chain": CHAIN, "hash": "0" * 64, "kind": "beginning", "sequence": 0})]
    previous = "0" * 64
    for number in range(1, length + 1):
        content = {"chain": CHAIN, "previous": previous, "sequence": number, "subject": f"sa_{number}"}
        previous = hashlib.sha256(_canonical(content)).hexdigest()
        lines.append(_canonical(content | {"hash": previous}))
    lines.append(_canonical({"chain": CHAIN, "hash": previous, "kind": "end", "sequence": length}))
    return [line + b"\n" for line in lines]


def _served(lines: list[bytes]) -> dict[str, Any]:
    return {
        PATH: httpx.Response(200, content=b"".join(lines), headers={"content-type": "application/x-ndjson"})
    }


def test_an_export_from_the_api_is_written_as_it_is(tmp_path: Path) -> None:
    lines = _export()
    target = tmp_path / "audit.jsonl"
    shown = Stand(tmp_path, _served(lines)).run("audit", "export", "--output", str(target))
    assert (shown.code, shown.out) == (0, "")
    said = (f"Wrote lines 1 to 3 to {target}.", f"Check them with: splitplane audit verify {target}")
    assert shown.err.splitlines() == list(said)
    assert target.read_bytes() == b"".join(lines)
    shown = Stand(tmp_path, _served(lines)).run("audit", "export", "--output", str(target), "--json")
    assert json.loads(shown.out) == {"output": str(target), "after": 0, "sequence": 3}
    shown = Stand(tmp_path, _served(lines)).run("audit", "export")
    assert shown.out.encode() == b"".join(lines)


def test_an_export_that_the_api_cuts_off_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "audit.jsonl"
    for lines in ([], _export()[:-1]):
        shown = Stand(tmp_path, _served(lines)).run("audit", "export", "--output", str(target))
        assert (shown.code, "error: export_incomplete" in shown.err) == (1, True)


def test_a_whole_file_is_said_to_be_whole_without_the_api(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b"".join(_export()))
    shown = Stand(tmp_path, {}).run("audit", "verify", str(file), "--json")
    assert shown.code == 0
    assert json.loads(shown.out)["lines"] == 3
    head = json.loads(shown.out)["hash"]
    assert Stand(tmp_path, {}).run("audit", "verify", str(file), "--head", f"3:{head}").code == 0
    shown = Stand(tmp_path, {}).run("audit", "verify", str(file), "--head", f"4:{head}")
    assert (shown.code, "cut off" in shown.err) == (1, True)


def test_the_first_wrong_line_is_named_and_the_exit_code_is_one(tmp_path: Path) -> None:
    lines = _export()
    lines[2] = lines[2].replace(b"sa_2", b"sa_9")
    for shown in (
        Stand(tmp_path, _served(lines)).run("audit", "verify"),
        Stand(tmp_path, _served(_export()[:-1])).run("audit", "verify"),
    ):
        assert shown.code == 1
        assert "not whole" in shown.err
    shown = Stand(tmp_path, _served(lines)).run("audit", "verify")
    assert "line 2 was changed" in shown.err


def test_a_head_that_is_none_and_a_file_that_is_away_are_one_sentence(tmp_path: Path) -> None:
    shown = Stand(tmp_path, {}).run("audit", "verify", "--head", "x")
    assert (shown.code, "--head" in shown.err) == (2, True)
    shown = Stand(tmp_path, {}).run("audit", "verify", str(tmp_path / "nothing"))
    assert (shown.code, "No such file" in shown.err) == (1, True)


def test_an_organization_or_the_platform_is_asked_for_as_an_operator(tmp_path: Path) -> None:
    known = {"GET /v1/operator/audit-events": answers.AUDIT_EVENTS}
    assert Stand(tmp_path, known).run("audit", "list", "--chain", "platform").code == 0
