"""Query parameters that several lists have in common: where something is."""

from typing import Annotated

from litestar.params import QueryParameter

from control_plane.wire.common import PLACE_LENGTH_MAX, PROVIDER_PATTERN, REGION_PATTERN

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
