"""Kubernetes clusters. Creating and deleting them needs the permission `clusters.manage`."""

from argparse import Namespace
from urllib.parse import quote

from control_plane.cli import waiting
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands import node_pools, nodes
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.clusters import Everybodys, Inside, cluster_page, cluster_table, progress_of
from control_plane.cli.terminal import Terminal
from control_plane.wire.clusters import ClusterPage, ClusterRequest, ClusterView
from control_plane.wire.node_pools import NodePoolPage, NodePoolReportPage
from control_plane.wire.nodes import NodePage, NodeReportPage

_CLUSTER = "its name or its id"


def add(to: Commands) -> None:
    clusters = noun(to, "cluster", "See Kubernetes clusters; operators create and delete them.")
    command(
        clusters,
        "list",
        list_clusters,
        "List the clusters that your organization may use, oldest first.",
        more="Operators see all clusters.",
        examples="splitplane cluster list",
    )
    parser = command(
        clusters,
        "show",
        show,
        "Show a cluster: version, URL of its API server, your node pools and nodes in it.",
        more=(
            "Operators see the node pools and nodes of everybody with --all-organizations:\n"
            "what each pool waits for, and the conditions of each node."
        ),
        examples="""
        splitplane cluster show eu-1
        splitplane cluster show eu-1 --all-organizations
        """,
    )
    parser.add_argument("cluster", metavar="CLUSTER", help=_CLUSTER)
    nodes.add_everybodys(parser)
    parser = command(
        clusters,
        "create",
        create,
        "Create a cluster on a free server host, and wait until it is ready (operators).",
        more=(
            "Its server runs on a host of yours: see splitplane server-host add. Its nodes\n"
            "are rented, at whichever providers. A cluster is shared by all organizations, or\n"
            "dedicated to one. Leaving early (Ctrl-C, --no-wait) does not end the building."
        ),
        examples="""
        splitplane cluster create eu-1 --region eu-central-1
        splitplane cluster create acme --region eu-west-1 --organization org_0190c2...
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique among the clusters; not cl_...")
    parser.add_argument("--region", required=True, metavar="REGION", help="the region of a free server host")
    parser.add_argument("--organization", metavar="ORG", help="the organization that it is dedicated to")
    parser.add_argument(
        "--no-wait", "--detach", dest="no_wait", action="store_true", help="return while it is being built"
    )
    parser = command(
        clusters,
        "delete",
        delete,
        "Delete a cluster with everything in it (operators).",
        more="Its nodes leave, and then its server is dismantled, which frees its host.",
        examples="splitplane cluster delete eu-1 --yes",
    )
    parser.add_argument("cluster", metavar="CLUSTER", help=_CLUSTER)
    add_yes(parser)
    parser = command(
        clusters,
        "rotate-key",
        rotate_key,
        "Change the WireGuard key of a cluster's server at once (operators).",
        more=(
            "For a key that may have leaked. It begins within seconds. All tunnels with the\n"
            "server pause for some seconds; pods go on, and so do tunnels between nodes.\n"
            "splitplane cluster show has New key until every node was reached."
        ),
        examples="splitplane cluster rotate-key eu-1",
    )
    parser.add_argument("cluster", metavar="CLUSTER", help=_CLUSTER)


def list_clusters(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every("/v1/clusters", ClusterPage)
    terminal.present(args.json, answer, lambda page: cluster_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"/v1/clusters/{quote(args.cluster, safe='')}", ClusterView)
    if args.json or terminal.quiet:
        terminal.present(args.json, answer, lambda cluster: cluster_page(cluster, terminal.now()))
        return
    inside = _everybodys(client, answer.value) if args.all_organizations else _inside(client, answer.value)
    terminal.present(args.json, answer, lambda cluster: cluster_page(cluster, terminal.now(), inside))


def _everybodys(client: Client, cluster: ClusterView) -> Everybodys:
    """The node pools and the nodes of all organizations in the cluster, for operators."""
    of_cluster = {"cluster": cluster.id}
    pools = client.every(
        node_pools.EVERYBODYS, NodePoolReportPage, of_cluster | {"state": list(node_pools.LIVE)}
    )
    found = client.every(nodes.EVERYBODYS, NodeReportPage, of_cluster | {"state": list(nodes.LIVE)})
    return Everybodys(pools.cleaned().items, found.cleaned().items)


def _inside(client: Client, cluster: ClusterView) -> Inside | None:
    """What the caller has in the cluster; None for one who may not read node pools."""
    of_cluster = {"cluster": cluster.id}
    try:
        pools = client.every("/v1/node-pools", NodePoolPage, of_cluster | {"state": list(node_pools.LIVE)})
        found = client.every(nodes.PATH, NodePage, of_cluster | {"state": list(nodes.LIVE)})
    except CliError as error:
        if error.code == "permission_denied":
            return None
        raise
    return Inside(pools.cleaned().items, found.cleaned().items)


def create(terminal: Terminal, args: Namespace) -> None:
    request = ClusterRequest(args.name, args.region, args.organization)
    client = terminal.client()
    answer = client.post("/v1/operator/clusters", ClusterView, request)
    if not args.no_wait:
        answer = _watched(terminal, client, answer)
    terminal.present(args.json, answer, lambda cluster: cluster_page(cluster, terminal.now()))
    if not args.no_wait and answer.value.state != "ready":
        raise CliError(f"{answer.value.name} is being deleted.", code="cluster_deleted")


def _watched(terminal: Terminal, client: Client, answer: Answer[ClusterView]) -> Answer[ClusterView]:
    """Read the cluster until it is built or deleted. What fails is tried again, so it does not end the wait."""
    cluster_id = answer.value.id
    return waiting.until(
        terminal,
        client,
        answer,
        lambda: client.get(f"/v1/clusters/{cluster_id}", ClusterView),
        is_done=lambda cluster: cluster.state != "building",
        says=progress_of,
        goes_on=(
            f"It is being built all the same. To see it: splitplane cluster show {cluster_id}\n"
            f"To end it: splitplane cluster delete {cluster_id}"
        ),
    )


def delete(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    cluster = client.get(f"/v1/clusters/{quote(args.cluster, safe='')}", ClusterView).value
    confirm(
        terminal,
        args,
        f"Delete the cluster {cluster.name} with everything that runs in it? This cannot be undone.",
    )
    answer = client.post(f"/v1/operator/clusters/{cluster.id}/deletion", ClusterView)
    terminal.present(args.json, answer, lambda found: cluster_page(found, terminal.now()))


def rotate_key(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.post(f"/v1/operator/clusters/{quote(args.cluster, safe='')}/key-rotations", ClusterView)
    terminal.present(args.json, answer, lambda found: cluster_page(found, terminal.now()))
