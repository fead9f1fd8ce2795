"""Whatever is sent, the answer is a 4xx with a code of the table and a sentence, and nothing is half done.

These tests change nothing, so they share one app and its rows.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import Shared, Tenant, top_up
from tests.integration.api.endpoints import ENDPOINTS, ENVELOPE, Endpoint
from tests.integration.api.problems import SOME_ID, hold
from tests.support.cases import case

pytestmark = pytest.mark.database

LONG = "x" * 20_000


BODIES = [
    ("nothing", b""),
    ("not json", b"sku=h100x1"),
    ("half an object", b'{"sku": "h1'),
    ("a list", b"[]"),
    ("a number", b"7"),
    ("null", b"null"),
    ("a float beyond all", b'{"sku": 1e999}'),
    ("not utf-8", b'{"sku": "\xff\xfe"}'),
    ("a lone surrogate", b'{"sku": "\\ud800"}'),
    ("an escape that is none", b'{"sku": "\\x41"}'),
    ("too deep", b'{"sku": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    ("two objects", b"{}{}"),
    ("a huge number", b'{"sku": ' + b"9" * 4_000 + b"}"),
    ("utf-16", '{"sku": "h100x1"}'.encode("utf-16")),
    ("NUL bytes", b"\x00" * 64),
    ("a byte order mark", b'\xef\xbb\xbf{"sku": "h100x1"}'),
    ("an unknown field", b'{"skuu": "h100x1"}'),
]
WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]
WITH_QUERY = [endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"]
POSTS = [endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"]
WITH_ID = [endpoint for endpoint in ENDPOINTS if endpoint.id_prefix]


def _path(endpoint: Endpoint) -> str:
    return endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")


async def _send(tenant: Tenant, endpoint: Endpoint, path: str | None = None, **kwargs: Any) -> httpx.Response:
    return await tenant.http.request(endpoint.method, path or _path(endpoint), **kwargs)


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=str)
async def test_an_invalid_body_is_refused(endpoint: Endpoint, shared: Shared) -> None:
    operator = shared.operator
    headers = {"Content-Type": "application/json"}
    for what, body in BODIES:
        with case(what):
            answer = await _send(operator, endpoint, content=body, headers=headers)
            hold(answer, "malformed_json", "invalid_request")
    hold(await _send(operator, endpoint, content=b"{" + b" " * 70_000, headers=headers), "body_too_large")
    good = json.dumps(endpoint.body).encode()
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", LONG[:4_000]):
        with case("Content-Type", kind[:40]):
            answer = await _send(operator, endpoint, content=good, headers={"Content-Type": kind})
            hold(answer, "unsupported_media_type")


def _spoilt(value: Any) -> Iterator[Any]:
    """Values of another type than `value`, or outside of what it may be."""
    yield from (
        True,
        None,
        7,
        -1,
        2**63,
        2**200,
        1.5,
        {},
        {"a": 1},
        [[]],
        [None],
        ["\x00"],
        [LONG],
        ["a"] * 100,
    )
    yield from ("", "\x00", "a\x00b", "a\nb", "a\n", LONG, "\u202e", "  ", "../etc", "=1+1", "🦀" * 50)
    if isinstance(value, str):
        yield []
    if isinstance(value, list):
        yield "eu"


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=str)
async def test_a_field_of_another_kind_is_named(endpoint: Endpoint, shared: Shared) -> None:
    operator = shared.operator
    assert endpoint.body is not None
    for field, value in endpoint.body.items() if endpoint.method != "PATCH" else ():
        for spoilt in _spoilt(value):
            if _usable(endpoint.path, field, spoilt):
                continue
            body = endpoint.body | {field: spoilt}
            with case(field, repr(spoilt)[:60]):
                answer = await _send(operator, endpoint, content=json.dumps(body), headers=JSON)
                _in_words(answer.text)
                hold(
                    answer,
                    *("invalid_request", "malformed_json"),
                    *("ssh_key_invalid", "host_key_invalid", "supplier_invoice_invalid", "pool_invalid"),
                    # What a part of a file holds is read once there is a file that it belongs to.
                    *(["not_found"] if field == "csv" else []),
                )
                if answer.json()["code"] == "invalid_request" and answer.json().get("errors"):
                    assert answer.json()["errors"][0]["field"].startswith(field), answer.json()
    if endpoint.method == "PATCH":
        return  # Every field may be left out.
    for field in endpoint.body.keys() & {"name", "sku", "public_key", "amount_usd"}:
        body = {name: value for name, value in endpoint.body.items() if name != field}
        answer = await _send(operator, endpoint, content=json.dumps(body), headers=JSON)
        if field != "name" or endpoint.path not in ("/v1/leases", "/v1/leases/batch"):
            hold(answer, "invalid_request")
            assert answer.json()["errors"][0]["field"] == field


JSON = {"Content-Type": "application/json"}


NULLABLE = ENVELOPE.keys() - {"gpus_of_model"}
UNUSABLE = [("labels", {"a": 1}), ("node_labels", {"a": 1}), ("auto_release", {"a": 1})]


def _usable(path: str, field: str, value: Any) -> bool:
    """What is fine for some field although it is not for others."""
    return (
        (value is None and field in {"price_usd_per_hour_max", "project", "environment", "network", "lines"})
        or (
            value is None
            and field in {"organization_id", "outside", "below_usd", "month_budget_usd", "network_gbps_min"}
        )
        or (field == "ssh_port" and value == 7 and value is not True)
        or (value is None and field == "name" and path in ("/v1/leases", "/v1/leases/batch"))
        or (value is None and field in {"ssh_key_ids", "auto_release", "scopes", "projects"})
        or (field == "projects" and value == ["a"] * 100)
        or ((path, field) == ("/v1/users", "name") and value in ("../etc", "=1+1", "🦀" * 50))
        or (field in {"end_leases", "final", "draft", "reverse_charge", "dry_run", "armed"} and value is True)
        or ((path, field) == ("/v1/operator/pools", "sla") and value is None)
        or (field == "legal_name" and value in ("../etc", "=1+1", "🦀" * 50))
        or (field == "tax_id" and value is None)
        or (field == "after_seconds" and value is None)
        or (path.endswith("/postings") and value is None)
        or (field in {"tax_rate", "payment_days"} and value == 7 and value is not True)
        or (field == "reason" and value in ("../etc", "=1+1", "🦀" * 50))
        or (
            value == 7
            and field
            in {
                "gpu_quota",
                "minutes",
                "wait_timeout_seconds",
                "overlap_hours",
                "overlap_minutes",
                "priority",
                "count",
                "nodes",
                "network_gbps_min",
                "machines_max",
                "step_max",
                "lead_seconds",
                "number",
                "first_line",
                "parts",
            }
            and value is not True
        )
        or (
            value in ({}, {"a": 1})
            and field in {"labels", "auto_release", "node_labels"}
            and (field, value) not in UNUSABLE
        )
        or (value is None and field in NULLABLE)
        or (value == 7 and field == "gpus" and value is not True)
        or (value == {} and field in {"gpus_of_model", "limits"})
        or (field == "provider_refs" and value == ["a"] * 100)
        or (field in {"why", "reason"} and value in ("../etc", "=1+1", "🦀" * 50))
    )


@pytest.mark.parametrize(
    "amount", ["0", "0.000000000", "-1", "1e3", "1.0000000001", "99999999999", "NaN", " 1", "1\n", "٣"]
)
async def test_an_invalid_amount_is_refused(amount: str, shared: Shared) -> None:
    acme, operator = shared.acme, shared.operator
    hold(await top_up(operator, f"org_{acme.id.hex}", amount), "invalid_request")
    if amount.strip("0."):
        quote = {"sku": "h100x1", "price_usd_per_hour_max": amount}
        hold(await acme.http.post("/v1/quotes", json=quote), "invalid_request")


async def test_a_balance_beyond_64_bits_is_refused_and_nothing_is_posted(
    acme: Tenant, operator: Tenant
) -> None:
    for _ in range(9):
        assert (await top_up(operator, f"org_{acme.id.hex}", "999999999")).status_code == 201
    hold(await top_up(operator, f"org_{acme.id.hex}", "999999999"), "invalid_request")
    balance = (await acme.http.get("/v1/organization")).json()["balance"]["usd"]
    assert balance == "9000000991.000000000"


QUERIES = {
    "gone": ("maybe", "2", "-1", "%00"),
    "silent": ("maybe", "2", "-1", "%00"),
    "closed": ("maybe", "2", "-1", "%00"),
    "ended": ("maybe", "2", "-1", "%00"),
    "name": ["", "%00", "a" * 101],
    "limit": ["null", "0", "-1", "201", "1.5", "", "abc", "1" * 400, "%00", "\uff11", "1&limit=2", "0x10"],
    "cursor": ["", "abc", "%00", "%F0%9F", "x" * 300, "AAAA", "bGVhc2VzOjE6MQ", "a b", "=", "bGVhc2Vz==="],
    "state": ["", "null", "READY", "nowhere", "ready,ended", "%00"],
    "label": ["", "team", "=vision", "a=%00", "a=1&label=a=2"],
    "waiting": ["", "null", "NULL", "yes", "2", "%00"],
    "project": ["", "%20", ".", "a/b", "a%0A", "%00", "%E2%80%AE", "a" * 64],
    "since": [
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00Z",
    ],
    "until": ["", "later", "9999-12-31T23:59:59-23:59", "1e9", "%00", "2026-01-01T00:00:00+99:00"],
    "subject": ["", "null", "sa_1", "prj_0190c2f00190c2f00190c2f00190c2f0", "%00", "a" * 65],
    "account": ["", "Lambda", "a b", "a/", "%00", "a" * 101],
    "outcome": ["", "null", "PASSED", "ok", "%00"],
    "provider_ref": ["", "%00", "a%0A", "a" * 1_000],
    "target": ["", "%00", "a b", "a" * 101],
    "event": ["", "null", "leases", "LEASES.CREATE", "%00"],
    "chain": ["", "org_1", "prj_0190c2f00190c2f00190c2f00190c2f0", "%00", "a" * 41],
    "after": ["-1", "x", "1.5", "%00"],
    "lease": ["x", "le_1", "a" * 36, "%00"],
    "machine": ["", "x", "mc_1", "a" * 36, "%00"],
    "for_lease_id": ["", "x", "le_1", "a" * 36, "%00"],
    "cluster": ["", "%20", ".", "a/b", "%00", "a" * 64],
    "node_pool": ["", "%20", ".", "a/b", "%00", "a" * 64],
    "provider": ["", "Lambda", "a/b", "%00", "a" * 49],
    "region": ["", "EU", "e", "eu-", "%00", "a" * 49],
    "verdict": ["", "null", "HEALTHY", "ill", "%00"],
    "sla": ["", "null", "GOLD", "platinum", "%00"],
    "organization": ["", "acme", "org_1", "prj_0190c2f00190c2f00190c2f00190c2f0", "%00", "a" * 37],
    "label_key": ["", "Team", "-a", "%00", "a" * 64, "team"],
    "month": ["", "2026", "2026-13", "2026-1", "1999-01", "november", "%00"],
    "kind": ["", "null", "TOP_UP", "nothing", "%00"],
    "period": ["", "2026", "2026-13", "2026-1", "1999-01", "2026-10-01", "%00"],
    "by": ["", "null", "LEASE", "customer", "%00"],
    "lines": ["null", "0", "-1", "1001", "1.5", "", "abc", "%00"],
    "network_gbps_min": ["", "-1", "x", "1.5", "1e9", "%00"],
    "gpu_model": ["", "null", "h100", "%00", "H100-SXM-80GB"],
    "last": ["", "-1", "0", "x", "1.5", "7201", "1e9", "%00"],
}


async def _refuses_queries(endpoint: Endpoint, operator: Tenant, path: str) -> None:
    for name in ("limits", "Limit", "cursor%20", "%00", "%ff", "a" * 3_000, "state[]"):
        with case(endpoint, name[:40]):
            answer = await _send(operator, endpoint, f"{path}?{name}=1")
            hold(answer, "unknown_parameter", "invalid_parameter")
    for name in endpoint.query:
        for value in QUERIES[name]:
            with case(endpoint, name, value[:40]):
                answer = await _send(operator, endpoint, f"{path}?{name}={value}")
                hold(answer, "invalid_parameter", "invalid_cursor")
                assert answer.json()["errors"]
    with case(endpoint, "too many parameters"):
        many = "&".join(f"a{number}=" for number in range(50))
        hold(await _send(operator, endpoint, f"{path}?{many}"), "invalid_parameter")


async def test_an_invalid_query_is_refused(shared: Shared) -> None:
    lease = await shared.operator.lease()
    for endpoint in WITH_QUERY:
        known = f"org_{shared.operator.id.hex}" if endpoint.id_prefix == "org" else lease
        path = endpoint.at(known) if endpoint.id_prefix else _path(endpoint)
        await _refuses_queries(endpoint, shared.operator, path)


@pytest.mark.parametrize("endpoint", WITH_ID, ids=str)
async def test_an_invalid_id_is_refused(endpoint: Endpoint, shared: Shared) -> None:
    prefix = endpoint.id_prefix
    for wrong in (
        f"{prefix}_{SOME_ID}",
        f"{prefix}_{SOME_ID.upper()}",
        f"{prefix}_{SOME_ID}0",
        f"{prefix}_+{SOME_ID[1:]}",
        f"mc_{SOME_ID}",
        SOME_ID,
        "x",
        "%00",
        "%FF",
        "..%2f..",
        "🦀",
        "null",
        "x" * 4_000,
    ):
        body = None if endpoint.body is None else json.dumps(endpoint.body)
        headers = JSON if body else {}
        if endpoint.method == "POST":
            headers = headers | {"Idempotency-Key": secrets.token_hex()}  # What moves money demands one.
        with case(wrong[:60]):
            answer = await _send(shared.operator, endpoint, endpoint.at(wrong), content=body, headers=headers)
            hold(answer, "lease_not_found", "not_found", "route_not_found")


@pytest.mark.parametrize("endpoint", POSTS, ids=str)
async def test_an_invalid_idempotency_key_is_refused(endpoint: Endpoint, shared: Shared) -> None:
    operator = shared.operator
    path = endpoint.at(await operator.lease()) if endpoint.id_prefix == "le" else _path(endpoint)
    content = json.dumps(endpoint.body) if endpoint.body is not None else b""
    for key in (b"", b"x" * 256, b"a\tb", "ключ".encode(), b"\xff", b"\x7f"):
        with case(key[:20]):
            headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
            answer = await _send(operator, endpoint, path, content=content, headers=headers)
            hold(answer, "invalid_idempotency_key")
    twice = httpx.Headers(
        [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")]
    )
    hold(await _send(operator, endpoint, path, content=content, headers=twice), "invalid_idempotency_key")


async def test_a_method_that_the_endpoint_lacks_is_refused(shared: Shared) -> None:
    has = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    for endpoint in ENDPOINTS:
        for method in ("PUT", "PATCH", "TRACE", "BREW"):
            if (method, endpoint.path) in has:
                continue
            with case(method, endpoint.path):
                hold(await shared.operator.http.request(method, _path(endpoint)), "method_not_allowed")


async def test_a_public_endpoint_needs_no_key(shared: Shared) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.public:
            answer = await shared.api.anonymous.request(endpoint.method, endpoint.path)
            assert answer.status_code == 200, endpoint


async def test_a_release_with_a_body_is_refused(shared: Shared) -> None:
    acme = shared.acme
    lease = await acme.lease()
    hold(await acme.http.post(f"/v1/leases/{lease}/release", json={"at": "tomorrow"}), "invalid_request")
    assert (await acme.http.post(f"/v1/leases/{lease}/release", json={})).status_code == 202


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/leases", "/v1/lease", "/schema/x", "/%00", "/" + LONG, "/v1/leases/a/b/c"]
)
async def test_an_unknown_endpoint_is_refused(path: str, shared: Shared) -> None:
    hold(await shared.acme.http.get(path), "route_not_found")


async def test_an_invalid_ssh_key_is_refused(shared: Shared) -> None:
    acme = shared.acme
    for text in (
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 ключ x",
        "ssh-dss AAAAB3NzaC1kc3MAAAA x",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "ssh-rsa " + "A" * 16_000,
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\u0000",
        "a\nssh-ed25519 AAAA",
    ):
        with case(text[:40]):
            answer = await acme.http.post("/v1/ssh-keys", json={"name": "k", "public_key": text})
            hold(answer, "ssh_key_invalid", "invalid_request")
    assert (await acme.http.get("/v1/ssh-keys")).json()["items"] == []


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ({"sku": "b300x64"}, "sku_unknown"),
        ({"sku": "h100x1", "price_usd_per_hour_max": "3.59"}, "price_above_ceiling"),
        ({"sku": "h100x1", "regions": ["mars"]}, "invalid_request"),
        ({"sku": "h100x1", "regions": ["aq"]}, "region_not_served"),
        ({"sku": "h100x1", "providers": ["nobody"]}, "provider_unknown"),
        ({"sku": "h100x1", "project": "nobodys"}, "project_unknown"),
        ({"sku": "h100x1", "ssh_key_ids": ["ssh_" + SOME_ID]}, "ssh_key_unknown"),
    ],
)
async def test_a_refused_lease_leaves_nothing_behind(
    order: dict[str, Any], code: str, shared: Shared
) -> None:
    async def rows() -> list[Any]:
        return [(await shared.acme.http.get(f"/v1/{path}")).json() for path in ("organization", "leases")]

    before = await rows()
    hold(await shared.acme.http.post("/v1/leases", json={"ssh_key_ids": []} | order), code)
    assert await rows() == before


async def test_quota_and_balance_have_their_own_codes(shared: Shared) -> None:
    api = shared.api
    poor = await api.tenant("poor", credit=None)
    hold(await poor.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []}), "balance_too_low")
    small = await api.tenant("small", quota=7)
    hold(await small.http.post("/v1/leases", json={"sku": "h100x8", "ssh_key_ids": []}), "quota_exceeded")
    verdict = (await small.http.post("/v1/quotes", json={"sku": "h100x8"})).json()["verdict"]
    assert (verdict["admitted"], verdict["code"]) == (False, "quota_exceeded")


async def test_all_faults_of_a_body_are_named_at_once_in_words(shared: Shared) -> None:
    body = {
        "skuu": "h100x1",
        "regions": ["eu", "MARS", 7],
        "labels": {"Team": "a", "team": 7},
        "wait_timeout_seconds": -1,
        "auto_release": {"after_seconds": "soon"},
    }
    answer = await shared.acme.http.post("/v1/leases", json=body)
    hold(answer, "invalid_request")
    errors = {error["field"]: error["detail"] for error in answer.json()["errors"]}
    assert set(errors) == {
        "sku",
        "skuu",
        "regions[1]",
        "regions[2]",
        "labels",
        "labels.team",
        "wait_timeout_seconds",
        "auto_release.after_seconds",
    }
    assert "did you mean `sku`?" in errors["skuu"]
    assert errors["wait_timeout_seconds"] == "must be a whole number from 0 to 604,800"
    assert "8 faults" in answer.json()["detail"]
    for text in (answer.text, *errors.values()):
        _in_words(text)


def _in_words(text: str) -> None:
    """No regular expression, and no name of a type of Python or of a library."""
    for word in (
        "regex",
        "^[",
        "`str`",
        "`int`",
        "`array`",
        "`dict`",
        "tuple",
        "NoneType",
        "Expected",
    ):
        assert word not in text, text


async def test_an_invalid_parameter_names_what_is_allowed_and_the_nearest(shared: Shared) -> None:
    for query, field, words in (
        ("leases?state=redy", "state", "did you mean `ready`?"),
        ("leases?state=gone", "state", "must be `placing`, `starting`, `ready`, `ending` or `ended`"),
        ("leases?limit=0", "limit", "must be a whole number from 1 to 200"),
        ("leases?waiting=perhaps", "waiting", "must be true or false"),
        ("leases?project=%20", "project", "1 to 63 letters"),
        ("offers?gpu_model=h100-smx-80gb", "gpu_model", "did you mean `h100-sxm-80gb`?"),
        ("operator/proofs?outcome=PASSED", "outcome", "`passed`"),
        ("operator/proofs?account=Lambda", "account", "lambda_cloud/research"),
    ):
        with case(query):
            answer = await shared.operator.http.get(f"/v1/{query}")
            hold(answer, "invalid_parameter")
            (error,) = answer.json()["errors"]
            assert error["field"] == field
            assert words in error["detail"]
            assert error["detail"] in answer.json()["detail"]
            _in_words(answer.text)
    both = (await shared.operator.http.get("/v1/leases?limit=0&state=x")).json()["errors"]
    assert {error["field"] for error in both} == {"limit", "state"}


async def test_whatever_is_wrong_with_a_change_is_said_in_words(shared: Shared) -> None:
    for endpoint in WITH_BODY:
        if endpoint.method != "PATCH":
            continue  # `test_a_field_of_another_kind_is_named` sends them the same.
        assert endpoint.body is not None
        for field, value in endpoint.body.items():
            for spoilt in _spoilt(value):
                if _usable(endpoint.path, field, spoilt):
                    continue
                with case(endpoint, field, repr(spoilt)[:60]):
                    body = json.dumps(endpoint.body | {field: spoilt})
                    _in_words((await _send(shared.operator, endpoint, content=body, headers=JSON)).text)
