"""What came out of an export run, as JSON: what the files hold, and how anybody can check them.

The same run has the same manifest, byte for byte.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain import focus
from control_plane.domain.focus import COLUMNS, decimal_text, time_text
from control_plane.exports.totals import Totals

FORMAT = 1
"""Of the manifest. A change that a reader must know of raises it."""
ORDER = ("BillingAccountId", "ChargePeriodStart", "x_ChargeId")
"""The rows of a file are in this order, which is total: no two have the same x_ChargeId."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    name: str
    size: int
    """In bytes."""
    sha256: bytes
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a manifest says of its run."""

    run: str
    """Its id."""
    covers: str
    """The id of the organization whose charges these are, or `all`."""
    period: str
    """As `2026-10`."""
    since: datetime
    until: datetime
    final: bool
    cut_at: datetime
    """Charges that were rated later are not in it."""
    created_at: datetime
    price_books: Sequence[int]
    previous: tuple[str, bytes] | None
    """The id of the complete run of the same period before this one, and the SHA-256 of its manifest."""


def manifest(described: Described, files: Sequence[ExportedFile]) -> bytes:
    """The manifest of a run with all its files. Raises ValueError when they do not hold the same rows."""
    first = files[0].totals
    if any(file.totals != first for file in files):
        raise ValueError(f"the files of {described.run} do not hold the same rows")
    content = {
        "format": FORMAT,
        "run": described.run,
        "dataset": "CostAndUsage",
        "focus_version": focus.VERSION,
        "covers": described.covers,
        "period": described.period,
        "billing_period_start": time_text(described.since),
        "billing_period_end": time_text(described.until),
        "status": "final" if described.final else "provisional",
        # Each run holds the whole period, and replaces what was delivered before.
        "delivery": "overwrite",
        "cut_at": _exactly(described.cut_at),
        "created_at": _exactly(described.created_at),
        "currency": focus.CURRENCY,
        "price_books": [f"v{book}" for book in sorted(described.price_books)],
        "order": list(ORDER),
        "columns": [
            {"name": column.name, "type": column.kind.value, "nullable": column.nullable}
            for column in COLUMNS
        ],
        "rows": first.rows,
        "sums": {name: decimal_text(total) for name, total in sorted(first.sums.items())},
        "files": [
            {"name": file.name, "bytes": file.size, "sha256": file.sha256.hex()}
            for file in sorted(files, key=lambda file: file.name)
        ],
        "previous": None
        if described.previous is None
        else {"run": described.previous[0], "manifest_sha256": described.previous[1].hex()},
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _exactly(at: datetime) -> str:
    """With microseconds, because it decides which charges are in the export."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
