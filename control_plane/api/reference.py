"""The reference page of the API. It needs no key and loads nothing from elsewhere."""

from litestar import Controller, Response, get

from control_plane.api.openapi.document import document
from control_plane.api.openapi.page import POLICY, page
from control_plane.api.requests import ApiRequest

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "max-age=300",
}


class ReferenceController(Controller):
    path = "/docs"
    include_in_schema = False
    _page: bytes | None = None

    @get("/", media_type="text/html", sync_to_thread=False)
    def show(self, request: ApiRequest) -> Response[bytes]:
        """The OpenAPI document as a page of HTML."""
        if self._page is None:
            self._page = page(document(request.app))
        return Response(self._page, media_type="text/html", headers=_HEADERS)
