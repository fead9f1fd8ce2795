"""Proofs on the command line: a lease stands for its latest, and an older API's answers are understood."""

from pathlib import Path

import pytest

from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, PROOF_ID, a_lease, a_proof
from tests.unit.cli.stand import Stand


def test_a_lease_stands_for_its_latest_proof(tmp_path: Path) -> None:
    known = {f"GET /v1/leases/{LEASE_ID}": a_lease(), f"GET /v1/proofs/{PROOF_ID}": a_proof("passed")}
    shown = Stand(tmp_path, known).run("proof", "show", LEASE_ID)
    assert shown.code == 0
    assert PROOF_ID in shown.out


def test_an_emulation_is_explained_although_it_has_no_finding(tmp_path: Path) -> None:
    page = {"items": [answers.EMULATED], "next_cursor": None}
    known = {f"GET /v1/leases/{LEASE_ID}": a_lease(), f"GET /v1/leases/{LEASE_ID}/proofs": page}
    shown = Stand(tmp_path, known).run("proof", "list", LEASE_ID)
    assert "emulated  An emulation answered, which proves nothing." in shown.out


def test_a_machine_that_was_not_challenged_is_distinguished_from_an_unknown_lease(tmp_path: Path) -> None:
    shown = Stand(tmp_path, {f"GET /v1/leases/{LEASE_ID}": a_lease("starting")}).run(
        "proof", "show", LEASE_ID
    )
    assert (shown.code, "no_proof" in shown.err, "splitplane why" in shown.err) == (1, True, True)


@pytest.mark.parametrize("command", ["lease show", "proof show"])
def test_an_api_that_knows_nothing_of_proofs_is_understood(tmp_path: Path, command: str) -> None:
    old = a_lease()
    del old["proof"]
    shown = Stand(tmp_path, {f"GET /v1/leases/{LEASE_ID}": old}).run(*command.split(), LEASE_ID)
    assert shown.code == (0 if command == "lease show" else 1)
    assert "Traceback" not in shown.err


def test_the_best_try_of_a_phase_is_shown(tmp_path: Path) -> None:
    slow = answers.a_rate(0, "walk", 5.0, 1e11, 0.71)
    proof = a_proof("passed")
    proof["rates"] = [slow, *proof["rates"]]
    shown = Stand(tmp_path, {f"GET /v1/proofs/{PROOF_ID}": proof}).run("proof", "show", PROOF_ID)
    assert "2,100 ≥ 1,538" in shown.out


def test_an_operator_asks_for_one_account_and_outcome(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/operator/proofs": answers.PROOF_RECORDS})
    assert stand.run("proof", "record", "--account", "local", "--outcome", "failed").code == 0
    asked = dict(stand.requests[0].url.params)
    assert asked == {"account": "local", "outcome": "failed", "limit": "50"}


def test_what_a_machine_says_of_itself_moves_no_cursor(tmp_path: Path) -> None:
    finding = answers.a_finding("walk_too_slow", 0, "\x1b[2J\u202e[bold]slow[/bold]")
    proof = a_proof("failed", driver="\x1b]0;owned\x07", findings=[finding])
    shown = Stand(tmp_path, {f"GET /v1/proofs/{PROOF_ID}": proof}).run("proof", "show", PROOF_ID)
    assert "\x1b" not in shown.out.replace("\x1b[0m", "")
    assert "[bold]slow[/bold]" in shown.out
