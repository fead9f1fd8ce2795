"""Clusters, node pools, nodes and kubeconfigs of another tenant, in a cluster that both share and in one of theirs."""

from dataclasses import replace
from typing import Any

import httpx

from tests.support.hostile_tenant.things import RECIPIENT
from tests.support.hostile_tenant.way import OWN, Call, Stand, Way, by_call

POOL = {"cluster": "{cluster}", "name": "{marker}-new", "sku": "{sku}", "nodes": 1}
KUBECONFIG = {"name": "mine", "public_key": RECIPIENT}
_SHARED = "/v1/clusters/{cluster}/kubeconfigs"
_THEIRS = "/v1/clusters/{dedicated cluster}"
_NAMED = "/v1/clusters/{dedicated cluster name}"


def _way(
    name: str,
    event: str,
    call: Call,
    *,
    why: str,
    code: str = "not_found",
    control: Call | None = None,
) -> Way:
    way = by_call(name, why, call, refused=code, event=event, control=control)
    return replace(way, needs=("node pool",))


def _pool(name: str, code: str, *, why: str, control: dict[str, Any] | None = None, **other: str) -> Way:
    call = Call("POST", "/v1/node-pools", POOL | other)
    own = Call("POST", "/v1/node-pools", POOL | {"name": f"{{marker}}-{len(name)}"} | (control or other))
    return _way(name, "node_pools.manage", call, why=why, code=code, control=own)


def _kubeconfig(name: str, code: str, path: str, *, why: str, **other: str) -> Way:
    return _way(
        name,
        "kubeconfigs.create",
        Call("POST", path, KUBECONFIG | other),
        why=why,
        code=code,
    )


def _own(name: str, path: str, query: dict[str, str], *, why: str, compared: bool = True) -> Way:
    way = by_call(
        name,
        why,
        Call("GET", path, query=query),
        refused=OWN,
        no_line="it is no refusal",
        compared=compared,
    )
    return replace(way, needs=("node pool",))


def _by_operator(way: Way, call: Call) -> Way:
    async def control(stand: Stand) -> httpx.Response:
        return await call.send(stand.as_operator(), stand.mine)

    return replace(way, control=control, by_operator=True)


def _operators(name: str, event: str, method: str, path: str) -> Way:
    call = Call(method, path)
    why = "the endpoint is there for every key"
    return _by_operator(_way(name, event, call, why=why, code="permission_denied"), call)


def _of_node(way: Way) -> Way:
    return replace(way, needs=("node",))


def _of_dedicated(way: Way) -> Way:
    return replace(way, needs=("dedicated cluster",))


