"""What the tests of errors share: a check of problem details, and an id that nothing has."""

import httpx

from control_plane.api.errors import KINDS, TITLES
from control_plane.domain.permission import Permission

SOME_ID = "0190c2f0" * 4


def hold(answer: httpx.Response, *codes: str) -> None:
    """The answer is problem details with one of `codes`."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["code"] in codes, problem
    assert problem["status"] == answer.status_code == KINDS[problem["code"]].status
    assert problem["type"] == f"urn:splitplane:error:{problem['code']}"
    assert problem["title"] == TITLES[answer.status_code]
    assert problem["detail"].endswith((".", "?")), problem
    assert problem["request_id"] == answer.headers["x-request-id"]


def hold_denied(answer: httpx.Response, permission: Permission | None) -> None:
    """The answer is the refusal of a key that lacks this permission."""
    hold(answer, "permission_denied")
    problem = answer.json()
    assert problem["permission"] == permission
    assert f"`{permission}`" in problem["detail"]
