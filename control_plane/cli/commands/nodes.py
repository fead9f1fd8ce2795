"""The nodes of node pools, with the steps that they took into their cluster."""

from argparse import Namespace
from typing import Any
from urllib.parse import quote

from control_plane.cli.client import Client
from control_plane.cli.commands import node_pools
from control_plane.cli.commands.lookup import named
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.nodes import node_page, node_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.nodes import NodePage, NodeView

LIVE = ("joining", "ready", "leaving")


def add(to: Commands) -> None:
    nodes = noun(to, "node", "See the nodes of your node pools.")
    parser = command(
        nodes,
        "list",
        list_nodes,
        "List the nodes of your node pools, newest first.",
        examples="""
        splitplane node list
        splitplane node list --node-pool train
        splitplane node list --cluster eu-1 --all
        """,
    )
    parser.add_argument("--cluster", metavar="CLUSTER", help="only those in this cluster: its name or its id")
    parser.add_argument(
        "--node-pool", metavar="POOL", help="only those of this node pool: its name or its id"
    )
    parser.add_argument("--all", action="store_true", help="include nodes that are gone")
    parser = command(
        nodes,
        "show",
        show,
        "Show one node, with the steps that it took into its cluster.",
        examples="splitplane node show node-0190c2a1b2c37b3a9c54e1f2a3b4c5d6",
    )
    parser.add_argument(
        "node", metavar="NODE", help="its name in the cluster, its id, or the unambiguous beginning of that"
    )


def list_nodes(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    params: dict[str, Any] = {} if args.all else {"state": list(LIVE)}
    if args.cluster:
        params["cluster"] = args.cluster
    if args.node_pool:
        params["node_pool"] = node_pools.find(client, args.node_pool).value.id
    answer = client.every("/v1/nodes", NodePage, params)
    terminal.present(args.json, answer, lambda page: node_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(f"/v1/nodes/{quote(_word(client, args.node), safe='')}", NodeView)
    terminal.present(args.json, answer, lambda node: node_page(node, terminal.now()))


def _word(client: Client, given: str) -> str:
    """The id of the node whose id begins so, if there is one; otherwise what was given."""
    if is_id("nd", given) or not given.startswith("nd_"):
        return given
    found = named(client.every("/v1/nodes", NodePage, {"state": list(LIVE)}).value.items, given)
    return found[0].id if len(found) == 1 else given
