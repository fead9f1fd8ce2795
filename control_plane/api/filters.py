"""Query parameters that several endpoints have in common: where something is, and which month is asked for."""

from datetime import datetime
from typing import Annotated

from litestar.params import QueryParameter

from control_plane.domain.period import parse_month
from control_plane.wire.common import PLACE_LENGTH_MAX, PROVIDER_PATTERN, REGION_PATTERN
from control_plane.wire.exports import PERIOD_PATTERN

OfProvider = Annotated[
    str | None,
    QueryParameter(
        pattern=PROVIDER_PATTERN, max_length=PLACE_LENGTH_MAX, description="Only at this provider."
    ),
]
InRegion = Annotated[
    str | None,
    QueryParameter(
        pattern=REGION_PATTERN,
        max_length=PLACE_LENGTH_MAX,
        description="Only in this jurisdiction (`eu`) or region (`eu-central-1`).",
    ),
]
OfMonth = Annotated[
    str | None,
    QueryParameter(
        pattern=PERIOD_PATTERN,
        max_length=7,
        description="Only this calendar month in UTC, such as `2026-10`.",
    ),
]


def first_instant(month: str | None) -> datetime | None:
    """The first instant of the month that a query asks for; None where it asks for none."""
    return None if month is None else parse_month(month)
