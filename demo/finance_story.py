"""The demo's chapter for finance: the month as a FOCUS export, and proof that the books follow from what happened."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control_plane.domain.export_run import SETTLES_WITHIN
from control_plane.domain.period import month_text
from control_plane.world import utc_now
from demo.city import City
from demo.processes import DemoError

FILES = ("focus-1.2.csv", "focus-1.2.parquet", "manifest.json")
REPORT = "reconciliation.json"
Finance = Callable[..., str]
"""Types a command of ours as finance would, and shows it with its output unless it is told not to."""


class FinanceStory:
    def __init__(self, city: City, finance: Finance) -> None:
        self._city = city
        self._finance = finance
        self._month = month_text(utc_now())

    def export(self, charged_at: float) -> int:
        """Export what was charged until `charged_at`, in seconds of `time.monotonic`. Returns the number of rows."""
        left = charged_at + SETTLES_WITHIN.total_seconds() + 1 - time.monotonic()
        if left > 0:
            self._city.say(f"  (an export has what was charged over a minute ago: {left:.0f} s to wait)")
            time.sleep(left)
        folder = self._city.directory / "exports"
        shutil.rmtree(folder, ignore_errors=True)
        self._finance("export", "create", self._month, "--to", str(folder))
        (made,) = folder.glob("*/*/")
        for name in FILES:
            shutil.copyfile(made / name, self._city.directory / name)
        return _rows(made / "manifest.json")

    def reconcile(self) -> int:
        """Returns the sum of all differences, in nano-US-dollars. The report is kept beside the summary."""
        self._finance("reconcile", self._month)
        newest = json.loads(self._finance("reconciliation", "list", "--json", show=False))["items"][0]
        (self._city.directory / REPORT).write_text(json.dumps(newest, indent=2) + "\n")
        if newest["customers"] == 0:
            raise DemoError("no customer was examined")
        return sum(abs(_nano(link)) for link in newest["links"])


def _rows(manifest: Path) -> int:
    found: dict[str, Any] = json.loads(manifest.read_text())
    return int(found["rows"])


def _nano(link: dict[str, Any]) -> int:
    return int(link["difference"]["nano"])
