"""The same ids and requests in other spellings: what checks and what acts could read them differently."""

from collections.abc import Callable, Mapping
from urllib.parse import quote

import httpx

from tests.support.hostile_tenant.things import Things
from tests.support.hostile_tenant.way import OWN, Call, Stand, Way, by_call

_READ = Call("GET", "/v1/leases/{lease}")


def _spelled(
    name: str,
    spell: Callable[[str], str],
    why: str,
    *,
    refused: str = "lease_not_found",
    event: str | None = "leases.read",
    no_line: str = "",
) -> Way:
    async def attempt(stand: Stand, things: Things) -> httpx.Response:
        return await Call("GET", f"/v1/leases/{spell(things['lease'])}").send(stand, things)

    async def own(stand: Stand) -> httpx.Response:
        return await _READ.send(stand, stand.mine)

    return Way(
        name=f"spell an id {name}",
        why=why,
        attempt=attempt,
        refused=refused,
        control=own,
        event=event,
        no_line=no_line,
    )


def _with_dashes(wire_id: str) -> str:
    digits = wire_id.rpartition("_")[2]
    return "le_" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _wide(wire_id: str) -> str:
    """With the digits of another script, which Python reads as digits."""
    return quote("".join(chr(ord(sign) - 0x30 + 0xFF10) if sign.isdigit() else sign for sign in wire_id))


def _raw(name: str, why: str, send: Callable[[Stand, Things], httpx.Request], code: str, own: Call) -> Way:
    async def attempt(stand: Stand, things: Things) -> httpx.Response:
        return await stand.http.send(send(stand, things))

    async def controlled(stand: Stand) -> httpx.Response:
        return await own.send(stand, stand.mine)

    return Way(
        name=name,
        why=why,
        attempt=attempt,
        refused=code,
        control=controlled,
        no_line="a request that cannot be understood",
    )


def _two_keys(stand: Stand, things: Things) -> httpx.Request:
    secret = next(iter(things.secrets), "spk_nobodys")
    headers = [("Authorization", f"Bearer {stand.secret}"), ("Authorization", f"Bearer {secret}")]
    return httpx.Request("GET", stand.http.base_url.join("/v1/leases"), headers=headers)


def _project_twice(stand: Stand, things: Things) -> httpx.Request:
    query = f"project={stand.mine['project']}&project={things['project']}"
    return stand.http.build_request("GET", f"/v1/leases?{query}")


def _name_twice(stand: Stand, things: Things) -> httpx.Request:
    body = f'{{"sku": "{stand.common["sku"]}", "project": "{stand.mine["project"]}", "project": "{things["project"]}"}}'
    return stand.http.build_request(
        "POST", "/v1/leases", content=body, headers={"Content-Type": "application/json"}
    )


def _told(name: str, why: str, headers: Mapping[str, str]) -> Way:
    return by_call(
        f"name their organization in {name}",
        why,
        Call("GET", "/v1/organization", headers=headers),
        refused=OWN,
        no_line="it is no refusal",
    )


WAYS = (
    _spelled("in capitals", str.upper, "Python reads capitals as hexadecimal too"),
    _spelled("with dashes", _with_dashes, "it is how PostgreSQL and Python write a UUID"),
    _spelled("in digits of another script", _wide, "Python reads them as digits"),
    _spelled("with another prefix", lambda wire_id: wire_id.replace("le_", "mc_"), "the number is the same"),
    _spelled("without a prefix", lambda wire_id: wire_id.rpartition("_")[2], "the number is the same"),
    _spelled("with a NUL at its end", lambda wire_id: f"{wire_id}%00", "text ends at a NUL in C"),
    _spelled("with a line feed at its end", lambda wire_id: f"{wire_id}%0A", "`$` matches before it"),
    _spelled(
        "behind an own one and `..`",
        lambda wire_id: f"le_{0:032x}%2F%2E%2E%2F{wire_id}",
        "a proxy or a router may resolve the path after the check",
        refused="route_not_found",
        event=None,
        no_line="no endpoint was asked",
    ),
    by_call(
        "override the method",
        "frameworks and proxies have headers for it",
        Call("GET", "/v1/ssh-keys/{ssh key}", headers={"X-HTTP-Method-Override": "DELETE"}),
        refused="method_not_allowed",
        no_line="no endpoint was asked",
        control=Call("GET", "/v1/ssh-keys"),
    ),
    by_call(
        "ask for the head of a lease only",
        "HEAD is answered by another handler than GET",
        Call("HEAD", "/v1/leases/{lease}"),
        refused="",
        event="leases.read",
    ),
    by_call(
        "ask for the options of a lease",
        "OPTIONS needs no key, so it must not look anything up",
        Call("OPTIONS", "/v1/leases/{lease}"),
        refused=OWN,
        no_line="it is no refusal",
    ),
    _raw(
        "send two API keys",
        "a proxy could check one and we could use the other",
        _two_keys,
        "bad_request",
        Call("GET", "/v1/leases"),
    ),
    _raw(
        "name two projects in a query",
        "the first could be checked and the second be used",
        _project_twice,
        "invalid_parameter",
        Call("GET", "/v1/leases", query={"project": "{project}"}),
    ),
    _raw(
        "name two projects in a body",
        "decoders keep the last of two, and logs may show the first",
        _name_twice,
        "malformed_json",
        Call("GET", "/v1/projects/{project}"),
    ),
    _told(
        "headers that proxies set",
        "a gateway could have put the tenant there",
        {
            "X-Organization-Id": "{organization}",
            "X-Tenant": "{organization}",
            "X-Original-URL": "/v1/leases/{lease}",
            "X-Rewrite-URL": "/v1/leases/{lease}",
            "Forwarded": "for=127.0.0.1;host={organization}",
        },
    ),
    _told("the host", "tenants could be told apart by it", {"Host": "{organization}.example.com"}),
    by_call(
        "mix a key of theirs among own ones",
        "the first of a list could be checked for all",
        Call("POST", "/v1/leases", {"sku": "{sku}", "ssh_key_ids": ["{attackers ssh key}", "{ssh key}"]}),
        refused="ssh_key_unknown",
        event="leases.create",
    ),
    by_call(
        "send a list where an id belongs",
        "a list of ids could be passed on to the query",
        Call("POST", "/v1/leases", {"sku": "{sku}", "ssh_key_ids": [], "project": ["{project}"]}),
        refused="invalid_request",
        no_line="a request that cannot be understood",
        control=Call("POST", "/v1/leases", {"sku": "{sku}", "ssh_key_ids": [], "project": "{project}"}),
    ),
)
