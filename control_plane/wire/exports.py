"""Exports of charges: what was asked for, and the files that were fetched."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import ExportRunIdText, one_of

PERIOD_PATTERN = r"^20[0-9]{2}-(0[1-9]|1[0-2])$(?!\n)"
PeriodText = Annotated[
    str,
    Meta(
        pattern=PERIOD_PATTERN,
        max_length=7,
        description="A calendar month in UTC.",
        examples=["2026-10"],
        extra={"must": "a month such as 2026-10"},
    ),
]
CoverageWord = Annotated[
    str,
    one_of(
        "ExportCoverage",
        "Whose charges an export has.",
        organization="Those of your organization.",
        all="Those of all organizations.",
    ),
]
ExportStatusWord = Annotated[
    str,
    one_of(
        "ExportStatus",
        "Whether the period can still change.",
        provisional="More charges may follow.",
        final="It is over, and so is the time for late charges.",
    ),
]


class ExportRequest(Request):
    """An export to be made."""

    period: PeriodText
    """The billing period."""
    final: bool = False
    """Refuse it while the period can still change. Otherwise the export is provisional."""


class ExportFileView(View):
    """A file, as it was first fetched to its last byte."""

    name: str
    """Its name in the folder of the export."""
    size: int
    """In bytes."""
    sha256: str
    """The SHA-256 of its bytes, in hexadecimal."""
    rows: int
    """How many charges it has."""
    sums: dict[str, str]
    """Sums of columns, as exact decimals with twelve places."""
    delivered_at: Timestamp
    """When it was fetched."""


class ExportView(View):
    """An export of a billing period. Its files are made whenever they are fetched, each time with the same bytes."""

    id: ExportRunIdText
    """The id of the export."""
    period: PeriodText
    """The billing period."""
    coverage: CoverageWord
    """Whose charges it has."""
    status: ExportStatusWord
    """Whether the period could still change."""
    cut_at: Timestamp
    """Charges that were rated later are not in it."""
    created_at: Timestamp
    """When it was asked for."""
    created_by: str
    """The user or the service account that asked for it."""
    previous_id: ExportRunIdText | None
    """The export of the same period before it, which the manifest names; null where there is none."""
    files: tuple[ExportFileView, ...]
    """The files that were fetched so far. The manifest can be fetched after both."""


class ExportPage(View):
    """Exports."""

    items: tuple[ExportView, ...]
    """The exports, newest first."""
    next_cursor: NextCursor | None = None
