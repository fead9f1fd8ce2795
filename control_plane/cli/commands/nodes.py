"""The nodes of node pools, with the steps that they took into their cluster; for operators, those of everybody."""

from argparse import Namespace
from typing import Any
from urllib.parse import quote

from control_plane.cli.client import Client
from control_plane.cli.commands import node_pools
from control_plane.cli.commands.lookup import named
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, Parser, command, is_id, noun
from control_plane.cli.render.nodes import node_page, node_report_page, node_report_table, node_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.nodes import NodePage, NodeReportPage, NodeReportView, NodeView

LIVE = ("joining", "ready", "leaving")
PATH = "/v1/nodes"
EVERYBODYS = "/v1/operator/nodes"


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
        splitplane node list --all-organizations
        kubectl get nodes --output wide $(splitplane node list --names --cluster eu-1)
        """,
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="only their names in the cluster, a line each, as kubectl takes them",
    )
    parser.add_argument("--cluster", metavar="CLUSTER", help="only those in this cluster: its name or its id")
    parser.add_argument(
        "--node-pool", metavar="POOL", help="only those of this node pool: its name or its id"
    )
    parser.add_argument("--all", action="store_true", help="include nodes that are gone")
    add_everybodys(parser)
    parser = command(
        nodes,
        "show",
        show,
        "Show one node, with the steps that it took into its cluster.",
        more=(
            "Operators see the nodes of everybody with --all-organizations, each with the\n"
            "evidence of its steps, and what it claims to have beside what was bought."
        ),
        examples="""
        splitplane node show node-0190c2a1b2c37b3a9c54e1f2a3b4c5d6
        splitplane node show nd_0190c2a1b2c3 --all-organizations
        """,
    )
    parser.add_argument(
        "node", metavar="NODE", help="its name in the cluster, its id, or the unambiguous beginning of that"
    )
    add_everybodys(parser)
    parser = command(
        nodes,
        "rotate-key",
        rotate_key,
        "Change the WireGuard key of a node at once (operators).",
        more=(
            "For a key that may have leaked. It begins within seconds, before changes that\n"
            "are due after 30 days, and the node's tunnels pause for some seconds. The old\n"
            "key opens nothing once every other machine was reached. Until then, New key is\n"
            "in splitplane node show NODE --all-organizations."
        ),
        examples="splitplane node rotate-key node-0190c2a1b2c37b3a9c54e1f2a3b4c5d6",
    )
    parser.add_argument("node", metavar="NODE", help="its name in the cluster, or its id")


def add_everybodys(parser: Parser) -> None:
    parser.add_argument("--all-organizations", action="store_true", help="for operators: of everybody")


def list_nodes(terminal: Terminal, args: Namespace) -> None:
    if args.names and args.all_organizations:
        raise usage("--names lists your own nodes; it cannot be combined with --all-organizations.")
    client = terminal.client()
    params: dict[str, Any] = {} if args.all else {"state": list(LIVE)}
    if args.cluster:
        params["cluster"] = args.cluster
    if args.all_organizations:
        if args.node_pool:
            raise usage("--node-pool names one of your own; it cannot be combined with --all-organizations.")
        reports = client.every(EVERYBODYS, NodeReportPage, params)
        terminal.present(args.json, reports, lambda page: node_report_table(page.items, terminal.now()))
        return
    if args.node_pool:
        params["node_pool"] = node_pools.find(client, args.node_pool).value.id
    answer = client.every(PATH, NodePage, params)
    if args.names and not args.json:
        terminal.write("".join(f"{node.name}\n" for node in answer.value.items))
        return
    terminal.present(args.json, answer, lambda page: node_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    word = quote(_word(client, args), safe="")
    if args.all_organizations:
        report = client.get(f"{EVERYBODYS}/{word}", NodeReportView)
        terminal.present(args.json, report, lambda found: node_report_page(found, terminal.now()))
        return
    answer = client.get(f"{PATH}/{word}", NodeView)
    terminal.present(args.json, answer, lambda node: node_page(node, terminal.now()))


def rotate_key(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.post(f"{EVERYBODYS}/{quote(args.node, safe='')}/key-rotations", NodeReportView)
    terminal.present(args.json, answer, lambda found: node_report_page(found, terminal.now()))


def _word(client: Client, args: Namespace) -> str:
    """The id of the node whose id begins so, if there is one; otherwise what was given."""
    given: str = args.node
    if is_id("nd", given) or not given.startswith("nd_"):
        return given
    if args.all_organizations:
        known = [report.node for report in client.every(EVERYBODYS, NodeReportPage).value.items]
    else:
        known = list(client.every(PATH, NodePage).value.items)
    found = named(known, given)
    return found[0].id if len(found) == 1 else given
