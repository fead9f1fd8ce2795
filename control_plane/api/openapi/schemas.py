"""The schemas of the OpenAPI document, made by msgspec from the wire: the types that decode bodies describe them.

An answer always has all of its fields, unless its struct leaves out defaults. Requests refuse unknown fields; answers
may gain some.
"""

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

from control_plane.api.errors import KINDS
from control_plane.api.openapi import docstrings
from control_plane.domain.gpu import GpuModel
from control_plane.wire import (
    account_requests,
    accounts,
    admissions,
    agents,
    api_keys,
    audit,
    balance,
    balance_alerts,
    billing,
    catalogue,
    charges,
    clusters,
    common,
    consoles,
    credit_notes,
    credit_terms,
    enforcement,
    envelopes,
    environments,
    explanations,
    exports,
    finance,
    firewalls,
    fleet,
    health,
    invoices,
    journal,
    kubeconfigs,
    lease_ends,
    leases,
    liabilities,
    loops,
    margins,
    networks,
    node_pools,
    nodes,
    notices,
    organizations,
    orphans,
    pools,
    power,
    preemptions,
    price_agreements,
    problems,
    projects,
    proofs,
    reconciliations,
    repairs,
    roles,
    server_hosts,
    sessions,
    sla,
    sla_terms,
    ssh_certificates,
    ssh_keys,
    subjects,
    supplier_invoices,
    telemetry,
)

Schema = dict[str, Any]
REF = "#/components/schemas/"
_WIRE: tuple[ModuleType, ...] = (
    common, organizations, subjects, roles, api_keys, sessions, ssh_keys, projects, environments, networks, catalogue,
    leases, ssh_certificates, firewalls, explanations, journal, proofs, billing, accounts, account_requests, loops,
    agents, orphans, fleet, liabilities, audit, health, problems, envelopes, admissions, clusters, server_hosts,
    kubeconfigs, node_pools, nodes, power, consoles, exports, finance, invoices, credit_notes, balance, reconciliations,
    charges, balance_alerts, margins, supplier_invoices,
    telemetry, lease_ends,
    sla, sla_terms,
    price_agreements, credit_terms, notices, repairs, preemptions, enforcement,
    pools,
)  # fmt: skip
_BODIES = (common.Request, common.View)
_PYTHONS_END = re.compile(r"\$\(\?!\\n\)")
"""How the wire says "the very end" to Python, where `$` also matches before a last newline. In ECMA 262, whose
dialect OpenAPI uses, `$` alone says it."""


def structs() -> Iterator[type[msgspec.Struct]]:
    """Every body of the wire."""
    for module in _WIRE:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, _BODIES) and kind not in _BODIES:
                yield kind


def components() -> dict[str, Schema]:
    """Every struct, enumeration and event of the wire, by name."""
    kinds = {kind.__name__: kind for kind in structs()}
    _, made = msgspec.json.schema_components((*kinds.values(), GpuModel), ref_template=f"{REF}{{name}}")
    shared: dict[str, Schema] = {}
    found: dict[str, Schema] = _shared(in_ecma(made), shared) | shared
    for name, kind in kinds.items():
        _describe(found[name], kind)
    found["GpuModel"]["description"] = "A GPU model: name, form factor and memory."
    found["ProblemCode"] = _codes()
    for name in kinds:
        if name.endswith("Request") and "gpus_of_model" in found[name]["properties"]:
            found[name]["properties"]["gpus_of_model"]["propertyNames"] = {"$ref": f"{REF}GpuModel"}
    for name in ("Problem", "VerdictView", "NodePoolWaitingView"):
        code = found[name]["properties"]["code"]
        found[name]["properties"]["code"] = _with_ref(code, "ProblemCode")
    return dict(sorted((found | events()).items()))


def _codes() -> Schema:
    lines = "\n".join(f"- `{code}`: {kind.remedy}" for code, kind in sorted(KINDS.items()))
    return {
        "title": "ProblemCode",
        "description": f"Why a request is refused or fails.\n\n{lines}",
        "type": "string",
        "enum": sorted(KINDS),
    }


def _with_ref(field: Schema, name: str) -> Schema:
    """The schema of a field whose text is one of the enumeration `name`, or null where it may be."""
    ref = {"$ref": REF + name}
    named = {"anyOf": [ref, {"type": "null"}]} if "anyOf" in field else ref
    return named | {"description": field["description"]}


def _describe(schema: Schema, kind: type[msgspec.Struct]) -> None:
    """Add what msgspec does not read: the docstrings of fields, and that answers are complete."""
    for name, text in docstrings.of_fields(kind).items():
        schema["properties"][name]["description"] = text
    for field in schema["properties"].values():
        if "anyOf" in field and "description" in field["anyOf"][0]:
            field.setdefault("description", field["anyOf"][0]["description"])
    if issubclass(kind, common.View) and not kind.__struct_config__.omit_defaults:
        schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("default", None)


def in_ecma(schema: Any) -> Any:
    """The same schema with its patterns in the dialect of ECMA 262."""
    if isinstance(schema, dict):
        return {
            key: _PYTHONS_END.sub("$", value)
            if key == "pattern" and isinstance(value, str)
            else in_ecma(value)
            for key, value in schema.items()
        }
    return [in_ecma(part) for part in schema] if isinstance(schema, list) else schema


def _shared(schema: Any, found: dict[str, Schema]) -> Any:
    """The schema with each enumeration that has a title moved to `found`, so that all its uses are one type."""
    if isinstance(schema, list):
        return [_shared(part, found) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "enum" in schema and "title" in schema and "description" in schema:
        found[schema["title"]] = schema
        return {"$ref": REF + schema["title"]}
    typed = {"type": "string"} if "enum" in schema else {}
    return typed | {key: _shared(value, found) for key, value in schema.items()}


def events() -> dict[str, Schema]:
    """The server-sent events of a lease, each as an object of its fields."""
    return {
        "StatusEvent": _event("status", "StatusView", "The status, at once and after every change."),
        "JournalEvent": _event("journal", "JournalLine", "A line of the journal.")
        | {"required": ["event", "id", "data"]},
        "EndEvent": _event("end", "StreamEnd", "The last event of the stream."),
        "LeaseEvent": {
            "title": "LeaseEvent",
            "description": "One event of the stream. Its `data` is one line of JSON.",
            "oneOf": [{"$ref": f"{REF}{name}"} for name in ("StatusEvent", "JournalEvent", "EndEvent")],
        },
    }


def _event(name: str, data: str, description: str) -> Schema:
    position = {
        "type": "string",
        "pattern": "^-?[0-9]+(\\.[0-9]+)*$",
        "description": "The reader's position behind the line, for Last-Event-ID.",
    }
    return {
        "title": f"{name.capitalize()}Event",
        "description": description,
        "type": "object",
        "properties": {
            "event": {"type": "string", "const": name, "description": "The name of the event."},
            **({"id": position} if name == "journal" else {}),
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": REF + data},
                "description": f"JSON: `{data}`.",
            },
        },
        "required": ["event", "data"],
    }
