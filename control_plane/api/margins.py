"""Margins of a month, for finance."""

from typing import Annotated

from litestar import Controller, get
from litestar.params import QueryParameter

from control_plane.api.documents import refusable
from control_plane.api.errors import refusal
from control_plane.api.requests import ApiRequest
from control_plane.api.views.margins import margin_view
from control_plane.domain.margin import MarginBy
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import margins
from control_plane.wire.exports import PERIOD_PATTERN
from control_plane.wire.margins import LINES_MAX, MarginView

_LINES_DEFAULT = 100
Month = Annotated[
    str | None,
    QueryParameter(
        pattern=PERIOD_PATTERN,
        max_length=7,
        description="A month, such as `2026-10`; the current one without it.",
    ),
]


class MarginController(Controller):
    path = "/finance/margin"
    tags = ("finance",)

    @get(
        "/",
        operation_id="getMargin",
        permission=Permission.MARGINS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409, 422),
    )
    async def show(
        self,
        request: ApiRequest,
        *,
        month: Month = None,
        by: Annotated[
            MarginBy, QueryParameter(description="By what the margins are added up.")
        ] = MarginBy.PROVIDER,
        lines: Annotated[
            int, QueryParameter(ge=1, le=LINES_MAX, description="How many lines; the others are summed.")
        ] = _LINES_DEFAULT,
    ) -> MarginView:
        """What customers were charged in a month, what providers bill us for it, and the margin."""
        found = await margins.report(
            request.world,
            request.principal.organization_id,
            None if month is None else parse_month(month),
            by,
            lines=lines,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return margin_view(found)
