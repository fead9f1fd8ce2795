"""What the OpenAPI document says beyond the signatures: errors, answers sent as bytes, the API key."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from control_plane.api.errors import MEDIA_TYPE, ApiError
from control_plane.api.openapi.document import document
from control_plane.api.requests import public
from control_plane.wire.common import View
from control_plane.wire.problems import Problem

VERSION = "1.0.0"
"""The version of the API: the last number grows when a field is added, the middle one if a client could break."""

_PROBLEM = ResponseSpec(
    data_container=Problem,
    description="Problem details; docs/errors.md lists the codes.",
    media_type=MEDIA_TYPE,
    generate_examples=False,
)


def problems(*statuses: int) -> Mapping[int, ResponseSpec]:
    """Errors alone, for what needs no key."""
    return dict.fromkeys(statuses, _PROBLEM)


PROBLEMS = problems(400, 401, 403, 404, 429, 500, 503)
"""The errors with which any request that needs a key may end."""


def refusable(*statuses: int) -> Mapping[int, ResponseSpec]:
    """The errors of a request that may also be refused with one of these statuses."""
    return {**PROBLEMS, **problems(*statuses)}


def made(view: type[View], status: int) -> Mapping[int, ResponseSpec]:
    """The answers of a POST: the view it returns, and every status with which it may refuse."""
    answer = ResponseSpec(data_container=view, description="Done.", generate_examples=False)
    return {**refusable(402, 408, 409, 413, 415, 422), status: answer}


async def _only_the_document(request: Request[Any, Any, Any]) -> None:
    """Refuse other paths below /schema, which the framework would answer in HTML."""
    if request.scope["path"] not in ("/schema", "/schema/openapi.json"):
        raise ApiError("route_not_found", "There is no such endpoint.")
    await public(request)


class _Plugin(JsonRenderPlugin):
    """Serves the completed document."""

    def __init__(self) -> None:
        super().__init__()
        self._rendered: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002 - the framework passes it
        if self._rendered is None:
            self._rendered = msgspec.json.encode(document(request.app))
        return self._rendered


def openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Splitplane",
        version=VERSION,
        openapi_router=Router(
            "/schema", route_handlers=[], include_in_schema=False, before_request=_only_the_document
        ),
        description="Lease GPUs of many providers through one API, and read a bill that adds up.",
        render_plugins=(_Plugin(),),
        use_handler_docstrings=True,
        components=Components(
            security_schemes={
                "apiKey": SecurityScheme(
                    type="http", scheme="bearer", description="`Authorization: Bearer spk_...`"
                )
            }
        ),
        security=[{"apiKey": []}],
    )
