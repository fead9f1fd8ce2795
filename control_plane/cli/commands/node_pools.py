"""Node pools: equal nodes of one SKU in a Kubernetes cluster. Each of them is a lease."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from control_plane.cli import waiting
from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands.catalogue import add_constraints, constraints, naming_the_nearest
from control_plane.cli.commands.labels import labels
from control_plane.cli.commands.lookup import named
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, is_id, noun, seconds, suggestion
from control_plane.cli.render.node_pools import node_pool_page, node_pool_table, progress_of
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural, price, sentence
from control_plane.wire.leases import WAIT_SECONDS_DEFAULT
from control_plane.wire.node_pools import (
    NodePoolChangeRequest,
    NodePoolPage,
    NodePoolRequest,
    NodePoolView,
    TaintRequest,
)
from control_plane.wire.nodes import NodePage

LIVE = ("pending", "ready", "deleting")
EVERYBODYS = "/v1/operator/node-pools"
PREFIX = "np"
_POOL = "name, id, or the unambiguous beginning of an id"
_PATH = "/v1/node-pools"
_NODES_SHOWN_MAX = 100


def add(to: Commands) -> None:
    pools = noun(to, "node-pool", "Create, scale and delete node pools in Kubernetes clusters.")
    _add_create(pools)
    parser = command(
        pools,
        "list",
        list_pools,
        "List your node pools, newest first.",
        examples="""
        splitplane node-pool list
        splitplane node-pool list --cluster eu-1 --all
        """,
    )
    parser.add_argument("--cluster", metavar="CLUSTER", help="only those in this cluster: its name or its id")
    parser.add_argument("--project", metavar="PROJECT", help="only those of this project: its name or its id")
    parser.add_argument("--all", action="store_true", help="include node pools that are gone")
    parser = command(
        pools,
        "show",
        show,
        "Show one node pool with its nodes, and what became of those that it lost.",
        examples="splitplane node-pool show train",
    )
    parser.add_argument("node_pool", metavar="POOL", help=_POOL)
    _add_scale(pools)
    _add_delete(pools)


def _add_create(pools: Commands) -> None:
    parser = command(
        pools,
        "create",
        create,
        "Create a node pool and wait until all of its nodes are ready.",
        more=(
            "All of its nodes are admitted and opened together, or none. Each is a lease of\n"
            "its own, and billing starts when the pool is ready. Leaving early (Ctrl-C,\n"
            "--no-wait) does not end it."
        ),
        examples="""
        splitplane node-pool create train --cluster eu-1 --nodes 2 --sku h100-sxm.8x
        splitplane node-pool create a --cluster eu-1 --nodes 4 --sku l40s.1x --no-wait
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in the project and the cluster")
    parser.add_argument("--cluster", metavar="CLUSTER", required=True, help="its name or its id")
    parser.add_argument("--nodes", type=int, metavar="N", required=True, help="how many nodes, up to 64")
    parser.add_argument("--sku", metavar="SKU", required=True, help="what each node is; see: splitplane skus")
    add_constraints(parser, priced="one node")
    parser.add_argument(
        "--label", metavar="KEY=VALUE", action="append", default=[], help="a node label; may be repeated"
    )
    parser.add_argument(
        "--taint",
        metavar="KEY=VALUE:EFFECT",
        action="append",
        default=[],
        help="a taint, such as batch=only:NoSchedule; may be repeated",
    )
    parser.add_argument(
        "--wait-timeout",
        metavar="TIME",
        help="how long to try to get all nodes ready: 30m, 12h or 7d (default: 30m)",
    )
    parser.add_argument(
        "--no-wait",
        "--detach",
        dest="no_wait",
        action="store_true",
        help="return as soon as the node pool is admitted",
    )


def _add_scale(pools: Commands) -> None:
    parser = command(
        pools,
        "scale",
        scale,
        "Scale a node pool.",
        more=(
            "Additional nodes are admitted all or none, and join one by one. With fewer,\n"
            "nodes without a machine go first, then those that are not ready, then the\n"
            "youngest; their billing stops at once."
        ),
        examples="""
        splitplane node-pool scale train --nodes 3 --wait
        splitplane node-pool scale train --nodes 1 --yes
        """,
    )
    parser.add_argument("node_pool", metavar="POOL", help=_POOL)
    parser.add_argument("--nodes", type=int, metavar="N", required=True, help="how many nodes, up to 64")
    parser.add_argument("--wait", action="store_true", help="wait until it has that many ready nodes")
    add_yes(parser)


def _add_delete(pools: Commands) -> None:
    parser = command(
        pools,
        "delete",
        delete,
        "Delete a node pool. Billing stops at once, and the data on its nodes is lost.",
        examples="splitplane node-pool delete train --yes",
    )
    parser.add_argument("node_pool", metavar="POOL", help=_POOL)
    add_yes(parser)


