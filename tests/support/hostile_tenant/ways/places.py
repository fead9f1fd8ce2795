"""Places of another tenant: cursors, positions in event streams and in the audit log, replayed and forged."""

import base64

import httpx

from tests.support.hostile_tenant.things import Things
from tests.support.hostile_tenant.way import OWN, Call, Stand, Way, by_call


def _page(name: str, path: str, cursor: str, why: str, *, echoes: bool = False) -> Way:
    return by_call(
        name,
        why,
        Call("GET", path, query={"cursor": f"{{{cursor}}}"}),
        refused=OWN,
        no_line="it is no refusal",
        compared=False,  # Nobody can invent one without a row.
        echoes=echoes,
    )


async def _forged(stand: Stand, things: Things) -> httpx.Response:
    """The attacker's own cursor, with an id of theirs at its end."""
    own = stand.mine.places["leases cursor"]
    text = base64.urlsafe_b64decode(own + "=" * (-len(own) % 4)).decode()
    forged = text.rpartition(":")[0] + ":" + things["lease"].rpartition("_")[2]
    cursor = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")
    return await Call("GET", "/v1/leases", query={"cursor": cursor}).send(stand, things)


async def _own_page(stand: Stand) -> httpx.Response:
    return await Call("GET", "/v1/leases", query={"cursor": "{leases cursor}"}).send(stand, stand.mine)


WAYS = (
    _page(
        "go on in their list of leases",
        "/v1/leases",
        "leases cursor",
        "a cursor is not signed, and names a row of theirs",
    ),
    _page(
        "go on in their audit log",
        "/v1/audit-events",
        "audit cursor",
        "the same cursor serves operators, who read every log",
        echoes=True,
    ),
    by_call(
        "use a cursor of their audit log for leases",
        "a cursor of another list has the same form",
        Call("GET", "/v1/leases", query={"cursor": "{audit cursor}"}),
        refused="invalid_cursor",
        no_line="a request that cannot be understood",
        control=Call("GET", "/v1/leases", query={"cursor": "{leases cursor}"}),
        compared=False,
    ),
    Way(
        name="forge a cursor at a lease of theirs",
        why="cursors are not signed, so anybody can write one",
        attempt=_forged,
        refused=OWN,
        control=_own_page,
        no_line="it is no refusal",
        compared=False,  # Another id is another place among rows of one moment.
    ),
    by_call(
        "go on in an own list, filtered by a project of theirs",
        "the filter of the first page was checked, and that of the next one could be believed",
        Call("GET", "/v1/leases", query={"cursor": "{leases cursor}", "project": "{project}"}),
        refused="project_unknown",
        event="leases.read",
        compared=False,
    ),
    by_call(
        "follow a lease of theirs from a place of its own stream",
        "a client that comes back with Last-Event-ID could be taken for one that was let in before",
        Call(
            "GET", "/v1/leases/{released lease}/events?until=ready", headers={"Last-Event-ID": "{event id}"}
        ),
        refused="lease_not_found",
        event="leases.read",
        compared=False,
    ),
    by_call(
        "follow an own lease from a place of their stream",
        "places count transactions of the whole database",
        Call(
            "GET", "/v1/leases/{attackers lease}/events?until=ready", headers={"Last-Event-ID": "{event id}"}
        ),
        refused=OWN,
        no_line="it is no refusal",
        compared=False,
    ),
    by_call(
        "export the audit log behind the end of theirs",
        "places of all chains are numbers from 1",
        Call("GET", "/v1/audit-events/export", query={"after": "{audit head}"}),
        refused=OWN,
        no_line="it is no refusal",
        compared=False,
        echoes=True,
    ),
)
