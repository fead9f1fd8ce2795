"""Private networks of another tenant: who is in one reaches its machines."""

from typing import Any

from tests.support.hostile_tenant.way import Call, Way, by_call
from tests.support.hostile_tenant.ways.bodies import LEASE

_BELOW_THEIRS = "/v1/projects/{project}/networks"
_BELOW_OWN = "/v1/projects/default/networks"


def _way(name: str, event: str, call: Call, *, why: str, control: Call | None = None) -> Way:
    return by_call(name, why, call, refused="not_found", event=event, control=control or call)


def _lease(network: str, **where: str) -> dict[str, Any]:
    return {**LEASE, "network": network, **where}


WAYS = (
    _way(
        "read the private networks of a project",
        "networks.read",
        Call("GET", _BELOW_THEIRS),
        why="a list below a thing has to look whose thing it is",
    ),
    _way(
        "read a private network below an own project",
        "networks.read",
        Call("GET", f"{_BELOW_OWN}/{{network}}"),
        why="the project is the attacker's, and the network is looked up by its id",
        control=Call("GET", f"{_BELOW_THEIRS}/{{network}}"),
    ),
    _way(
        "read who is in a private network",
        "networks.read",
        Call("GET", f"{_BELOW_THEIRS}/{{network name}}/members"),
        why="members are joined from peers, claims and leases",
    ),
    _way(
        "make a private network in a project",
        "networks.create",
        Call("POST", _BELOW_THEIRS, {"name": "mine"}),
        why="an insert that only a foreign key could refuse",
    ),
    _way(
        "label a private network",
        "networks.label",
        Call("PUT", f"{_BELOW_THEIRS}/{{network}}/labels", {"labels": {"team": "attacker"}}),
        why="an update by the row's id",
    ),
    _way(
        "delete a private network",
        "networks.delete",
        Call("DELETE", f"{_BELOW_THEIRS}/{{second network}}"),
        why="an update by the row's id",
    ),
    by_call(
        "lease a machine in a private network of theirs",
        "the machine would reach theirs",
        Call("POST", "/v1/leases", _lease("{network}")),
        refused="network_unknown",
        event="leases.create",
        control=Call("POST", "/v1/leases", _lease("{network}", project="{project}")),
    ),
)
