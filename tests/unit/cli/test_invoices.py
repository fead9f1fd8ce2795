"""Invoices on the command line: as a page that a person prints or keeps."""

import json
from pathlib import Path

import httpx

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand

PAGE = httpx.Response(200, text="<!doctype html>\n<p>Seite für Acme</p>\n")
CUSTOMER = answers.OTHER_ORGANIZATION


def test_html_is_the_page_of_the_api_and_nothing_else(tmp_path: Path) -> None:
    invoice = answers.INVOICE["id"]
    screens: tuple[tuple[str, dict[str, Answer]], ...] = (
        (
            "invoice show INV-2026-000001 --html",
            {"GET /v1/invoices": answers.INVOICES, f"GET /v1/invoices/{invoice}/page": PAGE},
        ),
        (
            f"credit-note show {answers.CREDIT_NOTE['id']} --html",
            {f"GET /v1/credit-notes/{answers.CREDIT_NOTE['id']}/page": PAGE},
        ),
        (f"finance invoice show {invoice} --html", {f"GET /v1/finance/invoices/{invoice}/page": PAGE}),
        (
            f"finance invoice issue 2026-10 --organization {CUSTOMER['name']} --draft --html",
            {
                "GET /v1/operator/organizations": answers.ORGANIZATIONS,
                f"GET /v1/finance/invoice-drafts/{CUSTOMER['id']}/2026-10/page": PAGE,
            },
        ),
    )
    for command, reads in screens:
        with case(command):
            shown = Stand(tmp_path, reads).run(*command.split())
            assert (shown.out, shown.err, shown.code) == (PAGE.text, "", 0)


def test_html_is_of_one_document_and_no_json(tmp_path: Path) -> None:
    for command in (
        "invoice show INV-2026-000001 --html --json",
        "finance invoice show INV-2026-000001 --html --json",
        "credit-note show CN-2026-000001 --html --json",
        "finance invoice issue 2026-10 --html",
        "finance invoice issue 2026-10 --draft --html",
        f"finance invoice issue 2026-10 --organization {CUSTOMER['name']} --html",
    ):
        with case(command):
            stand = Stand(tmp_path)
            assert stand.run(*command.split()).code == 2
            assert stand.requests == []


def test_a_credit_note_names_its_lines_with_what_is_credited_of_them(tmp_path: Path) -> None:
    invoice = answers.INVOICE["id"]
    wanted = {"invoice_id": invoice, "reason": "ticket"}
    for arguments, lines in (
        ("--line 2 --amount 24.90", [{"line": 2, "amount_usd": "24.90"}]),
        (
            "--line 2 --line 1 --amount 5 --amount 0.01",
            [{"line": 2, "amount_usd": "5"}, {"line": 1, "amount_usd": "0.01"}],
        ),
        ("--line 2", [{"line": 2}]),
        ("--all", None),
    ):
        with case(arguments):
            stand = Stand(tmp_path, {"POST /v1/finance/credit-notes": answers.CREDIT_NOTE})
            command = f"finance credit-note create {invoice} {arguments} --reason ticket --yes"
            assert stand.run(*command.split()).code == 0
            (request,) = stand.requests
            body = json.loads(request.content)
            assert body == wanted | ({} if lines is None else {"lines": lines})
            assert request.headers["Idempotency-Key"]


def test_a_credit_note_of_nothing_certain_is_wrong_usage(tmp_path: Path) -> None:
    for arguments in (
        "",
        "--all --line 1",
        "--line 1 --line 2 --amount 5",
        "--line 1 --line 1",
        "--line 0",
        "--line 1 --amount 0",
        "--line 1 --amount 0.001",
        "--line 1 --amount -5",
        "--amount 5",
    ):
        with case(arguments):
            stand = Stand(tmp_path)
            command = f"finance credit-note create INV-2026-000001 {arguments} --reason ticket --yes"
            assert stand.run(*command.split()).code == 2
            assert stand.requests == []