WAYS = (
    _way(
        "read a node pool",
        "node_pools.read",
        Call("GET", "/v1/node-pools/{node pool}"),
        why="looked up by its id",
    ),
    _way(
        "scale a node pool",
        "node_pools.manage",
        Call("PATCH", "/v1/node-pools/{node pool}", {"nodes": 1}),
        why="the row is locked by its id before anybody asks whose it is",
    ),
    _way(
        "delete a node pool",
        "node_pools.manage",
        Call("POST", "/v1/node-pools/{second node pool}/deletion"),
        why="a deletion ends the leases of all its nodes",
    ),
    _way(
        "list the node pools of a project",
        "node_pools.read",
        Call("GET", "/v1/node-pools", query={"project": "{project}"}),
        why="the filter is resolved to an id before the list is read",
        code="project_unknown",
    ),
    _own(
        "find a node pool of theirs by its name",
        "/v1/node-pools",
        {"name": "{node pool name}"},
        why="the filter alone would find rows of theirs",
    ),
    _own(
        "list the node pools of a cluster that both use",
        "/v1/node-pools",
        {"cluster": "{cluster}"},
        why="the cluster is a place that tenants share",
        compared=False,
    ),
    _own(
        "list the nodes of a node pool of theirs",
        "/v1/nodes",
        {"node_pool": "{node pool}"},
        why="the filter alone would find rows of theirs",
    ),
    _own(
        "go on in their list of node pools",
        "/v1/node-pools",
        {"cursor": "{node pools cursor}"},
        why="a cursor is not signed, and names a row of theirs",
        compared=False,
    ),
    _own(
        "go on in their list of kubeconfigs",
        "/v1/kubeconfigs",
        {"cursor": "{kubeconfigs cursor}"},
        why="a cursor is not signed, and names a row of theirs",
        compared=False,
    ),
    _of_node(
        _way(
            "read a node",
            "node_pools.read",
            Call("GET", "/v1/nodes/{node}"),
            why="looked up by its id or its name",
        )
    ),
    _of_node(
        _way(
            "read a node by its name",
            "node_pools.read",
            Call("GET", "/v1/nodes/{node name}"),
            why="names of nodes are unique in a cluster, whoever shares it",
        )
    ),
    _pool(
        "make a node pool in a project of theirs",
        "project_unknown",
        why="the bill would be theirs",
        project="{project}",
    ),
    _pool(
        "make a node pool in an environment of theirs",
        "environment_unknown",
        why="the project is the attacker's, and the environment is looked up apart",
        environment="{environment}",
        control={"environment": "{environment}", "project": "{project}"},
    ),
    _of_dedicated(
        _pool(
            "make a node pool in a cluster of theirs",
            "cluster_unknown",
            why="its pods would be next to theirs",
            cluster="{dedicated cluster}",
        )
    ),
    _of_dedicated(
        _pool(
            "make a node pool in a cluster of theirs, by its name",
            "cluster_unknown",
            why="names of clusters are unique everywhere",
            cluster="{dedicated cluster name}",
        )
    ),
    replace(
        by_call(
            "make a node pool with a name of theirs in a cluster that both use",
            "a name that is unique in the cluster would tell that they have it",
            Call("POST", "/v1/node-pools", POOL | {"name": "{node pool name}"}),
            refused=OWN,
            no_line="it is no refusal",
            control=Call("POST", "/v1/node-pools", POOL | {"name": "{marker}-control"}),
            makes=True,
        ),
        needs=("node pool",),
    ),
    _of_dedicated(
        _way(
            "read a cluster of theirs", "clusters.read", Call("GET", _THEIRS), why="most clusters are shared"
        )
    ),
    _of_dedicated(
        _way(
            "read a cluster of theirs by its name",
            "clusters.read",
            Call("GET", _NAMED),
            why="names of clusters are unique everywhere",
        )
    ),
    _way(
        "read a kubeconfig",
        "kubeconfigs.read",
        Call("GET", "/v1/kubeconfigs/{kubeconfig}"),
        why="it is sealed, and still nobody else's",
    ),
    _way(
        "rotate a kubeconfig",
        "kubeconfigs.create",
        Call("POST", "/v1/kubeconfigs/{kubeconfig}/rotations", {"public_key": RECIPIENT}),
        why="the new one would be sealed for the attacker's key, and open their namespace",
    ),
    _way(
        "revoke a kubeconfig",
        "kubeconfigs.revoke",
        Call("POST", "/v1/kubeconfigs/{second kubeconfig}/revoke"),
        why="it would lock them out",
    ),
    _kubeconfig(
        "ask for a kubeconfig of a project of theirs",
        "project_unknown",
        _SHARED,
        why="it would open their namespace",
        project="{project}",
    ),
    _kubeconfig(
        "ask for a kubeconfig of a project of theirs, by its name",
        "project_unknown",
        _SHARED,
        why="names are unique within an organization only",
        project="{project name}",
    ),
    _of_dedicated(
        _kubeconfig(
            "ask for a kubeconfig in a cluster of theirs",
            "not_found",
            f"{_THEIRS}/kubeconfigs",
            why="a namespace of the attacker's would be made there, and all of its nodes shown",
        )
    ),
    _of_dedicated(
        _kubeconfig(
            "ask for a kubeconfig in a cluster of theirs, by its name",
            "not_found",
            f"{_NAMED}/kubeconfigs",
            why="names of clusters are unique everywhere",
        )
    ),
    _operators("list the hosts of clusters", "server_hosts.read", "GET", "/v1/operator/server-hosts"),
    _operators("list the agents of all machines", "agents.read", "GET", "/v1/operator/agents"),
    _of_dedicated(
        _operators(
            "change the key of the server of a cluster of theirs",
            "nodes.rotate_keys",
            "POST",
            "/v1/operator/clusters/{dedicated cluster}/key-rotations",
        )
    ),
    _of_dedicated(
        _operators(
            "delete a cluster of theirs",
            "clusters.manage",
            "POST",
            "/v1/operator/clusters/{dedicated cluster}/deletion",
        )
    ),
)
