"""A command that moves money can be repeated with its key when its answer was lost."""

from pathlib import Path

import httpx

from tests.unit.cli import answers
from tests.unit.cli.stand import Stand

COMMAND = ("finance", "topup", "fresh", "24.90", "--reason", "SEPA 000815", "--yes")
ORGANIZATIONS = "GET /v1/operator/organizations"
POST = "POST /v1/finance/transactions"


def _lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("connection lost")


def test_a_lost_answer_names_the_key_with_which_the_command_takes_effect_once(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {ORGANIZATIONS: answers.ORGANIZATIONS, POST: _lost})
    shown = stand.run(*COMMAND, "--timeout", "1")
    keys = {request.headers["Idempotency-Key"] for request in stand.requests if request.method == "POST"}
    (key,) = keys
    assert shown.code == 3
    assert f"Repeat the command with --key {key}: it takes effect once." in shown.err
    stand = Stand(tmp_path, {ORGANIZATIONS: answers.ORGANIZATIONS, POST: answers.LEDGER_TRANSACTION})
    assert stand.run(*COMMAND, "--key", key).code == 0
    assert stand.requests[-1].headers["Idempotency-Key"] == key


def test_a_refusal_moved_nothing_and_asks_for_no_repetition(tmp_path: Path) -> None:
    refused = httpx.Response(409, json={"code": "organization_state", "detail": "It is closing."})
    stand = Stand(tmp_path, {ORGANIZATIONS: answers.ORGANIZATIONS, POST: refused})
    assert "--key" not in stand.run(*COMMAND).err
