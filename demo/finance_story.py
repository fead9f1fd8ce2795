"""The demo's chapters for finance: the running month as an export, and last month from its close to its export."""

import csv
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from control_plane.domain.export_run import SETTLES_WITHIN
from control_plane.domain.period import month_text
from control_plane.world import utc_now
from demo import past_month
from demo.city import City
from demo.processes import DemoError, wait_for

FILES = ("focus-1.2.csv", "focus-1.2.parquet", "manifest.json")
REPORT = "reconciliation.json"
SUPPLIER_INVOICE = f"{past_month.SUPPLIER}-invoice.csv"
INVOICE = "invoice.html"
BILLED_SECONDS_MAX = 60
Finance = Callable[..., str]
"""Types a command of ours as finance or a customer would, and shows it with its output unless it is told not to."""


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """A month that is closed and invoiced."""

    month: str
    invoice: str
    """The number of its invoice."""
    total: Decimal
    """What is printed on it, in US dollars."""
    charged_at: datetime
    """When its last entries were made."""
    matched: bool
    """Whether every difference between the supplier's invoice and our records is explained."""


@dataclass(frozen=True, slots=True)
class FinalExport:
    focus_rows: int
    difference_nano: int
    """What the links of the month's reconciliation differ by in all."""


class FinanceStory:
    def __init__(self, city: City, finance: Finance) -> None:
        self._city = city
        self._finance = finance
        self._month = month_text(utc_now())
        self._past = past_month.leases_before(utc_now())

    def begin(self) -> None:
        """Write the leases of last month into the database. The reconciler meters and prices them meanwhile."""
        past_month.plant(self._city.owner_url, self._past)

    def close(self, customer: Finance) -> ClosedMonth:
        """Close last month, issue its invoice, and match what the supplier invoices.

        `customer` types what the customer of that month does.
        """
        month = past_month.month_name(self._past)

        def billed() -> bool:
            bill = json.loads(customer("bill", "--month", month, "--json", show=False))
            return bool(bill["amount"]["nano"] and not bill["unrated"]["nano"])

        wait_for("the charges of last month", BILLED_SECONDS_MAX, billed, self._city.children["reconciler"])
        customer("bill", "--month", month)
        self._finance("period", "close", month, "--yes")
        address = ("--address", "Salomon-Idler-Str. 12", "--address", "86159 Augsburg")
        buyer = (past_month.CUSTOMER, "DE", "19", "--name", "Heliotrope GmbH", *address)
        self._finance("billing-details", "set", *buyer, show=False)
        self._finance("invoice", "issue", month)
        issued = json.loads(customer("invoice", "list", "--json", show=False))["items"]
        if len(issued) != 1:
            raise DemoError(f"{len(issued)} invoices were issued to the customer of last month")
        number = str(issued[0]["number"])
        customer("invoice", "show", number)
        page = self._city.directory / INVOICE
        page.write_text(customer("invoice", "show", number, "--html", show=False))
        matched = self._match(month)
        entries = json.loads(customer("balance", "entries", "--month", month, "--json", show=False))["items"]
        times = [*(entry["recorded_at"] for entry in entries), issued[0]["issued_at"]]
        charged_at = max(map(datetime.fromisoformat, times))
        return ClosedMonth(month, number, Decimal(issued[0]["total"]["usd"]), charged_at, matched)

    def export_closed(self, closed: ClosedMonth) -> FinalExport:
        """Export a closed month for good, hold the rows to its invoice, and reconcile it."""
        self._wait_to_settle(closed.charged_at)
        rows = self._exported(closed.month, self._city.directory / "closed")
        self._hold_to_invoice(closed.invoice, closed.total)
        return FinalExport(rows, self._reconciled(closed.month))

    def _hold_to_invoice(self, number: str, total: Decimal) -> None:
        """Raises DemoError unless the rows of the export that name the invoice sum to what is printed on it."""
        with (self._city.directory / "closed" / FILES[0]).open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["InvoiceId"] == number]
        billed = sum(Decimal(row["BilledCost"]) for row in rows)
        if billed != total:
            raise DemoError(f"the rows of {number} sum to {billed} USD, and {total} USD is printed on it")
        self._city.say(
            f"  the {len(rows)} rows of {number} in the export sum to its printed total: {total:.2f} USD"
        )

    def _match(self, month: str) -> bool:
        self._city.say(
            f"  {past_month.SUPPLIER} bills a machine from when it runs, each minute that has begun:"
        )
        path = self._city.directory / SUPPLIER_INVOICE
        path.write_text(past_month.supplier_invoice(self._past, self._city.say))
        supplier = ("--provider", past_month.SUPPLIER)
        self._finance("supplier-invoice", "import", str(path), *supplier, "--month", month)
        self._finance("match", month, *supplier)
        found = json.loads(self._finance("match", month, *supplier, "--json", show=False))
        self._finance("supplier-invoice", "post", month, *supplier)
        return bool(found["matched"] and found["machines_count"] == len(self._past))

    def _wait_to_settle(self, charged_at: datetime) -> None:
        left = (charged_at + SETTLES_WITHIN - utc_now()).total_seconds() + 1
        if left > 0:
            self._city.say(f"  (an export has what was charged over a minute ago: {left:.0f} s to wait)")
            time.sleep(left)

    def export(self, charged_at: datetime) -> int:
        """Export what was charged until a moment. Returns the number of rows."""
        self._wait_to_settle(charged_at)
        return self._exported(self._month, self._city.directory)

    def _exported(self, month: str, to: Path) -> int:
        """Export a month, and copy its files to a folder. Returns the number of rows."""
        folder = self._city.directory / "exports" / month
        shutil.rmtree(folder, ignore_errors=True)
        self._finance("export", "create", month, "--to", str(folder))
        (made,) = folder.glob("*/*/")
        to.mkdir(exist_ok=True)
        for name in FILES:
            shutil.copyfile(made / name, to / name)
        return _rows(made / "manifest.json")

    def reconcile(self) -> int:
        """Returns the sum of all differences, in nano-US-dollars. The report is kept beside the summary."""
        return self._reconciled(self._month, self._city.directory / REPORT)

    def _reconciled(self, month: str, report: Path | None = None) -> int:
        self._finance("reconcile", month)
        listed = json.loads(self._finance("reconciliation", "list", "--json", show=False))["items"]
        # The reconciler asks by itself as well, once a day.
        newest = next(one for one in listed if one["period"] == month and one["state"] != "running")
        if report is not None:
            report.write_text(json.dumps(newest, indent=2) + "\n")
        if newest["customers"] == 0:
            raise DemoError("no customer was examined")
        return sum(abs(_nano(link)) for link in newest["links"])


def _rows(manifest: Path) -> int:
    found: dict[str, Any] = json.loads(manifest.read_text())
    return int(found["rows"])


def _nano(link: dict[str, Any]) -> int:
    return int(link["difference"]["nano"])
