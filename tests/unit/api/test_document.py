"""The OpenAPI document says everything that a client needs: it is read here as a generator of clients reads it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from control_plane.__main__ import document
from control_plane.api import balance, billing
from control_plane.api.errors import KINDS, TITLES
from control_plane.api.openapi import docstrings
from control_plane.api.openapi.examples import UNKNOWN
from control_plane.api.openapi.page import POLICY, page
from control_plane.api.openapi.schemas import in_ecma, structs
from control_plane.api.requests import decode, with_whole_numbers
from control_plane.domain import health, journal
from control_plane.domain.account_request import AccountCode, AccountOutcome, AccountVerb
from control_plane.domain.actor import ActorKind
from control_plane.domain.attempt import AttemptOutcome
from control_plane.domain.block import BlockScope
from control_plane.domain.cpu import Architecture
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import Prefix
from control_plane.domain.invoice import LineKind
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.ledger import TransactionKind
from control_plane.domain.machine import MachineState
from control_plane.domain.node import JoinStep, LeaveReason, LeaveStep
from control_plane.domain.notice import NoticeKind
from control_plane.domain.organization import OrganizationState
from control_plane.domain.orphan import Choice, HeldCode, Origin
from control_plane.domain.permission import Permission
from control_plane.domain.placement import RejectCode
from control_plane.domain.pool_claim import PoolRejectCode
from control_plane.domain.position import START, Position, parse
from control_plane.domain.preemption import KeptCode, PreemptionDecision, PreemptionState
from control_plane.domain.progress import Step
from control_plane.domain.proof import OWN_CODES, Occasion, ProofOutcome, Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.reconciliation import LinkName
from control_plane.domain.repair import RepairOutcome, RepairStep
from control_plane.domain.request import WAIT_SECONDS_DEFAULT
from control_plane.domain.role import Role
from control_plane.domain.scope import ScopeKind
from control_plane.domain.sku import CapacityShape
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import Cause, Promise
from control_plane.domain.sla_evidence import FactSource
from control_plane.domain.subject import SubjectKind, SubjectState
from control_plane.domain.verification import Verdict
from control_plane.wire import common, leases, vocabulary
from control_plane.wire.common import NAME_PATTERN
from control_plane.wire.leases import LeaseRequest
from data_plane.proof.challenger import judgement
from providers.base import Confidence, PriceSource
from providers.listings import REFERENCE_CHARACTERS_MAX
from tests.support.cases import case

WORDS: Mapping[str, Iterable[StrEnum]] = {
    "JournalEventName": journal.EVENTS,
    "JournalState": journal.STATES,
    "Role": Role,
    "ScopeKind": ScopeKind,
    "SubjectKind": SubjectKind,
    "SubjectState": SubjectState,
    "LeaseState": LeaseState,
    "LeaveReason": LeaveReason,
    "NodeStep": (*JoinStep, *LeaveStep),
    "Step": (*Step, *JoinStep),
    "EndReason": EndReason,
    "OrganizationState": OrganizationState,
    "MachineState": MachineState,
    "AttemptOutcome": AttemptOutcome,
    "MachineVerdict": Verdict,
    "Tier": Tier,
    "Occasion": Occasion,
    "ProofOutcome": ProofOutcome,
    "Capacity": CapacityShape,
    "Confidence": Confidence,
    "ActorKind": ActorKind,
    "Purchase": PurchaseKind,
    "SlaTier": SlaTier,
    "SlaPromise": Promise,
    "SlaCause": Cause,
    "SlaFactSource": FactSource,
    "HealthVerdict": health.Verdict,
    "MachineFault": health.FaultCode,
    "FaultSource": health.Source,
    "RepairStep": RepairStep,
    "RepairOutcome": RepairOutcome,
    "TransactionKind": TransactionKind,
    "InvoiceLineKind": LineKind,
    "ReconciliationLink": LinkName,
    "AccountVerb": AccountVerb,
    "AccountOutcome": AccountOutcome,
    "AccountCode": AccountCode,
    "FailReason": FailReason,
    "PoolRejectCode": PoolRejectCode,
    "RejectCode": RejectCode,
    "BlockScope": BlockScope,
    "Architecture": Architecture,
    "PriceSource": PriceSource,
    "HeldCode": HeldCode,
    "OrphanChoice": Choice,
    "Origin": Origin,
    "NoticeKind": NoticeKind,
    "PreemptionState": PreemptionState,
    "PreemptionDecision": PreemptionDecision,
    "PreemptionKept": KeptCode,
}
"""The enumerations of the document that the control plane has as well."""


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document())
    return found


def _operations(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _schemas(node: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the document, with its place."""
    if isinstance(node, dict):
        yield where, node
        for key, part in node.items():
            if key not in ("example", "examples", "default", "enum"):
                yield from _schemas(part, f"{where}/{key}")
    elif isinstance(node, list):
        for number, part in enumerate(node):
            yield from _schemas(part, f"{where}/{number}")


