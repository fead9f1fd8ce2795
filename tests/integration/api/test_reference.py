"""The document and its page as they are served."""

import json

import pytest

from control_plane.__main__ import document
from control_plane.api.openapi.page import POLICY
from tests.integration.api.conftest import Shared

pytestmark = pytest.mark.database


async def test_the_page_is_served_without_a_key_under_a_strict_policy(shared: Shared) -> None:
    answer = await shared.api.anonymous.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Create a lease" in answer.text


async def test_the_document_is_served_as_it_is_printed(shared: Shared) -> None:
    for path in ("/schema", "/schema/openapi.json"):
        answer = await shared.api.anonymous.get(path)
        assert answer.headers["content-type"] == "application/vnd.oai.openapi+json", path
        assert answer.json() == json.loads(document()), path


async def test_the_word_null_is_no_value_of_a_query_and_may_be_a_name(shared: Shared) -> None:
    acme = shared.acme.http
    refused = await acme.get("/v1/leases", params={"waiting": "null"})
    assert refused.status_code == 400
    assert refused.json()["detail"] == "`waiting` must be true or false."
    assert (await acme.get("/v1/leases", params={"project": "null"})).json()["code"] == "project_unknown"
