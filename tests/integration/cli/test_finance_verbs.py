"""The commands of finance, and those with which a customer follows its money, against the real API process."""

from datetime import timedelta
from pathlib import Path

import pytest

from control_plane.world import utc_now
from tests.integration.cli.conftest import City

pytestmark = [pytest.mark.database, pytest.mark.xdist_group("cli")]


def _last_month() -> str:
    return f"{utc_now().replace(day=1) - timedelta(days=1):%Y-%m}"


def test_finance_posts_closes_reconciles_matches_and_exports_with_its_commands(
    city: City, tmp_path: Path
) -> None:
    month, finance = _last_month(), city.finance
    wallets = city.answer("finance", "wallets", **finance)["items"]
    (organization,) = [item["organization_id"] for item in wallets if item["organization"] == "acme"]
    for verb, usd in (("topup", "25"), ("credit", "5"), ("refund", "1.50")):
        posted = city.answer(
            "finance", verb, organization, usd, "--reason", "ticket 4711", "--yes", **finance
        )
        assert posted["amount"]["usd"] == f"{float(usd):.9f}", verb
    assert "overpayment" in city.run(
        "finance", "payment", organization, "1", "--reason", "r", "--yes", code=1, **finance
    )
    kinds = [
        item["kind"] for item in city.answer("finance", "entries", "--account", "cash", **finance)["items"]
    ]
    assert kinds[:2] == ["refund", "top_up"]
    assert {"wallet", "credits", "payable"} <= set(city.run("finance", "accounts", **finance).split())
    assert "acme" in city.run("finance", "wallets", **finance)

    terms = ("finance", "credit-terms")
    city.run(
        *terms, "set", organization, "100", "--days", "14", "--reason", "contract 17", "--yes", **finance
    )
    assert city.answer(*terms, "show", organization, **finance)["payment_days"] == 14
    city.run(*terms, "set", organization, "0", "--days", "0", "--reason", "paid late", "--yes", **finance)
    details = ("--name", "Acme GmbH", "--address", "Hafen 1")
    city.run("finance", "billing-details", "set", organization, "DE", "19", *details, **finance)

    assert city.answer("finance", "period", "close", month, "--yes", **finance)["state"] == "closed"
    assert "period_closed" in city.run("finance", "period", "close", month, "--yes", code=1, **finance)
    assert month in city.run("finance", "period", "list", **finance)
    asked = city.answer("finance", "period", "reopen", month, "--reason", "ticket", **finance)
    assert asked["state"] == "closed", "somebody else has to agree"
    city.run("finance", "invoice", "issue", month, **finance)
    assert city.answer("finance", "invoice", "list", month, **finance)["items"] == []
    assert city.answer("finance", "credit-note", "list", **finance)["items"] == []
    found = city.answer("finance", "reconcile", month, **finance)
    assert (found["state"], {link["difference"]["nano"] for link in found["links"]}) == ("reconciled", {0})
    assert found["id"] in str(city.answer("finance", "reconciliation", "list", **finance))
    city.run("finance", "margin", month, **finance)

    file = tmp_path / "fake.csv"
    file.write_text(
        "machine,from,to,quantity,unit,amount,currency\n"
        f"i-unknown,{month}-02T00:00:00Z,{month}-02T01:00:00Z,1,hour,2.49,USD\n"
    )
    supplier, of_fake = ("finance", "supplier-invoice"), ("--provider", "fake")
    city.run(*supplier, "import", str(file), *of_fake, "--month", month, **finance)
    assert "not_on_our_records" in str(city.run("finance", "match", month, "--json", code=1, **finance))
    assert "supplier_invoice_differs" in city.run(*supplier, "post", month, *of_fake, code=1, **finance)
    posted = city.answer(*supplier, "post", month, *of_fake, "--reason", "ticket", **finance)
    assert posted["state"] == "posted"
    assert city.answer(*supplier, "void", month, *of_fake, "--reason", "r", **finance)["state"] == "voided"

    exported = city.answer("finance", "export", "create", month, "--final", "--to", str(tmp_path), **finance)
    assert exported["manifest"]["status"] == "final"
    assert "whole" in city.run("finance", "export", "verify", exported["to"], **finance)
    again = city.answer("finance", "export", "create", month, "--to", str(tmp_path), **finance)
    city.run("finance", "export", "diff", exported["to"], again["to"], **finance)
    assert again["manifest"]["files"] == exported["manifest"]["files"], "the same bytes"
    assert "not_found" in city.run("finance", "explain", f"ch_{'0' * 32}", code=1, **finance)


def test_a_customer_follows_its_balance_sets_alerts_and_is_no_finance(city: City, tmp_path: Path) -> None:
    month = _last_month()
    assert "USD" in city.run("balance", "show")
    assert city.answer("balance", "entries", "--kind", "top_up")["items"]
    assert city.run("balance", "entries", "--csv").startswith("number,")
    city.run("balance", "alert", "set", "--budget", "5000", "--percent", "50")
    assert "5,000.00" in city.run("balance", "alert", "show")
    city.run("balance", "alert", "history")
    for by in ("project", "lease", "day"):
        city.run("usage", "--by", by, "--month", month)
    assert city.answer("invoice", "list")["items"] == city.answer("credit-note", "list")["items"] == []
    assert city.answer("export", "create", month, "--to", str(tmp_path))["manifest"]["rows"] == 0
    assert "permission_denied" in city.run("finance", "wallets", code=1)