def _validates(whole: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    root = {"components": whole["components"]} | schema
    jsonschema.Draft202012Validator(root, format_checker=checker).validate(value)


def test_every_operation_has_an_id_a_summary_a_description_and_names_its_permission(
    whole: dict[str, Any],
) -> None:
    ids = [operation["operationId"] for _, operation in _operations(whole)]
    assert len(ids) == len(set(ids)) > 30
    tags = {tag["name"] for tag in whole["tags"] if tag["description"]}
    for name, operation in _operations(whole):
        with case(name):
            assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", operation["operationId"]), operation["operationId"]
            assert operation["summary"]
            assert not operation["summary"].endswith(".")
            assert operation["description"].startswith(operation["summary"])
            assert set(operation["tags"]) <= tags
            if " /v1/" in name:
                ((permission,),) = [each["apiKey"] for each in operation["security"]]
                assert permission in set(Permission)
                assert operation["description"].endswith(f"Needs the permission `{permission}`.")


def test_every_schema_field_parameter_header_answer_and_value_is_described(whole: dict[str, Any]) -> None:
    parts = whole["components"]
    for kind in ("schemas", "parameters", "headers", "responses"):
        for name, part in parts[kind].items():
            assert part["description"], f"{kind}/{name}"
    for name, schema in parts["schemas"].items():
        for field, about in schema.get("properties", {}).items():
            assert about.get("description"), f"{name}.{field} is not described"
            assert "{" not in about["description"], f"{name}.{field}"
    for name in WORDS:
        described = re.findall(r"^- `(\w+)`: .+\.$", parts["schemas"][name]["description"], re.MULTILINE)
        assert described == parts["schemas"][name]["enum"], name
    for name, operation in _operations(whole):
        for parameter in operation["parameters"]:
            assert "$ref" in parameter or parameter["description"].endswith("."), f"{name} {parameter}"
        for response in operation["responses"].values():
            assert "$ref" in response or response["description"], name


def test_the_words_of_an_enumeration_are_those_of_the_control_plane(whole: dict[str, Any]) -> None:
    schemas = whole["components"]["schemas"]
    for name, kind in WORDS.items():
        assert set(schemas[name]["enum"]) == set(kind), name
    findings = judgement.FAILURES | judgement.SILENCES | judgement.HINTS | OWN_CODES
    described = dict(re.findall(r"^- `(\w+)`: (.+)$", schemas["FindingCode"]["description"], re.MULTILINE))
    assert described == {str(code): meaning for code, meaning in findings.items()}
    assert schemas["FindingCode"]["enum"] == list(described)
    reasons = set(schemas["StreamEndReason"]["enum"])
    assert reasons >= {"ended", "ready", "ending"}


def test_the_codes_of_problems_are_the_table(whole: dict[str, Any]) -> None:
    components = whole["components"]
    assert components["schemas"]["ProblemCode"]["enum"] == sorted(KINDS)
    assert components["schemas"]["Problem"]["properties"]["code"]["$ref"].endswith("/ProblemCode")
    named = [
        code
        for part in components["responses"].values()
        for code in re.findall(r"^- `(\w+)`", part["description"], re.MULTILINE)
    ]
    assert sorted(named) == sorted(code for code, kind in KINDS.items() if kind.status >= 400)
    assert len(components["responses"]) == len(TITLES)


def test_every_example_is_valid(whole: dict[str, Any]) -> None:
    seen = 0
    for where, schema in _schemas(whole):
        for example in schema.get("examples", ()) if "type" in schema else ():
            with case(where):
                _validates(whole, schema, example)
                seen += 1
        if "example" in schema and "schema" in schema:
            with case(where):
                _validates(whole, schema["schema"], schema["example"])
                seen += 1
    assert seen > 50


def test_the_example_of_a_body_is_accepted_as_it_is(whole: dict[str, Any]) -> None:
    kinds = {kind.__name__: kind for kind in structs()}
    bodies = 0
    for name, operation in _operations(whole):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            kind = kinds[content["schema"]["$ref"].rpartition("/")[2]]
            with case(name):
                decode(json.dumps(content["example"]).encode(), kind)
                assert content["example"].keys() == {field.name for field in msgspec.structs.fields(kind)}
                bodies += 1
    assert bodies >= 8


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [text for part in parts for text in _texts(part)]
    return [str(value)]


def test_every_answer_with_json_has_an_example_that_a_reader_decodes(whole: dict[str, Any]) -> None:
    kinds = {kind.__name__: kind for kind in structs()}
    answers = 0
    for name, operation in _operations(whole):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json")
            if content is None or " /v1/" not in name:
                continue
            with case(name, status):
                _validates(whole, content["schema"], content["example"])
                assert UNKNOWN not in _texts(content["example"]), "add the field to api/openapi/examples.py"
                msgspec.convert(content["example"], kinds[content["schema"]["$ref"].rpartition("/")[2]])
                answers += 1
    assert answers > 30


def test_an_operation_with_a_body_names_the_refusals_of_a_body(whole: dict[str, Any]) -> None:
    """That it came too slowly, that it is too large, that it is no JSON."""
    bodies = [(name, operation) for name, operation in _operations(whole) if "requestBody" in operation]
    assert len(bodies) > 50
    for name, operation in bodies:
        with case(name):
            assert {"408", "413", "415"} <= operation["responses"].keys()


def test_every_code_of_a_problem_has_an_example(whole: dict[str, Any]) -> None:
    codes = []
    for name, response in whole["components"]["responses"].items():
        for code, example in response["content"]["application/problem+json"]["examples"].items():
            with case(name, code):
                _validates(whole, {"$ref": "#/components/schemas/Problem"}, example["value"])
                assert (example["value"]["code"], example["value"]["title"]) == (
                    code,
                    TITLES[example["value"]["status"]],
                )
                codes.append(code)
    assert sorted(codes) == sorted(code for code, kind in KINDS.items() if kind.status >= 400)


def test_a_pattern_is_one_of_ecma_262_and_looks_nowhere_else(whole: dict[str, Any]) -> None:
    patterns = {schema["pattern"] for _, schema in _schemas(whole) if isinstance(schema.get("pattern"), str)}
    assert len(patterns) > 15
    for pattern in patterns:
        assert "(?" not in pattern, pattern
        assert pattern.startswith("^"), pattern
        assert pattern.endswith("$"), pattern
        re.compile(pattern)
    assert in_ecma({"pattern": NAME_PATTERN}) == {"pattern": NAME_PATTERN.removesuffix(r"(?!\n)")}


def test_a_request_has_no_other_fields_and_an_answer_has_all_of_its_own(whole: dict[str, Any]) -> None:
    for name, schema in whole["components"]["schemas"].items():
        if name.endswith("Request"):
            assert schema["additionalProperties"] is False, name
        elif "properties" in schema and not name.endswith(("Event", "Problem")):
            assert schema["required"] == list(schema["properties"]), name
            assert schema.get("additionalProperties") is not False, name


def test_a_schema_is_one_of_ours(whole: dict[str, Any]) -> None:
    """A class that a module of the wire imports from a library is no body."""
    assert {kind.__module__.rpartition(".")[0] for kind in structs()} == {"control_plane.wire"}
    assert "Struct" not in whole["components"]["schemas"]


def test_every_time_is_a_date_time(whole: dict[str, Any]) -> None:
    times = 0
    for name, schema in whole["components"]["schemas"].items():
        for field, about in schema.get("properties", {}).items():
            if field in ("at", "since", "until") or (field.endswith("_at") and field != "looked_at"):
                (kind,) = [part for part in about.get("anyOf", [about]) if part.get("type") != "null"]
                assert kind.get("format") == "date-time", f"{name}.{field}"
                times += 1
    assert times > 30


def test_a_list_of_texts_has_texts_as_its_items(whole: dict[str, Any]) -> None:
    fields = whole["components"]["schemas"]["LeaseRequest"]["properties"]
    for name in ("regions", "providers"):
        assert fields[name]["items"]["type"] == "string", name
    assert fields["ssh_key_ids"]["anyOf"][0]["items"]["pattern"] == "^ssh_[0-9a-f]{32}$"


def test_no_schema_is_empty_and_every_reference_leads_somewhere(whole: dict[str, Any]) -> None:
    for where, node in _schemas(whole):
        assert node.get("items") != {}, where
        assert node.get("schema") != {}, where
        for part in (*node.get("oneOf", ()), *node.get("anyOf", ())):
            assert part, where
        if isinstance(node.get("$ref"), str):
            found = whole
            for key in node["$ref"].removeprefix("#/").split("/"):
                found = found[key]
            assert found


def test_each_answer_names_its_headers(whole: dict[str, Any]) -> None:
    for name, operation in _operations(whole):
        for status, response in operation["responses"].items():
            with case(name, status):
                if status.startswith("2"):
                    assert "X-Request-Id" in response["headers"]
                    assert ("RateLimit" in response["headers"]) == (" /v1/" in name)
                    assert ("Location" in response["headers"]) == (status == "202")
        refs = [parameter.get("$ref", "") for parameter in operation["parameters"]]
        keys = [ref for ref in refs if ref.endswith("IdempotencyKey")]
        moves_money = name in (
            "POST /v1/finance/transactions",
            "POST /v1/finance/invoices",
            "POST /v1/finance/credit-notes",
            "POST /v1/finance/supplier-invoices/{supplier_invoice_id}/postings",
            "POST /v1/finance/supplier-invoices/{supplier_invoice_id}/voids",
            "POST /v1/finance/sla-approvals",
            "POST /v1/finance/sla-credits/{breach_id}/approve",
        )
        expected = ["RequiredIdempotencyKey" if moves_money else "IdempotencyKey"]
        found = [ref.rpartition("/")[2] for ref in keys]
        assert found == (expected if name.startswith("POST") else []), name
        streams = "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
        assert ("#/components/parameters/LastEventId" in refs) == streams, name
    responses = whole["components"]["responses"]
    for status, header in (
        (401, "WWW-Authenticate"),
        (405, "Allow"),
        (429, "Retry-After"),
        (503, "Retry-After"),
    ):
        part = responses["".join(word.capitalize() for word in TITLES[status].split())]
        assert header in part["headers"], status


def test_the_columns_of_each_csv_are_those_of_its_schema(whole: dict[str, Any]) -> None:
    for path, row, columns in (
        ("/v1/usage.csv", "UsageCsvRow", billing.CSV_COLUMNS),
        ("/v1/balance/entries.csv", "BalanceEntryCsvRow", balance.CSV_COLUMNS),
    ):
        content = whole["paths"][path]["get"]["responses"]["200"]["content"]["text/csv"]
        assert content["schema"]["x-item-schema"]["$ref"].endswith(f"/{row}")
        assert tuple(whole["components"]["schemas"][row]["properties"]) == columns


def test_the_events_of_a_lease_have_schemas(whole: dict[str, Any]) -> None:
    content = whole["paths"]["/v1/leases/{lease_id}/events"]["get"]["responses"]["200"]["content"]
    assert content["text/event-stream"]["schema"]["$ref"].endswith("/LeaseEvent")
    event = {"event": "end", "data": '{"reason":"ended"}'}
    _validates(whole, {"$ref": "#/components/schemas/LeaseEvent"}, event)
    with pytest.raises(jsonschema.ValidationError):
        _validates(whole, {"$ref": "#/components/schemas/LeaseEvent"}, event | {"event": "later"})


def test_what_makes_something_is_linked_to_what_can_be_done_with_it(whole: dict[str, Any]) -> None:
    links = whole["paths"]["/v1/leases"]["post"]["responses"]["202"]["links"]
    assert links["releaseLease"]["parameters"] == {"lease_id": "$response.body#/id"}
    assert {"getLease", "explainLease", "streamLeaseEvents"} <= links.keys()


def test_the_docstring_below_a_field_is_read_with_those_of_the_bases() -> None:
    texts = docstrings.of_fields(LeaseRequest)
    assert texts["regions"] == "Empty means anywhere."
    assert "\n" not in texts["wait_timeout_seconds"]
    assert docstrings.of_fields(datetime) == {}


def test_a_number_without_a_fraction_is_a_whole_number() -> None:
    body = b'{"sku": "a", "wait_timeout_seconds": 60.0, "auto_release": {"after_seconds": 6e1}}'
    read = decode(body, LeaseRequest)
    assert (read.wait_timeout_seconds, read.auto_release.after_seconds) == (60, 60)
    assert isinstance(read.wait_timeout_seconds, int)
    assert with_whole_numbers([1.5, {"a": float("inf")}, True, "1.0"]) == [
        1.5,
        {"a": float("inf")},
        True,
        "1.0",
    ]


def test_the_page_shows_every_operation_and_schema_and_every_link_in_it_leads_somewhere(
    whole: dict[str, Any],
) -> None:
    html = page(whole).decode()
    anchors = set(re.findall(r' id="([^"]+)"', html))
    links = set(re.findall(r'href="([^"]+)"', html))
    assert {operation["operationId"] for _, operation in _operations(whole)} <= anchors
    assert {f"schema-{name}" for name in whole["components"]["schemas"]} <= anchors
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= anchors
    assert {link for link in links if not link.startswith("#")} == {"/schema/openapi.json"}


def test_the_page_says_nothing_twice(whole: dict[str, Any]) -> None:
    html = page(whole).decode()
    for name, operation in _operations(whole):
        assert f"</code></p>\n<p>{operation['summary']}" not in html, name


def test_the_page_loads_nothing_and_runs_no_script(whole: dict[str, Any]) -> None:
    html = page(whole).decode()
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(| on[a-z]+=|style=", html)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert POLICY.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")


def test_a_text_of_the_document_is_escaped_on_the_page(whole: dict[str, Any]) -> None:
    hostile = whole | {"info": whole["info"] | {"title": "<script>", "description": "`<b>` & <i>"}}
    html = page(hostile).decode()
    assert "<script>" not in html
    assert "<code>&lt;b&gt;</code> &amp; &lt;i&gt;" in html


def test_what_events_and_filters_really_hold_is_valid_by_the_document(whole: dict[str, Any]) -> None:
    event_id = whole["components"]["schemas"]["JournalEvent"]["properties"]["id"]
    positions = (Position(), Position(751), Position(751, (12, 13, 90)), Position(START + 7, (1,)))
    for position in positions:
        _validates(whole, event_id, str(position))
    for text in ("", "a", "7.", "7.-1"):
        assert parse(text) is None
        with pytest.raises(jsonschema.ValidationError):
            _validates(whole, event_id, text)
    assert parse(whole["components"]["parameters"]["LastEventId"]["example"]) is not None
    (label,) = (
        parameter["schema"]
        for parameter in whole["paths"]["/v1/leases"]["get"]["parameters"]
        if parameter.get("name") == "label"
    )
    _validates(whole, label, ["team=vision", "team=", "team=M\u00fcnchen 3", "a/b=x=y"])
    for text in ("team", "=x", "Team=x", "team=\x07"):
        with pytest.raises(jsonschema.ValidationError):
            _validates(whole, label, [text])


def test_what_the_wire_says_of_ids_bounds_and_defaults_is_what_the_control_plane_does() -> None:
    """The wire imports nothing of ours, so it has its own copies."""
    prefixes = {prefix.value for prefix in Prefix}
    for name, kind in (*vars(vocabulary).items(), ("SshKeyIdText", common.SshKeyIdText)):
        if name.endswith("IdText"):
            (meta,) = kind.__metadata__
            with case(name):
                assert meta.examples[0].partition("_")[0] in prefixes
    assert leases.WAIT_SECONDS_DEFAULT == WAIT_SECONDS_DEFAULT
    (reference,) = get_args(common.ProviderRefText)[1:]
    assert reference.max_length == REFERENCE_CHARACTERS_MAX
