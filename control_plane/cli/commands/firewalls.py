"""The firewall of a lease: which ports of its machine are open to whom."""

from argparse import Namespace
from collections.abc import Sequence

from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.firewalls import firewall_page, firewall_rule_page
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.firewalls import FirewallRuleRequest, FirewallRuleView, FirewallView

PREFIX = "fw"
EVERYBODY = ("0.0.0.0/0", "::/0")


def add(to: Commands) -> None:
    commands = noun(to, "firewall", "Open and close ports of the machine of a lease.")
    parser = command(
        commands,
        "list",
        list_rules,
        "List which ports of a machine are open to whom.",
        more=(
            "SSH (tcp/22) and WireGuard (udp/51820) are always open. All other ports are\n"
            "closed unless they are listed. Below is whether the machine has the rules, and\n"
            "what its provider lets in. Nodes of clusters have no rules."
        ),
        examples="splitplane firewall list train-1",
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser = command(
        commands,
        "allow",
        allow,
        "Open a port, or a range of ports, to networks.",
        more=(
            "The machine has the rule within seconds. It keeps the rule through a reboot,\n"
            "and a machine that replaces it has the same rules. Some providers filter as\n"
            "well: at some of them the rule is applied there too, at others only SSH and\n"
            "WireGuard come in (docs/firewalls.md); `firewall list` says which.\n"
            "Nodes of clusters have no rules: use network policies there."
        ),
        examples="""
        splitplane firewall allow train-1 tcp/8080 --from 203.0.113.0/24
        splitplane firewall allow train-1 udp/6000-6010 --from 203.0.113.7
        splitplane firewall allow train-1 tcp/443 --from anywhere
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("ports", metavar="PORTS", help="such as tcp/8080 or udp/6000-6010")
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="NETWORK",
        action="append",
        required=True,
        help="a network or an address, or `anywhere`; may be repeated, up to four in all",
    )
    parser = command(
        commands,
        "remove",
        remove,
        "Remove rules, which closes what no other rule opens.",
        more="Connections that are open stay open.",
        examples="""
        splitplane firewall remove train-1 tcp/8080
        splitplane firewall remove train-1 fw_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument(
        "rules",
        metavar="RULE",
        nargs="+",
        help="the id of a rule, or the ports of the only rule for them, as `firewall list` shows them",
    )


def list_rules(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    answer = client.get(_path(lease.id), FirewallView)
    terminal.present(args.json, answer, lambda firewall: firewall_page(firewall, terminal.now()))


def allow(terminal: Terminal, args: Namespace) -> None:
    protocol, slash, ports = args.ports.partition("/")
    if not slash:
        raise usage(f"{args.ports!r} names no protocol; write tcp/{args.ports} or udp/{args.ports}.")
    sources = tuple(
        source for given in args.sources for source in (EVERYBODY if given == "anywhere" else (given,))
    )
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    request = FirewallRuleRequest(protocol=protocol, ports=ports, sources=sources)
    answer = client.post(_path(lease.id), FirewallRuleView, request)
    terminal.present(
        args.json,
        answer,
        lambda rule: firewall_rule_page(rule, client.get(_path(lease.id), FirewallView).value.provider),
    )


def remove(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0].value
    rules = [] if all(is_id(PREFIX, word) for word in args.rules) else _rules(client, lease.id)
    ids = list(dict.fromkeys(_id(word, rules, args.lease) for word in args.rules))
    for each in ids:
        client.delete(f"{_path(lease.id)}/{each}")
    if args.json:
        terminal.json({"deleted": ids})
    elif terminal.quiet:
        terminal.write("".join(f"{each}\n" for each in ids))
    else:
        terminal.say(f"Removed {plural(len(ids), 'rule')}.")


def _rules(client: Client, lease_id: str) -> Sequence[FirewallRuleView]:
    return client.get(_path(lease_id), FirewallView).value.rules


def _id(word: str, rules: Sequence[FirewallRuleView], lease: str) -> str:
    """The id of the rule that the word names: an id, or ports that only one rule has."""
    if is_id(PREFIX, word):
        return word
    found = [rule.id for rule in rules if f"{rule.protocol}/{rule.ports}" == word]
    if len(found) == 1:
        return found[0]
    if found:
        raise CliError(f"Several rules are for {word}: {', '.join(found)}. Use an id.", code="ambiguous")
    raise CliError(f"No rule is for {word!r}. See: splitplane firewall list {lease}", code="not_found")


def _path(lease_id: str) -> str:
    return f"/v1/leases/{lease_id}/firewall-rules"
