"""The reference page at /docs: the OpenAPI document as one page of HTML, without scripts and without other files."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from control_plane.api.openapi.schemas import REF, Schema

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --link: #8ab4ff; } }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; display: grid; grid-template-columns: 19rem minmax(0, 1fr); }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem; border-right: 1px solid var(--line); }
nav h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .06em; margin: 1.2rem 0 .3rem; }
nav a { display: block; padding: .1rem 0; font-size: .9rem; }
main { padding: 1.5rem clamp(1rem, 4vw, 3rem); max-width: 62rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
section { padding-top: 1rem; border-top: 1px solid var(--line); margin-top: 2.5rem; }
article { margin: 2rem 0; scroll-margin-top: 1rem; }
h3 { margin: 0 0 .2rem; font-size: 1.1rem; } h4 { margin: 1rem 0 .3rem; font-size: .9rem; }
code, pre { font: .86em/1.45 ui-monospace, monospace; }
code { background: var(--soft); padding: .1em .3em; border-radius: .25em; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto; }
.route { margin: 0 0 .5rem; } .method { font-weight: 700; text-transform: uppercase; margin-right: .5em; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); }
summary { cursor: pointer; }
td p, td ul { margin: 0; } ul { padding-left: 1.2rem; } td:first-child code { white-space: nowrap; }
@media (max-width: 50rem) {
  body { display: block; } nav { position: static; height: auto; border: 0; }
  tr { display: block; padding: .35rem 0; border-bottom: 1px solid var(--line); }
  td { display: block; padding: 0; border: 0; overflow-wrap: anywhere; }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of the page: nothing is loaded, and no script runs."""

Document = Mapping[str, Any]


def page(document: Document) -> bytes:
    """The document as HTML. Every text in it is escaped."""
    return "\n".join(_lines(document)).encode()


def _lines(document: Document) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title} API</title><style>{_STYLE}</style></head><body>"
    yield from _navigation(document)
    yield f"<main><h1>{title} API {escape(document['info']['version'])}</h1>{_prose(document['info']['description'])}"
    yield _prose("Below `/v1`, every request needs an API key: `Authorization: Bearer spk_...`.")
    yield '<p><a href="/schema/openapi.json">The OpenAPI document</a>, for generators of clients.</p>'
    for tag in document["tags"]:
        yield f'<section><h2 id="{_anchor(tag["name"])}">{escape(tag["name"].capitalize())}</h2>'
        yield _prose(tag["description"])
        for path, method, operation in _tagged(document, tag["name"]):
            yield from _operation(path, method, operation, document)
        yield "</section>"
    yield '<section><h2 id="answers">Errors</h2>'
    for name, part in document["components"]["responses"].items():
        yield f'<article id="answer-{name}"><h3>{escape(name)}</h3>{_prose(part["description"])}</article>'
    yield '</section><section><h2 id="schemas">Schemas</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema)
    yield "</section></main></body></html>"


def _navigation(document: Document) -> Iterator[str]:
    yield "<nav>"
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>"
        for _, _, operation in _tagged(document, tag["name"]):
            yield f'<a href="#{operation["operationId"]}">{escape(operation["operationId"])}</a>'
    yield '<h2>More</h2><a href="#answers">Errors</a><a href="#schemas">Schemas</a></nav>'


def _tagged(document: Document, tag: str) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield path, method, operation


def _operation(path: str, method: str, operation: Schema, document: Document) -> Iterator[str]:
    yield f'<article id="{operation["operationId"]}"><h3>{escape(operation["summary"])}</h3>'
    yield f'<p class="route"><span class="method">{method}</span><code>{escape(path)}</code></p>'
    yield _prose(operation["description"].removeprefix(operation["summary"]).removeprefix(".").strip())
    parameters = [_resolved(parameter, document) for parameter in operation["parameters"]]
    rows = [
        (each["name"], f"{each['in']}: {_kind(each['schema'])}", each["description"]) for each in parameters
    ]
    yield from _table("Parameters", rows)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield f"<h4>Body: {_kind(content['schema'])}</h4>"
        yield _json(content["example"])
    yield "<h4>Answers</h4><ul>"
    for status, response in operation["responses"].items():
        yield f"<li><code>{status}</code> {_answer(response)}</li>"
    yield "</ul>"
    for response in operation["responses"].values():
        for content in response.get("content", {}).values():
            if "example" in content:
                yield f"<details><summary>Example</summary>{_json(content['example'])}</details>"
    yield "</article>"


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _answer(response: Schema) -> str:
    if "$ref" in response:
        name = escape(response["$ref"].rpartition("/")[2])
        return f'<a href="#answer-{name}">{name}</a>'
    kinds = [
        f"{escape(media)}: {_kind(content['schema'])}"
        for media, content in response.get("content", {}).items()
    ]
    return ", ".join(kinds) or _inline(response["description"])


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield f'<article id="schema-{name}"><h3>{escape(name)}</h3>{_prose(schema["description"])}'
    if "oneOf" in schema:
        yield f"<p>One of: {' or '.join(_kind(part) for part in schema['oneOf'])}.</p>"
    required = schema.get("required", ())
    rows = [
        (field, _kind(part) + ("" if field in required else ", optional"), part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    ]
    yield from _table("Fields", rows)
    yield "</article>"


def _table(title: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Rows of a name, a type in HTML, and a description."""
    if rows:
        yield f"<h4>{title}</h4><table>"
        for name, kind, text in rows:
            yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{_prose(text)}</td></tr>"
        yield "</table>"


def _kind(schema: Schema) -> str:
    """The type of a value in HTML, with a link where it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(REF))
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return escape(str(schema.get("format") or schema.get("type") or "string"))


def _resolved(part: Schema, document: Document) -> Schema:
    found: Any = part
    if "$ref" in part:
        found = document
        for key in part["$ref"].removeprefix("#/").split("/"):
            found = found[key]
    resolved: Schema = found
    return resolved


def _prose(text: str) -> str:
    """Paragraphs and lists of a description."""
    return "".join(
        f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in block.splitlines())}</ul>"
        if block.startswith("- ")
        else f"<p>{_inline(block)}</p>"
        for block in text.split("\n\n")
    )


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _anchor(text: str) -> str:
    return escape(text.replace(" ", "-"))
