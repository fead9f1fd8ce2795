"""Every list is paged, and its pages are the list."""

import msgspec
import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from control_plane.api import paging
from control_plane.api.errors import ApiError
from control_plane.api.requests import query_names
from tests.integration.api.conftest import Api, Shared, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold
from tests.support.cases import case

pytestmark = pytest.mark.database


WHOLE = {"/v1/operator/detectors"}
"""Lists of what the code has, which do not grow."""


def _lists(api: Api) -> dict[str, HTTPRouteHandler]:
    """The handlers whose answer has a list as its subject."""
    found = {}
    for route in api.app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            kind = handler.parsed_fn_signature.return_type.annotation
            if (
                isinstance(kind, type)
                and issubclass(kind, msgspec.Struct)
                and "items" in kind.__struct_fields__
            ):
                if route.path in WHOLE:
                    continue
                found[route.path] = handler
                assert "next_cursor" in kind.__struct_fields__, route.path
    return found


async def test_every_list_is_paged_and_refuses_the_cursor_of_another(shared: Shared) -> None:
    lists = _lists(shared.api)
    assert len(lists) >= 12
    foreign = paging._pack("nowhere:1:x")
    for path, handler in lists.items():
        with case(path):
            assert query_names(handler).keys() >= {"limit", "cursor"}
            if "{" not in path:
                client = shared.operator.http
                assert (await client.get(path, params={"limit": 1})).status_code == 200
                hold(await client.get(path, params={"limit": 201}), "invalid_parameter")
                hold(await client.get(path, params={"cursor": foreign}), "invalid_cursor")


async def _pages(tenant: Tenant, path: str, limit: int) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    for _ in range(20):
        query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        answer = (await tenant.http.get(path, params=query)).json()
        assert len(answer["items"]) <= limit
        found += [str(item.get("id") or item["name"]) for item in answer["items"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the list has no end")


async def test_pages_are_the_list(api: Api, acme: Tenant) -> None:
    for number in range(4):
        await acme.http.post("/v1/api-keys", json={"name": f"key {number}"})
    key = {"name": "laptop", "public_key": SSH_KEY}
    assert (await acme.http.post("/v1/ssh-keys", json=key)).status_code == 201
    for path, count in (("/v1/api-keys", 5), ("/v1/skus", 2), ("/v1/ssh-keys", 1)):
        with case(path):
            whole = [str(i.get("id") or i["name"]) for i in (await acme.http.get(path)).json()["items"]]
            assert len(whole) == count
            for limit in (1, 2, count, count + 1):
                assert await _pages(acme, path, limit) == whole


def test_a_page_goes_on_where_the_last_one_ended_even_when_its_last_row_is_gone() -> None:
    rows = ["a", "b", "c", "d", "e"]
    page, cursor = paging.window("x", rows, str, limit=2, cursor=None)
    assert page == ["a", "b"]
    for now, expected in (
        (rows, ["c", "d"]),
        (["new", *rows], ["c", "d"]),
        (["a", "c", "d", "e"], ["d", "e"]),
        (["b"], []),
    ):
        with case(now):
            assert paging.window("x", now, str, limit=2, cursor=cursor)[0] == expected
    assert paging.window("x", rows, str, limit=5, cursor=None) == (rows, None)
    assert paging.window("x", [], str, limit=5, cursor=None) == ([], None)
    for wrong in ("", "x", cursor and cursor[:-1], paging._pack("y:2:b"), paging._pack("x:b")):
        with case(wrong), pytest.raises(ApiError):
            paging.window("x", rows, str, limit=2, cursor=wrong)
