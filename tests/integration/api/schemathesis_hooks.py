"""What Schemathesis does not know about this API."""

import itertools
import os
import re
from datetime import UTC, datetime
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, HookContext, Response

NOT_UNDERSTOOD = {
    "bad_request",
    "invalid_parameter",
    "invalid_idempotency_key",
    "invalid_request",
    "malformed_json",
    "unknown_parameter",
    "unsupported_media_type",
}
"""Codes that say that a request is not as the document wants it."""

_NUMBERS = itertools.count()

# The API refuses years outside of 2000 to 2200, as the descriptions of its parameters say.
schemathesis.openapi.format(
    "date-time",
    st.datetimes(datetime(2000, 1, 2), datetime(2199, 12, 30)).map(  # noqa: DTZ001 - the next line says where
        lambda at: at.replace(tzinfo=UTC).isoformat()
    ),
)


@schemathesis.check
def valid_data_is_understood(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """What the document allows is not refused as malformed."""
    mode = case.meta.generation.mode if case.meta is not None else None
    if mode is None or not mode.is_positive or _beyond_a_schema(case):
        return
    if response.status_code in (400, 422):
        code = response.json()["code"]
        assert code not in NOT_UNDERSTOOD, f"valid data is refused: {response.text}"


def _beyond_a_schema(case: Case[Any]) -> bool:
    """Whether the request breaks a rule that the document has in words only.

    Each key of `label` once; a quota request has a limit that is not null, and a project beside its environment;
    usage is added up by a label exactly when its key is given.
    """
    body = case.body if isinstance(case.body, dict) else {}
    if case.path == "/v1/quota-requests":
        limits = body.get("limits")
        wanted = limits.values() if isinstance(limits, dict) else ()
        named = body.get("environment") is None or body.get("project") is not None
        return not named or all(limit is None or limit == {} for limit in wanted)
    query = case.query or {}
    if case.path in ("/v1/usage/sums", "/v1/finance/usage") and ("label_key" in query) != (
        query.get("by") == "label"
    ):
        return True
    labels = query.get("label", [])
    keys = [str(label).partition("=")[0] for label in labels]
    return len(keys) != len(set(keys))


@schemathesis.hook
def map_headers(context: HookContext, headers: dict[str, Any] | None) -> dict[str, Any] | None:
    """Have valid idempotency keys differ: a replay answers with what was made before, which may be deleted by now."""
    found = headers or {}
    key = str(found.get("Idempotency-Key", ""))
    if 0 < len(key) <= 200 and key.isascii() and key.isprintable():
        found["Idempotency-Key"] = f"{key}{next(_NUMBERS)}"
    return headers


@schemathesis.hook
def map_path_parameters(
    context: HookContext, path_parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Have well-formed ids of leases name one that exists: a random one would only ever be unknown."""
    found = path_parameters or {}
    if re.fullmatch("le_[0-9a-f]{32}", str(found.get("lease_id"))):
        found["lease_id"] = os.environ["CONFORMANCE_LEASE"]
    return path_parameters


@schemathesis.hook
def map_body(context: HookContext, body: Any) -> Any:
    """Have well-formed names of SKUs name one that is sold."""
    if isinstance(body, dict) and re.fullmatch("[a-z0-9][a-z0-9._-]{0,63}", str(body.get("sku"))):
        body["sku"] = os.environ["CONFORMANCE_SKU"]
    return body
