"""The operations of the OpenAPI document: what the framework read from the handlers, with what it cannot know.

It knows paths, parameters, bodies and statuses. Added here are the permission, the headers, the ids in paths, an
example of each body, and what is in answers that are no JSON.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from control_plane.api.errors import KINDS, MEDIA_TYPE, TITLES
from control_plane.api.openapi import examples, headers
from control_plane.api.openapi.schemas import REF, Schema, in_ecma
from control_plane.domain.ids import Prefix
from control_plane.wire.common import LABEL_PATTERN, NAME_LENGTH_MAX, NAME_PATTERN
from control_plane.wire.finance import MONTH_PATTERN

Operation = dict[str, Any]
_SOME_ID = "0190c2f07d1e7b3a9c54e1f2a3b4c5d6"
_IDS: Mapping[tuple[str, str], tuple[Prefix, str]] = {
    ("leases", "lease_id"): (Prefix.LEASE, "lease"),
    ("quotes", "quote_id"): (Prefix.QUOTE, "quote"),
    ("machines", "machine_id"): (Prefix.MACHINE, "machine"),
    ("enforcement", "action_id"): (Prefix.ENFORCEMENT_ACTION, "action"),
    ("liabilities", "liability_id"): (Prefix.LIABILITY, "liability"),
    ("proofs", "proof_id"): (Prefix.PROOF, "GPU proof"),
    ("organizations", "organization_id"): (Prefix.ORGANIZATION, "organization"),
    ("provider-account-requests", "request_id"): (
        Prefix.ACCOUNT_REQUEST,
        "request concerning a provider account",
    ),
    ("api-keys", "key_id"): (Prefix.API_KEY, "API key"),
    ("sla-credits", "breach_id"): (Prefix.SLA_BREACH, "broken promise"),
    ("repairs", "repair_id"): (Prefix.REPAIR, "repair"),
    ("quota-requests", "quota_request_id"): (Prefix.QUOTA_REQUEST, "quota request"),
    ("sessions", "session_id"): (Prefix.SESSION, "session"),
    ("ssh-certificates", "certificate_id"): (Prefix.SSH_CERTIFICATE, "SSH certificate"),
    ("firewall-rules", "rule_id"): (Prefix.FIREWALL_RULE, "firewall rule"),
    ("consoles", "console_id"): (Prefix.CONSOLE, "request for a console"),
    ("kubeconfigs", "kubeconfig_id"): (Prefix.KUBECONFIG, "kubeconfig"),
    ("exports", "export_id"): (Prefix.EXPORT_RUN, "export"),
    ("charges", "charge_id"): (Prefix.CHARGE, "charge"),
    ("invoices", "invoice_id"): (Prefix.INVOICE, "invoice"),
    ("supplier-invoices", "supplier_invoice_id"): (Prefix.SUPPLIER_INVOICE, "supplier's invoice"),
    ("supplier-uploads", "upload_id"): (Prefix.SUPPLIER_UPLOAD, "upload"),
    ("credit-terms", "organization_id"): (Prefix.ORGANIZATION, "organization"),
    ("price-agreements", "agreement_id"): (Prefix.PRICE_AGREEMENT, "agreed price"),
    ("credit-notes", "credit_note_id"): (Prefix.CREDIT_NOTE, "credit note"),
    ("invoice-drafts", "organization_id"): (Prefix.ORGANIZATION, "organization"),
    ("billing-details", "organization_id"): (Prefix.ORGANIZATION, "organization"),
    ("reconciliations", "reconciliation_id"): (Prefix.RECONCILIATION, "reconciliation"),
    ("ssh-keys", "key_id"): (Prefix.SSH_KEY, "SSH key"),
    ("node-pools", "node_pool_id"): (Prefix.NODE_POOL, "node pool"),
    ("users", "user_id"): (Prefix.USER, "user"),
    ("service-accounts", "service_account_id"): (Prefix.SERVICE_ACCOUNT, "service account"),
    ("role-bindings", "role_binding_id"): (Prefix.ROLE_BINDING, "role binding"),
}
"""The ids in paths, by the collection before them and the name of the parameter."""
_QUERY: Mapping[str, Schema] = {
    "since": {"format": "date-time", "description": "Only what starts then or later; a year from 2000 to 2200."},
    "until": {"format": "date-time", "description": "Only what starts before; a year from 2000 to 2200."},
    "cursor": {"pattern": "^[A-Za-z0-9_-]+$"},
    "label": {"items": {"type": "string", "pattern": LABEL_PATTERN}},
    "gpu_model": {"description": "Only offers with this GPU model."},
}  # fmt: skip
"""What the framework does not say of a parameter of a query."""
_TEXTS: Mapping[str, Schema] = {
    # Before OpenAPI 3.2, the schema of a stream describes each of its events.
    "text/event-stream": {"$ref": REF + "LeaseEvent"},
    "application/x-ndjson": {
        "type": "string",
        "description": "A line of JSON for each event, between a first and a last line about the chain: docs/audit.md.",
    },
    "application/octet-stream": {
        "type": "string",
        "format": "binary",
        "description": "The bytes of the file, in its own media type: docs/exports.md.",
    },
    "text/plain; version=0.0.4": {
        "type": "string",
        "description": "Prometheus' text format: docs/telemetry.md lists the metrics.",
    },
    "text/html": {
        "type": "string",
        "description": "A page that loads nothing and runs nothing, and that prints on A4.",
    },
}  # fmt: skip
_CSV_ROWS = {"/v1/usage.csv": "UsageCsvRow", "/v1/balance/entries.csv": "BalanceEntryCsvRow"}
"""The schema of a line of each list that is CSV."""
_NAMED = {
    "detector": ("A detector.", "kv_cache_growth"),
    "project": ("The name or the id of the project.", "default"),
    "environment": ("The name or the id of the environment.", "default"),
    "network": ("The name or the id of the private network.", "default"),
    "cluster": ("The name or the id of the cluster.", "eu-1"),
    "node": ("The name or the id of the node.", f"node-{_SOME_ID}"),
    "host": ("The name of the server host.", "k8s-1"),
    "pool": ("The name of the warm pool.", "h100-eu"),
    "file": ("The name of one of the export's files.", "focus-1.2.csv"),
}
"""What a path names by a name: its description, and an example."""
_ID_IN_ANSWER = {"createOrganization": "/organization/id", "createApiKey": "/key/id"}
"""Where the answer to an operation has the id of what it made, if that is not `/id`."""


def handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Every documented route: its method in lower case, its path and its handler."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema():
                    yield from (
                        (method.lower(), route.path_format, handler) for method in handler.http_methods
                    )


def complete(paths: dict[str, dict[str, Operation]], app: Litestar, schemas: Mapping[str, Schema]) -> None:
    """Complete the operations of `paths` in place."""
    known = {(method, path): handler for method, path, handler in handlers(app)}
    for path, operations in paths.items():
        for method, operation in operations.items():
            handler = known[method, path]
            _describe(operation, handler)
            operation["parameters"] = list(_parameters(path, method, operation, handler))
            operation["responses"] = dict(sorted(_responses(path, method, operation, schemas)))
            _exemplify(operation, schemas)
    _link(paths)


def _describe(operation: Operation, handler: HTTPRouteHandler) -> None:
    text = " ".join(operation["description"].split())
    permission = handler.opt.get("permission")
    operation["summary"] = text.partition(". ")[0].removesuffix(".")
    if permission is not None:
        operation["description"] = f"{text}\n\nNeeds the permission `{permission}`."
        operation["security"] = [{"apiKey": [str(permission)]}]
    operation.pop("deprecated", None)


def _parameters(
    path: str, method: str, operation: Operation, handler: HTTPRouteHandler
) -> Iterator[dict[str, Any]]:
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        yield _in_path(path, name) if parameter["in"] == "path" else _in_query(parameter)
    if method == "post":
        name = "RequiredIdempotencyKey" if handler.opt.get("moves_money") else "IdempotencyKey"
        yield {"$ref": f"#/components/parameters/{name}"}
    if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
        yield {"$ref": "#/components/parameters/LastEventId"}


def _in_path(path: str, name: str) -> dict[str, Any]:
    if name in _NAMED:
        description, example = _NAMED[name]
        schema = in_ecma({"type": "string", "pattern": NAME_PATTERN, "maxLength": NAME_LENGTH_MAX})
        told = {"description": description, "schema": schema, "example": example}
        return {"name": name, "in": "path", "required": True} | told
    if name == "month":
        month = in_ecma({"type": "string", "pattern": MONTH_PATTERN})
        told = {"description": "A calendar month in UTC.", "schema": month, "example": "2026-11"}
        return {"name": name, "in": "path", "required": True} | told
    if name == "line":
        number = {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}
        told = {"description": "The number of the line, from 1.", "schema": number, "example": "1"}
        return {"name": name, "in": "path", "required": True} | told
    collection = path.partition(f"/{{{name}}}")[0].rpartition("/")[2]
    prefix, noun = _IDS[collection, name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"The id of the {noun}.",
        "schema": {"type": "string", "pattern": f"^{prefix}_[0-9a-f]{{32}}$"},
        "example": f"{prefix}_{_SOME_ID}",
    }


def _in_query(parameter: dict[str, Any]) -> dict[str, Any]:
    """The parameter without null, which a query cannot say: it is left out instead."""
    schema = dict(parameter["schema"])
    parts = [part for part in schema.pop("oneOf", []) if part.get("type") != "null"]
    for part in parts:
        schema = part | schema
    schema = in_ecma(schema | ({} if "enum" in schema else _QUERY.get(parameter["name"], {})))
    if "enum" in schema:
        schema |= {"type": "string", "enum": [value for value in schema["enum"] if value is not None]}
    text = schema.pop("description", None) or parameter["description"]
    for bound in schema.keys() & {"minimum", "maximum"}:
        schema[bound] = int(schema[bound])  # The framework has them as floats.
    return {
        "name": parameter["name"],
        "in": "query",
        "required": False,
        "description": text,
        "schema": schema,
    }


def _exemplify(operation: Operation, schemas: Mapping[str, Schema]) -> None:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["example"] = examples.of_request(content["schema"], schemas)
        name = content["schema"]["$ref"].removeprefix(REF)
        operation["requestBody"]["description"] = schemas[name]["description"]
    if "security" not in operation:
        return  # `up` and `ready` need no example.
    for response in operation["responses"].values():
        if content := response.get("content", {}).get("application/json"):
            content["example"] = examples.of_answer(operation["operationId"], content["schema"], schemas)


def _csv(row: str) -> Schema:
    why = "CSV with a header (RFC 4180); `x-item-schema` describes a line, its columns in order."
    return {"type": "string", "description": why, "x-item-schema": {"$ref": REF + row}}


def _responses(
    path: str, method: str, operation: Operation, schemas: Mapping[str, Schema]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            yield status, {"$ref": f"#/components/responses/{_name(int(status))}"}
        else:
            yield status, _success(path, method, int(status), response, schemas)


def _success(
    path: str, method: str, status: int, response: dict[str, Any], schemas: Mapping[str, Schema]
) -> dict[str, Any]:
    content = response.get("content", {})
    media_type = next(iter(content), "")
    if path in _CSV_ROWS:
        content[media_type] = {"schema": _csv(_CSV_ROWS[path])}
    elif media_type in _TEXTS:
        content[media_type] = {"schema": _TEXTS[media_type]}
    schema = content.get(media_type, {}).get("schema", {})
    name = schema.get("$ref", "").removeprefix(REF)
    return {
        "description": schemas[name]["description"] if name else schema.get("description", "Done."),
        "headers": headers.of_success(method, status, media_type=media_type, limited=path.startswith("/v1")),
        **({"content": content} if content else {}),
    }


def _link(paths: dict[str, dict[str, Operation]]) -> None:
    """Link what makes something to everything that can be done with its id."""
    for path, operations in paths.items():
        collection, opened, rest = path.partition("/{")
        made = paths.get(collection, {}).get("post")
        if not opened or made is None:
            continue
        where = _ID_IN_ANSWER.get(made["operationId"], "/id")
        answer = next(response for status, response in made["responses"].items() if status.startswith("2"))
        for operation in operations.values():
            answer.setdefault("links", {})[operation["operationId"]] = {
                "operationId": operation["operationId"],
                "parameters": {rest.partition("}")[0]: f"$response.body#{where}"},
                "description": operation["summary"],
            }


def _name(status: int) -> str:
    return "".join(word.capitalize() for word in TITLES[status].split())


def problems() -> dict[str, Any]:
    """The answer of each status that is an error, by the name of its title."""
    return {_name(status): _problem(status) for status in sorted(TITLES)}


def _problems_of(status: int) -> dict[str, Any]:
    """An example of each code with this status."""
    return {
        code: {
            "summary": kind.remedy,
            "value": {
                "type": f"urn:splitplane:error:{code}",
                "title": TITLES[status],
                "status": status,
                "detail": kind.remedy,
                "code": code,
                "request_id": f"req_{_SOME_ID}",
                **({"errors": [{"field": kind.field, "detail": kind.remedy}]} if kind.field else {}),
            },
        }
        for code, kind in sorted(KINDS.items())
        if kind.status == status
    }


def _problem(status: int) -> dict[str, Any]:
    codes = "\n".join(
        f"- `{code}`: {kind.remedy}" for code, kind in sorted(KINDS.items()) if kind.status == status
    )
    return {
        "description": f"{TITLES[status]}. `code` is one of these:\n\n{codes}",
        "headers": headers.of_problem(status),
        "content": {MEDIA_TYPE: {"schema": {"$ref": REF + "Problem"}, "examples": _problems_of(status)}},
    }