def find(client: Client, word: str) -> Answer[NodePoolView]:
    """The node pool that the word names. A live one wins over one that is gone."""
    if is_id(PREFIX, word):
        return client.get(f"{_PATH}/{word}", NodePoolView)
    known: list[NodePoolView] = []
    for states in (LIVE, ("gone",)):
        pools = client.every(_PATH, NodePoolPage, {"state": list(states)}).value.items
        known += pools
        found = named(pools, word)
        if len(found) == 1:
            return client.get(f"{_PATH}/{found[0].id}", NodePoolView)
        if found:
            ids = ", ".join(f"{pool.id} in {pool.cluster}" for pool in found)
            raise CliError(f"Several node pools are called {word!r}: {ids}. Use an id.", code="ambiguous")
    near = suggestion(word, [pool.name for pool in known])
    raise CliError(f"There is no node pool {word!r}.{near} See: splitplane node-pool list", code="not_found")


def create(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    given = args.wait_timeout
    request = NodePoolRequest(
        cluster=args.cluster,
        name=args.name,
        nodes=args.nodes,
        **constraints(args),
        node_labels=labels(args.label),
        node_taints=tuple(taint(text) for text in args.taint),
        wait_timeout_seconds=WAIT_SECONDS_DEFAULT if given is None else seconds(given, "--wait-timeout"),
    )
    with naming_the_nearest(client, args.sku):
        answer = client.post(_PATH, NodePoolView, request)
    pool = answer.cleaned()
    per_hour = f"{price(pool.price_per_hour)} USD per hour"
    terminal.note(f"{pool.id} is admitted: {plural(pool.nodes, 'node')} at {per_hour} together.")
    if not args.no_wait:
        answer = _watched(terminal, client, answer, _is_ready)
    terminal.present(args.json, answer, lambda found: node_pool_page(found, terminal.now()))
    if answer.value.state not in ("pending", "ready"):
        why = sentence(answer.value.why or answer.value.state)
        raise CliError(f"{answer.value.name}: {why}", code="node_pool_ended")


def taint(text: str) -> TaintRequest:
    """A taint as kubectl writes it: KEY=VALUE:EFFECT or KEY:EFFECT."""
    marked, sign, effect = text.rpartition(":")
    key, _, value = marked.partition("=")
    if not (sign and key and effect):
        raise usage(f"--taint: {text!r} is not KEY=VALUE:EFFECT, such as batch=only:NoSchedule.")
    return TaintRequest(key=key, effect=effect, value=value)


def _watched(
    terminal: Terminal, client: Client, answer: Answer[NodePoolView], is_done: Callable[[NodePoolView], bool]
) -> Answer[NodePoolView]:
    """Read the pool until it is as it was asked for, or ends."""
    pool_id = answer.value.id
    return waiting.until(
        terminal,
        client,
        answer,
        lambda: client.get(f"{_PATH}/{pool_id}", NodePoolView),
        is_done=lambda pool: is_done(pool) or pool.state not in ("pending", "ready"),
        says=progress_of,
        goes_on=(
            f"The node pool continues. To see it: splitplane node-pool show {pool_id}\n"
            f"To end it: splitplane node-pool delete {pool_id}"
        ),
    )


def _is_ready(pool: NodePoolView) -> bool:
    return pool.state == "ready"


def _is_whole(pool: NodePoolView) -> bool:
    """Whether it has the nodes that it wants, and no others."""
    return _is_ready(pool) and pool.leases.ready == pool.nodes


def list_pools(terminal: Terminal, args: Namespace) -> None:
    params: dict[str, Any] = {} if args.all else {"state": list(LIVE)}
    if args.cluster:
        params["cluster"] = args.cluster
    if args.project:
        params["project"] = args.project
    answer = terminal.client().every(_PATH, NodePoolPage, params)
    terminal.present(args.json, answer, lambda page: node_pool_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = find(client, args.node_pool)
    if args.json or terminal.quiet:
        terminal.present(args.json, answer, lambda pool: node_pool_page(pool, terminal.now()))
        return
    # One page: what became of the latest nodes, with those that were lost and those that replaced them.
    params = {"node_pool": answer.value.id, "limit": _NODES_SHOWN_MAX}
    nodes = client.get("/v1/nodes", NodePage, params).cleaned().items
    terminal.present(args.json, answer, lambda pool: node_pool_page(pool, terminal.now(), nodes))


def scale(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    pool = find(client, args.node_pool).cleaned()
    fewer = pool.nodes - args.nodes
    if fewer > 0:
        confirm(
            terminal,
            args,
            f"Remove {plural(fewer, 'node')} from {pool.name}? {'Its' if fewer == 1 else 'Their'} data is lost.",
        )
    answer = client.patch(f"{_PATH}/{pool.id}", NodePoolView, NodePoolChangeRequest(args.nodes))
    if args.wait:
        answer = _watched(terminal, client, answer, _is_whole)
    terminal.present(args.json, answer, lambda found: node_pool_page(found, terminal.now()))


def delete(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    pool = find(client, args.node_pool).cleaned()
    if pool.state in ("pending", "ready"):
        confirm(
            terminal,
            args,
            f"Delete the node pool {pool.name} with {plural(pool.nodes, 'node')}? Their data is lost.",
        )
    answer = client.post(f"{_PATH}/{pool.id}/deletion", NodePoolView)
    terminal.present(args.json, answer, lambda found: node_pool_page(found, terminal.now()))
