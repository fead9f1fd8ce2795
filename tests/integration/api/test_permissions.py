"""Every route names one permission, the door refuses a key without it, and no permission is left unused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from control_plane.api.app import create_app
from control_plane.api.errors import KINDS
from control_plane.api.requests import permission_of, query_names, scope_kind_of
from control_plane.domain.permission import EVERYBODYS, NARROWEST, Permission
from control_plane.domain.scope import is_within
from control_plane.services import process
from control_plane.settings import Settings
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import ENDPOINTS
from tests.integration.api.problems import SOME_ID
from tests.support.cases import case

WITH_KEY = [endpoint for endpoint in ENDPOINTS if not endpoint.public]
SIGN_IN = {
    "/.well-known/jwks.json",
    "/.well-known/oauth-authorization-server",
    "/auth/callback",
    "/auth/start",
    "/device",
    "/oauth/device_authorization",
    "/oauth/revoke",
    "/oauth/token",
}
SIGNED = {"/payments/events"}
PUBLIC = (
    {"/healthz", "/readyz", "/docs", "/schema", "/schema/openapi.json", "/schema/{path}"} | SIGN_IN | SIGNED
)


@pytest.fixture(scope="module")
def app() -> Litestar:
    return create_app(
        process.api_process("postgresql://nowhere/none", connections=1).world, Settings("unused")
    )


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        assert isinstance(route, HTTPRoute)
        for handler in route.route_handlers:
            assert isinstance(handler, HTTPRouteHandler)
            for method in handler.http_methods - {"OPTIONS"}:
                yield method, route.path_format, handler


def test_every_handler_names_its_permission_and_only_the_public_ones_name_none(app: Litestar) -> None:
    named = {
        (method, path): permission_of(handler)
        for method, path, handler in _handlers(app)
        if path not in PUBLIC
    }
    assert named == {(endpoint.method, endpoint.path): endpoint.permission for endpoint in WITH_KEY}
    assert {path for _, path, _ in _handlers(app)} - {endpoint.path for endpoint in WITH_KEY} == PUBLIC
    assert all(type(permission) is Permission for permission in named.values())
    assert all("permission" not in handler.opt for _, path, handler in _handlers(app) if path in PUBLIC)


def test_the_table_of_endpoints_knows_every_query_parameter(app: Litestar) -> None:
    known = {(endpoint.method, endpoint.path): endpoint.query for endpoint in ENDPOINTS}
    declared = {(method, path): query_names(handler).keys() for method, path, handler in _handlers(app)}
    assert {key: declared[key] for key in known} == known


def test_every_handler_names_a_kind_of_scope_at_which_its_permission_is_given(app: Litestar) -> None:
    for method, path, handler in _handlers(app):
        if path in PUBLIC or permission_of(handler) in EVERYBODYS:
            continue
        with case(f"{method} {path}"):
            assert is_within(NARROWEST[permission_of(handler)], scope_kind_of(handler))


def test_every_permission_is_used() -> None:
    code = "".join(
        path.read_text()
        for layer in ("api", "services")
        for path in Path("control_plane", layer).rglob("*.py")
    )
    used = set(re.findall(r"\bPermission\.([A-Z_]+)", code))
    # Whoever acts on an owner must have it, as nobody acts on somebody who may do more.
    assert used | {"OWNERS_APPOINT"} == set(Permission.__members__)


@pytest.mark.database
async def test_the_methods_of_an_endpoint_need_no_key_and_no_permission(api: Api, operator: Tenant) -> None:
    for endpoint in WITH_KEY:
        path = endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")
        with case(endpoint):
            for client in (api.anonymous, operator.http):
                answer = await client.options(path)
                assert (answer.status_code, answer.text) == (204, "")
                assert "OPTIONS" in answer.headers["allow"]


def test_a_refusal_of_an_unknown_word_names_the_field_that_has_it(app: Litestar) -> None:
    document = json.dumps(app.openapi_schema.to_schema())
    for code, kind in KINDS.items():
        if code.endswith("_unknown"):
            assert kind.field, code
        if kind.field:
            assert f'"{kind.field}"' in document, code
