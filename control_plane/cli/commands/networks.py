"""Private networks, which the machines of a project's leases join."""

from argparse import ArgumentParser, Namespace
from urllib.parse import quote

from control_plane.cli.commands.labels import labels
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.networks import member_table, network_page, network_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.networks import (
    NetworkLabelsRequest,
    NetworkMemberPage,
    NetworkPage,
    NetworkRequest,
    NetworkView,
)


def add(to: Commands) -> None:
    networks = noun(to, "network", "Create, show and delete private networks, which machines join.")
    parser = command(
        networks,
        "create",
        create,
        "Create a private network of a project.",
        more=(
            "The machines of a network reach each other by their private addresses, at\n"
            "whichever provider they are. No machine of another network reaches them."
        ),
        examples="""
        splitplane network create training
        splitplane network create training --project research --label team=vision
        splitplane lease create h100-sxm.8x --network training
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique in the project; not net_...")
    _add_project(parser)
    parser.add_argument(
        "--label", metavar="KEY=VALUE", action="append", default=[], help="a label; may be repeated"
    )
    parser = command(
        networks,
        "list",
        list_networks,
        "List the private networks of a project, oldest first.",
        more="Leases that name no network join the one called default.",
        examples="splitplane network list --project research",
    )
    _add_project(parser)
    _add_show(networks)
    _add_members(networks)
    _add_label(networks)
    _add_delete(networks)


def _add_show(networks: Commands) -> None:
    parser = command(
        networks,
        "show",
        show,
        "Show a network with its range, and its members with their addresses.",
        examples="splitplane network show training",
    )
    _add_network(parser)


def _add_members(networks: Commands) -> None:
    parser = command(
        networks,
        "members",
        members,
        "List the machines in a network now, with their leases and addresses.",
        more="With -q only the addresses are printed, a line each.",
        examples="""
        splitplane network members training
        splitplane network members training -q > hostfile
        """,
    )
    _add_network(parser)


def _add_label(networks: Commands) -> None:
    parser = command(
        networks,
        "label",
        label,
        "Replace the labels of a network.",
        more="Without any KEY=VALUE the network has no labels afterwards.",
        examples="splitplane network label training team=vision cost-center=42",
    )
    _add_network(parser)
    parser.add_argument("labels", metavar="KEY=VALUE", nargs="*", help="a label that it shall have")


def _add_delete(networks: Commands) -> None:
    parser = command(
        networks,
        "delete",
        delete,
        "Delete a network that no lease uses.",
        more="The network called default stays.",
        examples="splitplane network delete training",
    )
    _add_network(parser)


def _add_network(parser: ArgumentParser) -> None:
    parser.add_argument("network", metavar="NETWORK", help="its name or its id")
    _add_project(parser)


def _add_project(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--project",
        metavar="PROJECT",
        default="default",
        help="the project, by name or id (default: the one called default)",
    )


def create(terminal: Terminal, args: Namespace) -> None:
    request = NetworkRequest(args.name, labels(args.label))
    answer = terminal.client().post(_path(args), NetworkView, request)
    terminal.present(args.json, answer, lambda network: network_page(network, None, terminal.now()))


def list_networks(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(_path(args), NetworkPage)
    terminal.present(args.json, answer, lambda page: network_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    answer = client.get(_path(args, args.network), NetworkView)
    if args.json or terminal.quiet:
        terminal.present(args.json, answer, lambda network: network_page(network, None, terminal.now()))
        return
    members = client.whole(f"{_path(args, args.network)}/members", NetworkMemberPage).value.items
    terminal.present(args.json, answer, lambda network: network_page(network, members, terminal.now()))


def members(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(f"{_path(args, args.network)}/members", NetworkMemberPage)
    if terminal.quiet and not args.json:
        for member in answer.value.items:
            terminal.write(f"{member.address}\n")  # What a host file needs.
        return
    terminal.present(args.json, answer, lambda page: member_table(page.items, terminal.now()))


def label(terminal: Terminal, args: Namespace) -> None:
    request = NetworkLabelsRequest(labels(args.labels, "KEY=VALUE"))
    answer = terminal.client().put(f"{_path(args, args.network)}/labels", NetworkView, request)
    terminal.present(args.json, answer, lambda network: network_page(network, None, terminal.now()))


def delete(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    network = client.get(_path(args, args.network), NetworkView).value
    client.delete(_path(args, args.network))
    if args.json:
        terminal.json({"deleted": network.id})
    elif terminal.quiet:
        terminal.write(f"{network.id}\n")
    else:
        terminal.say(f"Deleted the network {network.name} ({network.range}).")


def _path(args: Namespace, network: str | None = None) -> str:
    path = f"/v1/projects/{quote(args.project, safe='')}/networks"
    return path if network is None else f"{path}/{quote(network, safe='')}"
