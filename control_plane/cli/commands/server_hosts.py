"""Hosts for the servers of clusters. They need the permissions `server_hosts.read` and `server_hosts.manage`."""

from argparse import Namespace
from urllib.parse import quote

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.public_keys import public_line
from control_plane.cli.render.clusters import server_host_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.server_hosts import ServerHostPage, ServerHostRequest, ServerHostView

PATH = "/v1/operator/server-hosts"


def add(to: Commands) -> None:
    hosts = noun(to, "server-host", "Add, list and remove hosts for servers of clusters (operators).")
    command(
        hosts,
        "list",
        list_hosts,
        "List the hosts, with the clusters whose servers run there.",
        examples="splitplane server-host list",
    )
    parser = command(
        hosts,
        "add",
        add_host,
        "Add a host on which the server of one cluster can run.",
        more=(
            "It is a host of yours that has nothing else to do, with systemd, python3 and\n"
            "bash. docs/clusters.md says how to let the reconciler log in there. Nothing is\n"
            "installed before a cluster takes it."
        ),
        examples="""
        splitplane server-host add k8s 192.0.2.1 --region eu-west-1 --host-key k8s.pub
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique among the server hosts")
    parser.add_argument("address", metavar="ADDRESS", help="where the reconciler reaches its sshd")
    parser.add_argument("--region", required=True, metavar="REGION", help="where it is")
    parser.add_argument(
        "--port", type=int, default=22, metavar="N", help="the port of its sshd (default: 22)"
    )
    parser.add_argument(
        "--host-key", required=True, metavar="FILE", help="its SSH host key, a .pub file; - for stdin"
    )
    parser.add_argument(
        "--outside", metavar="ADDRESS", help="where nodes and customers reach it (default: ADDRESS)"
    )
    parser = command(
        hosts,
        "remove",
        remove_host,
        "Forget a host on which no server of a cluster runs.",
        examples="splitplane server-host remove k8s-1",
    )
    parser.add_argument("name", metavar="NAME", help='as "splitplane server-host list" shows it')


def list_hosts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, ServerHostPage)
    terminal.present(args.json, answer, lambda page: server_host_table(page.items, terminal.now()))


def add_host(terminal: Terminal, args: Namespace) -> None:
    host_key = public_line(terminal, args.host_key)
    request = ServerHostRequest(
        args.name, args.region, args.address, host_key, ssh_port=args.port, outside=args.outside
    )
    answer = terminal.client().post(PATH, ServerHostView, request)
    terminal.present(args.json, answer, lambda host: server_host_table([host], terminal.now()))


def remove_host(terminal: Terminal, args: Namespace) -> None:
    terminal.client().delete(f"{PATH}/{quote(args.name, safe='')}")
    if args.json:
        terminal.json({"removed": args.name})
    elif terminal.quiet:
        terminal.write(f"{args.name}\n")
    else:
        terminal.say(f"Removed the server host {args.name}.")
